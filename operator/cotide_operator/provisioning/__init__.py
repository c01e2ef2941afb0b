"""Capacity live: what the cluster needs in the next hours, and nodes that are switched on and off for it."""
