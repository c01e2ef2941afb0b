"""Measured co-location tables."""
