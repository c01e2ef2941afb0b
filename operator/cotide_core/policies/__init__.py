"""Scheduling policies: one algorithm per file, composed of an order, filters and scores."""
