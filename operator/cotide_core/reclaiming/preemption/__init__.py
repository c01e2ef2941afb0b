"""Who makes room for a pod that fits on no node, and on which node: one rule of importance for all policies."""
