"""Scheduling of jobs known at time 0 with approximation guarantees (Naghshnejad 2019, chapter 3): one algorithm a
file."""
