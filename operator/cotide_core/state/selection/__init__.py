"""Selectors and what they select, found by a label that both must have."""
