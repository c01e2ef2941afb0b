"""Experiment joint: all predictions at once, beside each alone and beside reserves without any forecast."""
