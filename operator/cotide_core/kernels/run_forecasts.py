"""Forecasts of run times inside a replay: what is known at submission, and what follows when it proves too short.

Called by the replay kernels. Invariant: a forecast uses only jobs that finished before the submission, in simulated
time; it lies between 1 s and the request.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled

Integers = npt.NDArray[np.int64]

GIVEN: Final = 0
"""The forecasts are an input array (the user's request, the real run time, a model's answers)."""
LAST_TWO: Final = 1
"""The mean of the user's last two finished jobs, capped by the request (Tsafrir et al. 2007, seed 002's [142])."""


@compiled
def forecast_at_submit(mode: int, given: int, request: int, user: int, last: Integers, before: Integers) -> int:
    """Return the forecast in seconds; without two finished jobs of the user it is the request."""
    if mode == GIVEN:
        return given
    if user < 0 or before[user] < 0:
        return request
    mean: int = (last[user] + before[user]) // 2
    return max(1, min(request, mean))


@compiled
def learn(user: int, run: int, last: Integers, before: Integers) -> int:
    """Note the run time of a finished job; return it."""
    if user >= 0:
        before[user] = last[user]
        last[user] = run
    return run


@compiled
def corrected(request: int, elapsed: int) -> int:
    """Return the new forecast of a job that outlived its own: the request, or twice its age where that is over too."""
    if request > elapsed:
        return request
    return 2 * elapsed
