"""Held-out scores of the predictors beside baselines."""
