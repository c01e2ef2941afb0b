"""`cotide lab`: predictors on one fair track, listed, run and reported."""
