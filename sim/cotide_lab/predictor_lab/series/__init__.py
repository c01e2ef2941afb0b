"""The tasks on series: predictors, sources, and their score from a rolling origin."""
