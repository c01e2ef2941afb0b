"""Array kernels of the run-time predictors."""
