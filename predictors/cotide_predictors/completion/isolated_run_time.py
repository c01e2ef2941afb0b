"""Run time of a job alone, by type: start-up seconds plus seconds for each byte.

Called by `completion.CompletionModel`; its forest corrects the residual. A straight line in the size is the cost of
reading input. It continues beyond the largest size seen, where a forest stays flat. Invariant: times are > 0 and never
fall with the size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Indices

LEAST_SECONDS: Final = 1e-3
"""Shortest run time (chosen: a process start)."""


@dataclass(frozen=True, slots=True)
class IsolatedRunTime:
    """Per type: (T,) start-up seconds, (T,) seconds for each byte, (T,) usual size for jobs that declare none."""

    startup_seconds: Floats
    seconds_per_byte: Floats
    usual_bytes: Floats

    def declared(self, kinds: Indices, input_bytes: Floats) -> Floats:
        """Return (n,) sizes, with the type's usual one where the declared size is 0."""
        return np.where(input_bytes > 0, input_bytes, self.usual_bytes[kinds])

    def seconds(self, kinds: Indices, input_bytes: Floats) -> Floats:
        """Return (n,) isolated run times; ``kinds`` are type indices, sizes as from `declared`."""
        line = self.startup_seconds[kinds] + self.seconds_per_byte[kinds] * input_bytes
        seconds: Floats = np.maximum(line, LEAST_SECONDS)
        return seconds


def usual_sizes(kinds: Indices, input_bytes: Floats, types: int) -> Floats:
    """Return (T,) geometric mean of each type's declared sizes; 0 without any."""
    usual = np.zeros(types)
    for kind in range(types):
        sizes = input_bytes[(kinds == kind) & (input_bytes > 0)]
        if len(sizes):
            usual[kind] = np.exp(np.log(sizes).mean())
    return usual


def learn_lone_time(kinds: Indices, input_bytes: Floats, seconds: Floats, usual_bytes: Floats) -> IsolatedRunTime:
    """Fit each type's line by least squares of the relative error, both terms >= 0.

    Parameters
    ----------
    kinds : (n,) type index of each job.
    input_bytes : (n,) sizes, all declared where the type has a usual one.
    seconds : (n,) run times with the slowdown taken out.
    usual_bytes : (T,)
    """
    from scipy.optimize import nnls  # heavy, and only training needs it

    startup, per_byte = np.zeros(len(usual_bytes)), np.zeros(len(usual_bytes))
    for kind in range(len(usual_bytes)):
        own = kinds == kind
        sizes, times = input_bytes[own], seconds[own]
        typical = float(np.exp(np.log(times).mean()))
        if len(np.unique(sizes)) == 1:
            # One size only: in proportion to it, since start-up and work cannot be separated.
            if sizes[0] > 0:
                per_byte[kind] = typical / sizes[0]
            else:
                startup[kind] = typical
            continue
        unit = sizes.mean()
        relative = np.column_stack((np.ones(len(sizes)), sizes / unit)) / times[:, None]
        found, _ = nnls(relative, np.ones(len(sizes)))
        startup[kind], per_byte[kind] = found[0], found[1] / unit
    return IsolatedRunTime(startup, per_byte, usual_bytes)
