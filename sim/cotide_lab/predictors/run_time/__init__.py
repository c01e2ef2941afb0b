"""Run-time predictors that only trace replay, the experiments and the predictor lab use."""
