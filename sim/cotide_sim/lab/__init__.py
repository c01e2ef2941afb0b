"""The predictor lab: every predictor on one fair track, and what it is worth to the decision behind it."""
