"""What a pod demands and prefers of other pods and of the domains that they run in, for all nodes at once."""
