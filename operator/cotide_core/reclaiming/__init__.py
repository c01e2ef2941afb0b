"""Forecast slack and who makes room: slack scheduling, overload monitor, preemption, evictions."""
