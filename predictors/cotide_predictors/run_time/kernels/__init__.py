"""Run-time forecasts on arrays, compiled with numba where it is installed."""
