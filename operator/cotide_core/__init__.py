"""The decision engine: pure, deterministic, typed.

Nothing here does I/O, reads a clock, logs or touches global random state: `now` and generators are arguments. The live
operator and the simulator are two drivers of the same `cycle.Scheduler.handle`.
"""
