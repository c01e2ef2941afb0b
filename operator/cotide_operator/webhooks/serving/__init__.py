"""HTTPS servers beside the deciding loop, and their certificates."""
