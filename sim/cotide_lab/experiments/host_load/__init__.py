"""Forecasts of host load compared with those of others (Jiang et al.)."""
