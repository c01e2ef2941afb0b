"""The laboratory: trace replay, sweeps, offline schedules, experiments of papers, training and measuring predictors."""
