"""Forecasts of host load beside what others use (Jiang et al.)."""
