"""Forecasts of run times inside a replay: the first at submission, and corrections when it proves too short.

Called by the replay kernels. Invariant: a forecast uses only jobs that finished before the submission, in simulated
time and in the current schedule. It lies between 1 s and the request.

A call that passes `Past` counts references to each of its arrays, some 0.2 microseconds. Functions that run for every
job of a fast replay therefore take only the one or two arrays that they need.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import uncounted
from cotide_predictors.run_time.kernels.run_habits import Habits, habits_of, note_habit, predict
from cotide_predictors.run_time.kernels.tree_forecasts import (
    Trees,
    accuracy_by_trees,
    describe,
    length_by_trees,
    note_tree_run,
    rate,
    trees_of,
)

GIVEN: Final = 0
"""The forecasts are an input array (the user's request, the real run time, a model's answers)."""
LAST_TWO: Final = 1
"""The mean of the user's last two finished jobs, capped by the request (Tsafrir et al. 2007, Naghshnejad 2019's
[142])."""
LEARNED: Final = 2
"""The point of highest expected accuracy of the mixture of past runs in `run_habits`; its own reliability."""
RATED: Final = 3
"""The same point, its reliability predicted by boosted trees (`tree_forecasts`)."""
TREES: Final = 4
"""The most accurate point of boosted trees; the reliability is the mean of similar forecasts."""
TREES_RATED: Final = 5
"""The same point, its reliability predicted by boosted trees."""


class Past(NamedTuple):
    """A replay's knowledge of finished jobs; changed in place.

    Attributes
    ----------
    last, before : (users,) seconds of the user's latest finished run and of the one before, -1 where there is none.
    upper, reliability : (n,) of each forecast from `LEARNED` on: seconds that few outlive, and estimated accuracy; the
        arrays of ``habits`` or of ``trees``.
    habits : from `LEARNED` on; without jobs in other modes.
    trees : from `RATED` on; without jobs in other modes.
    """

    last: Integers
    before: Integers
    upper: Integers
    reliability: Floats
    habits: Habits
    trees: Trees


def past_of(
    mode: int, users: int, user: Integers, demand: Integers, request: Integers, submit: Integers | None = None
) -> Past:
    """Return the empty past before the first job of a log.

    Parameters
    ----------
    users : users are numbered below it; -1 is unknown.
    user, demand, request : (n,) columns of the log.
    submit : (n,) seconds; needed from `RATED` on.
    """
    seen = slice(None) if mode >= LEARNED else slice(0)
    habits = habits_of(user[seen], demand[seen], request[seen])
    grown = slice(None) if mode >= RATED else slice(0)
    when = np.zeros_like(request) if submit is None else submit
    trees = trees_of(when[grown], demand[grown], request[grown], habits)
    state = habits if mode < RATED else trees
    last, before = np.full((2, users), -1, np.int64)
    return Past(last, before, state.upper, state.reliability, habits, trees)


@uncounted
def last_two_mean(last: Integers, before: Integers, request: int, user: int) -> int:
    """Return the forecast of `LAST_TWO` in seconds; without two finished jobs of the user it is the request."""
    if user < 0 or before[user] < 0:
        return request
    mean: int = (last[user] + before[user]) // 2
    return max(1, min(request, mean))


@uncounted
def note_last(last: Integers, before: Integers, run: int, user: int) -> int:
    """Note the run time of a finished job for `LAST_TWO`; return it."""
    if user >= 0:
        before[user] = last[user]
        last[user] = run
    return run


@uncounted
def forecast_at_submit(mode: int, job: int, given: int, request: int, user: int, past: Past) -> int:
    """Return the forecast in seconds; upper forecast and reliability are written to ``past``."""
    if mode == GIVEN:
        return given
    if mode == LAST_TWO:
        return last_two_mean(past.last, past.before, request, user)
    answer: int = predict(past.habits, job, request)
    if mode == LEARNED:
        return answer
    trees = past.trees
    describe(trees, past.habits, job, answer)
    trees.upper[job] = past.habits.upper[job]
    expected = past.habits.reliability[job]
    if mode >= TREES and trees.lengths.roots.shape[0] > 0:
        answer, expected = length_by_trees(trees, job)
    own = rate(trees, job, answer, expected)
    by_trees = mode in (RATED, TREES_RATED) and trees.ratings.roots.shape[0] > 0
    trees.reliability[job] = accuracy_by_trees(trees, job) if by_trees else own
    return answer


@uncounted
def learn(mode: int, job: int, run: int, request: int, user: int, forecast: int, past: Past) -> int:
    """Note the run time of a finished job, ``forecast`` being that of its submission; return the run time."""
    if mode == LEARNED:
        return note_habit(past.habits, job, run, request, forecast)
    if mode >= RATED:
        note_habit(past.habits, job, run, request, past.trees.point[job])
        return note_tree_run(past.trees, past.habits, job, run, forecast)
    return note_last(past.last, past.before, run, user)


@uncounted
def corrected(mode: int, job: int, request: int, elapsed: int, upper: Integers) -> int:
    """Return the new forecast of a job that outlived its own; ``upper`` is that of `Past`.

    It is the learned upper forecast as long as that lies ahead, then the request, then twice the job's age.
    """
    if mode >= LEARNED and upper[job] > elapsed:
        learned: int = upper[job]
        return learned
    if request > elapsed:
        return request
    return 2 * elapsed
