"""Experiment joint: all predictions at once, compared with each alone and with reserves without any forecast."""
