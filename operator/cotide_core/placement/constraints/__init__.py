"""The demands and preferences of a pod about other pods and their domains, for all nodes at once."""
