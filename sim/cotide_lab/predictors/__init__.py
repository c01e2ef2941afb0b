"""Predictors and their scores that only research uses."""
