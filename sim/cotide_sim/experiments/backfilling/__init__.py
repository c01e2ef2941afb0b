"""Batch logs: readings of EASY, the reliable share, forecasts of run times and what they are worth."""
