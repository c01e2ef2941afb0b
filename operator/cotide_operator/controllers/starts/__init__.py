"""Pods that hold a node and do not start: their times, their conditions and reports, and the next steps."""
