"""Forecasts of run times inside a replay: what is known at submission, and what follows when it proves too short.

Called by the replay kernels. Invariant: a forecast uses only jobs that finished before the submission, in simulated
time and in the schedule that is being made; it lies between 1 s and the request.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.run_habits import Habits, foresee, habits_of, note_habit

Integers = npt.NDArray[np.int64]

GIVEN: Final = 0
"""The forecasts are an input array (the user's request, the real run time, a model's answers)."""
LAST_TWO: Final = 1
"""The mean of the user's last two finished jobs, capped by the request (Tsafrir et al. 2007, seed 002's [142])."""
LEARNED: Final = 2
"""The point of highest expected accuracy of the mixture of past runs in `run_habits`."""


class Past(NamedTuple):
    """What a replay knows of finished jobs; changed in place.

    Attributes
    ----------
    last, before : (users,) seconds of the user's latest finished run and of the one before, -1 where there is none.
    habits : of `LEARNED`; without jobs in other modes.
    """

    last: Integers
    before: Integers
    habits: Habits


def past_of(mode: int, users: int, user: Integers, demand: Integers, request: Integers) -> Past:
    """Return what is known before the first job of a log: nothing.

    Parameters
    ----------
    users : users are numbered below it; -1 is unknown.
    user, demand, request : (n,) columns of the log.
    """
    seen = slice(None) if mode == LEARNED else slice(0)
    habits = habits_of(user[seen], demand[seen], request[seen])
    return Past(np.full(users, -1, np.int64), np.full(users, -1, np.int64), habits)


@compiled
def forecast_at_submit(mode: int, job: int, given: int, request: int, user: int, past: Past) -> int:
    """Return the forecast in seconds; without two finished jobs of the user `LAST_TWO` is the request."""
    if mode == GIVEN:
        return given
    if mode == LEARNED:
        return foresee(past.habits, job, request)
    if user < 0 or past.before[user] < 0:
        return request
    mean: int = (past.last[user] + past.before[user]) // 2
    return max(1, min(request, mean))


@compiled
def learn(mode: int, job: int, run: int, request: int, user: int, forecast: int, past: Past) -> int:
    """Note the run time of a finished job, ``forecast`` being what was said at its submission; return the run time."""
    if mode == LEARNED:
        return note_habit(past.habits, job, run, request, forecast)
    if user >= 0:
        past.before[user] = past.last[user]
        past.last[user] = run
    return run


@compiled
def corrected(mode: int, job: int, request: int, elapsed: int, past: Past) -> int:
    """Return the new forecast of a job that outlived its own.

    It is the learned upper forecast as long as that lies ahead, then the request, then twice the job's age.
    """
    if mode == LEARNED and past.habits.upper[job] > elapsed:
        upper: int = past.habits.upper[job]
        return upper
    if request > elapsed:
        return request
    return 2 * elapsed
