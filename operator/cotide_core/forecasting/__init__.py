"""Forecasts of the engine, with and without a model: heuristics, cached run times, reliability, starts."""
