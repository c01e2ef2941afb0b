"""Scheduling kernels on arrays: compiled with numba where it is installed, the same code as plain Python where not."""
