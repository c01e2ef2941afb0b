"""Measurements from Prometheus, the metrics API or fake nodes, as events and readings."""
