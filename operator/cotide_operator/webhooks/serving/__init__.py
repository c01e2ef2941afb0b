"""HTTPS servers in threads of their own, and their certificates."""
