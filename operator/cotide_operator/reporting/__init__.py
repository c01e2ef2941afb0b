"""Publishes decisions as events, annotations, statuses and metrics; it makes no decisions."""
