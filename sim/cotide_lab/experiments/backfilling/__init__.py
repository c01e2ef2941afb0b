"""Batch logs: readings of EASY, the reliable share, forecasts of run times and their worth."""
