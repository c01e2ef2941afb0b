"""The run-time task: predictors, and their score on a log."""
