"""Scheduling kernels on arrays for the replay of batch logs, compiled with numba where it is installed."""
