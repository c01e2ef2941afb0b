"""The predictor lab: every predictor on one fair track, and its value for the decision behind it."""
