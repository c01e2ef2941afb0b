"""Copies the knowledge of a smaller holder of arrays into a larger one, for hosts that join.

Called by `forecaster` and `scoring`. Holders have a fixed number of rows and never grow in place: the larger one starts
with every row unknown, and the smaller one is copied over it. Invariant: afterwards the old rows are unchanged and the
added ones are as in a new holder, on any axis of the hosts.
"""

from __future__ import annotations

import numpy as np


def overlay(larger: object, smaller: object) -> None:
    """Copy every array and number of ``smaller`` into the same attribute of ``larger``; other attributes stay.

    Raises
    ------
    ValueError
        When an array has another number of axes, or is longer than its destination.
    """
    for name, before in vars(smaller).items():
        if isinstance(before, np.ndarray):
            after = getattr(larger, name)
            if before.ndim != after.ndim or any(old > new for old, new in zip(before.shape, after.shape, strict=True)):
                raise ValueError(f"{name} of shape {before.shape} does not fit into {after.shape}")
            after[tuple(slice(0, length) for length in before.shape)] = before
        elif isinstance(before, int | float):
            setattr(larger, name, before)
