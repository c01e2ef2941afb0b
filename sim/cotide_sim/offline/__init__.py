"""Scheduling of jobs known at time 0 with approximation guarantees (seed 002, chapter 3): one algorithm a file."""
