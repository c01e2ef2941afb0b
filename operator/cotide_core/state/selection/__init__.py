"""Selectors and their matches, found by a label that both must have."""
