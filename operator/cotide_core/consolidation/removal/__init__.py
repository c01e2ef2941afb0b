"""Removal: the effect of removing nodes, and which nodes can go, on the engine's snapshot and by the engine's rules."""
