"""Forecasts for a replay that learns from its own schedule."""
