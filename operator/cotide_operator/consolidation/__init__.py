"""Consolidation of a live cluster: read it once, and carry a plan out pod by pod."""
