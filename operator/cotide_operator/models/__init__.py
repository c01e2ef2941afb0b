"""Model files in use, retraining, and the scores of what was forecast."""
