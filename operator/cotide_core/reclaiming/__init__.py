"""Forecast slack and making room: slack scheduling, overload monitor, preemption, evictions."""
