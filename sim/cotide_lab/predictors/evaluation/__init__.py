"""Held-out scores of the predictors and of baselines."""
