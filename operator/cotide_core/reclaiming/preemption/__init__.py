"""Room for a pod that fits on no node: one rule of importance for all policies decides which pods leave."""
