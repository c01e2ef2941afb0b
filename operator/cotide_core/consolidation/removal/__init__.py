"""Removal: what if these nodes went, and which nodes can go, on the engine's snapshot and by the engine's rules."""
