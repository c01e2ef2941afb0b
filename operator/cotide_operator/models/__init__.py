"""Model files in use, retraining, and the scores of forecasts."""
