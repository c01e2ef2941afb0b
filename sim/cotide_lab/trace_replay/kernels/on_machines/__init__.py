"""Kernels of replays on many machines, where each piece of a job needs all its resources on one of them."""
