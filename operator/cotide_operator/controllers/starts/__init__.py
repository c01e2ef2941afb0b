"""Pods that hold a node and do not start: for how long, what is said of them, and what follows."""
