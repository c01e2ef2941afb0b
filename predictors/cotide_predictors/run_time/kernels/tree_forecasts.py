"""Run times and their reliability by boosted trees inside a replay: the features of a job, and the trees' answers.

Called by the laboratory's `run_forecasts` at each submission and completion. The trees are grown outside, from the rows
that are kept here, whenever the replay pauses for it (every 24 simulated hours; Naghshnejad 2019, section 4.4.4). A row
holds what is known at submission, in the manner of Table 4.1. Its *anchors* are times that the job may take: the
request, the user's past runs, heuristics, the mixture's points. All else is *context*.

One forest predicts whether the job ends in a bin of log seconds, given that it got there. It sees the bin and how far
it lies from each anchor. The other predicts the accuracy (eq. 4.2) of a forecast from the forecast and the same row.
Until the first forests the mixture of `run_habits` answers; its points are inputs afterwards.

Invariant: a row and an answer use only jobs that finished before the submission; compiled code and plain Python give
the same bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.array_types import Floats, Integers, Narrow
from cotide_core.kernels.compiled import compiled
from cotide_predictors.run_time.kernels.forest import Forest, forest_sum, no_forest
from cotide_predictors.run_time.kernels.logarithm import exp_of, log_of
from cotide_predictors.run_time.kernels.run_habits import (
    CELL_PRIOR,
    CELLS,
    KEYS,
    LAGS,
    LEVEL_STEP,
    LEVELS_TAKEN,
    UPPER_SHARE,
    Habits,
)

LENGTHS: Final = 64
"""Bins of log seconds (chosen on KTH-SP2 and LLNL-Atlas, docs/results/run-times.json)."""
LONGEST_SECONDS: Final = 2.0e6
"""End of the last bin, as in `run_habits`."""
PARTS: Final = 3
"""Points in a bin at which the most accurate point is sought (chosen: steps of a tenth)."""
ANCHORS: Final = (
    "request", "mixture_point", "mixture_upper", "twin_last", "last", "twin_before_last", "before_last", "third_last",
    "same_request_last", "same_size_last", "last_two_mean", "maximum_of_five", "user_mean", "twin_mean",
)  # fmt: skip
"""Logs of seconds, nan where there is no such past; twins are the user's jobs of the same size and request."""
CONTEXT: Final = (
    "processors", "user_count", "user_spread", "twin_count", "twin_spread", "since_submit", "same_request",
    "same_size", "in_flight", "hour", "weekday", "mixture_expected", "mixture_reliability",
)  # fmt: skip
"""Counts, times and ratios as logs, spreads of log run times, calendar, and how sure the mixture is."""
RATED: Final = 3 + len(ANCHORS) + len(CONTEXT)
"""Inputs of the reliability of a forecast: the forecast, its expected accuracy, the distance of its upper forecast;
then as above.
"""
SNAPS: Final = (0, 3, 4, 8)
"""Anchors that replace the most accurate point where it lies close to one. Chosen: jobs end exactly at their request,
or where their twin ended, far more often than anywhere near.
"""
TWINS: Final = 0
USERS: Final = KEYS - 1


class Trees(NamedTuple):
    """The inputs of the trees, and the trees themselves. Arrays are changed in place; (0,) and the like where no trees
    are used.

    Attributes
    ----------
    submit, demand, request : (n,) columns of the log; a row is read at its submission and later.
    point : (n,) seconds, the mixture's answer.
    upper, reliability : (n,) out: seconds that all but one in ten do not outlive; estimated accuracy of each forecast.
    anchors, context, rated : (n, A), (n, C), (n, R) rows at submission.
    latest : (users,) each user's latest submission, -1 for none.
    flying : (users,) each user's submitted jobs that are not over.
    sums : (2, keys, 3) count, mean and sum of squared deviations of log run times: of twins, of users.
    level, cell, outcomes : as in `run_habits.Habits`, of the trees' own forecasts.
    centres : (LENGTHS,) logs of seconds.
    likeness : (LENGTHS, LENGTHS * PARTS) expected accuracy of each point for runs in each bin.
    lengths, ratings : the forests.
    """

    submit: Integers
    demand: Integers
    request: Integers
    point: Integers
    upper: Integers
    reliability: Floats
    anchors: Narrow
    context: Narrow
    rated: Narrow
    latest: Integers
    flying: Integers
    sums: Floats
    level: Floats
    cell: Integers
    outcomes: Floats
    centres: Floats
    likeness: Floats
    lengths: Forest
    ratings: Forest


def trees_of(submit: Integers, demand: Integers, request: Integers, habits: Habits) -> Trees:
    """Return the state before the first job of a log; columns (n,), empty where no trees are used."""
    jobs = len(submit)
    keys = max(int(habits.keys[kind].max(initial=0)) + 1 for kind in (TWINS, USERS))
    centres, likeness = _tables()
    return Trees(
        submit=submit,
        demand=demand,
        request=request,
        point=np.zeros(jobs, np.int64),
        upper=np.zeros(jobs, np.int64),
        reliability=np.zeros(jobs),
        anchors=np.full((jobs, len(ANCHORS)), np.nan, np.float32),
        context=np.zeros((jobs, len(CONTEXT)), np.float32),
        rated=np.zeros((jobs, RATED), np.float32),
        latest=np.full(keys, -1, np.int64),
        flying=np.zeros(keys, np.int64),
        sums=np.zeros((2, keys, 3)),
        level=np.full(1, UPPER_SHARE),
        cell=np.zeros(jobs, np.int64),
        outcomes=np.zeros((2, CELLS)),
        centres=centres,
        likeness=likeness,
        lengths=no_forest(),
        ratings=no_forest(),
    )


def edges() -> Floats:
    """Return the (LENGTHS + 1,) logs of seconds between which bins lie."""
    return np.linspace(0.0, np.log(LONGEST_SECONDS), LENGTHS + 1)


@cache
def _tables() -> tuple[Floats, Floats]:
    """Return the bins' centres and the gains of each point; made once and never written to."""
    between = edges()
    step = (between[1] - between[0]) / PARTS
    points = step * (np.arange(PARTS * LENGTHS) + 0.5)
    gain = np.exp(-np.abs(points[:, None] - points[None, :]))
    # A run is equally likely anywhere in its bin; einsum adds in one order on every machine, a matrix product does not.
    likeness = np.einsum("kpj->kj", gain.reshape(LENGTHS, PARTS, -1)) / PARTS
    tables = ((between[:-1] + between[1:]) / 2, likeness)
    for table in tables:
        table.setflags(write=False)
    return tables


@compiled
def _log_or_nan(seconds: float) -> float:
    return log_of(seconds) if seconds >= 1.0 else np.nan


@compiled
def describe(trees: Trees, habits: Habits, job: int, point: int) -> int:
    """Write the row of a job that is submitted now, ``point`` being the mixture's answer; return the point."""
    request = trees.request[job]
    twin = habits.keys[TWINS, job]
    own = habits.keys[USERS, job]
    runs = habits.runs[USERS, own]
    twins = habits.runs[TWINS, twin]
    ratios = habits.ratios[own]
    largest = 0.0
    for lag in range(LAGS):
        largest = max(largest, ratios[lag])
    mean = runs[0] if runs[1] == 0 else (runs[0] + runs[1]) / 2.0
    row = trees.anchors[job]
    row[0] = log_of(request)
    row[1] = log_of(point)
    row[2] = log_of(habits.upper[job])
    row[3] = _log_or_nan(min(twins[0], request))
    row[4] = _log_or_nan(min(runs[0], request))
    row[5] = _log_or_nan(min(twins[1], request))
    row[6] = _log_or_nan(min(runs[1], request))
    row[7] = _log_or_nan(min(runs[2], request))
    row[8] = _log_or_nan(min(habits.runs[1, habits.keys[1, job], 0], request))
    row[9] = _log_or_nan(min(habits.runs[2, habits.keys[2, job], 0], request))
    row[10] = _log_or_nan(min(mean, request))
    row[11] = _log_or_nan(max(1.0, min(largest, 1.0) * request) if largest > 0.0 else 0.0)
    row[12] = trees.sums[1, own, 1] if trees.sums[1, own, 0] > 0.0 else np.nan
    row[13] = trees.sums[0, twin, 1] if trees.sums[0, twin, 0] > 0.0 else np.nan
    now = trees.submit[job]
    before = trees.latest[own]
    features = trees.context[job]
    features[0] = log_of(trees.demand[job])
    features[1] = log_of(1.0 + trees.sums[1, own, 0])
    features[2] = trees.sums[1, own, 2] / max(trees.sums[1, own, 0], 1.0)
    features[3] = log_of(1.0 + trees.sums[0, twin, 0])
    features[4] = trees.sums[0, twin, 2] / max(trees.sums[0, twin, 0], 1.0)
    features[5] = np.nan if before < 0 else log_of(1.0 + now - trees.submit[before])
    features[6] = np.nan if before < 0 else log_of(trees.request[before] / request)
    features[7] = np.nan if before < 0 else log_of(trees.demand[before] / trees.demand[job])
    features[8] = log_of(1.0 + trees.flying[own])
    features[9] = now % 86_400 / 3600.0
    features[10] = now // 86_400 % 7
    features[11] = habits.cell[job] / CELLS
    features[12] = habits.reliability[job]
    trees.latest[own] = job
    trees.flying[own] += 1
    trees.point[job] = point
    return point


@compiled
def length_by_trees(trees: Trees, job: int) -> tuple[int, float]:
    """Return the seconds of highest expected accuracy, from 1 to the request, and that accuracy; note the upper."""
    anchors = trees.anchors[job]
    row = np.empty(1 + len(ANCHORS) + len(CONTEXT), np.float32)
    row[1 + len(ANCHORS) :] = trees.context[job]
    request = trees.request[job]
    width = trees.centres[1] - trees.centres[0]
    limit = min(int(float(anchors[0]) / width), LENGTHS - 1)
    expected = np.zeros(LENGTHS * PARTS)
    last = PARTS * (limit + 1)
    reached = 1.0
    below = 0.0
    upper: int = request
    found = False
    for index in range(limit + 1):
        centre = trees.centres[index]
        row[0] = centre
        for at in range(len(ANCHORS)):
            row[1 + at] = centre - float(anchors[at])
        ends = 1.0 if index == limit else 1.0 / (1.0 + exp_of(-forest_sum(trees.lengths, row)))
        mass = reached * ends
        for point in range(last):
            expected[point] += mass * trees.likeness[index, point]
        if not found and below + mass >= trees.level[0]:
            share = (trees.level[0] - below) / mass
            upper = min(request, int(exp_of(centre + (share - 0.5) * width)) + 1)
            found = True
        below += mass
        reached -= mass
    best = 0
    for point in range(1, last):
        if expected[point] > expected[best]:
            best = point
    log_best = (best + 0.5) * width / PARTS
    nearest = 0.75 * width / PARTS
    answer = int(exp_of(log_best) + 0.5)
    for at in SNAPS:
        away = abs(float(anchors[at]) - log_best)
        if away < nearest:
            nearest = away
            answer = int(exp_of(float(anchors[at])) + 0.5)
    answer = max(1, min(request, answer))
    trees.upper[job] = max(answer, upper)
    return answer, min(expected[best], 1.0)


@compiled
def rate(trees: Trees, job: int, answer: int, expected: float) -> float:
    """Write the row that a forecast's accuracy is predicted from; return the mean accuracy of similar forecasts."""
    cell = min(int(expected * CELLS), CELLS - 1)
    trees.cell[job] = cell
    row = trees.rated[job]
    point = log_of(answer)
    row[0] = point
    row[1] = expected
    row[2] = log_of(max(trees.upper[job], answer)) - point
    for at in range(len(ANCHORS)):
        row[3 + at] = point - float(trees.anchors[job, at])
    row[3 + len(ANCHORS) :] = trees.context[job]
    own: float = (trees.outcomes[1, cell] + CELL_PRIOR * expected) / (trees.outcomes[0, cell] + CELL_PRIOR)
    return own


@compiled
def accuracy_by_trees(trees: Trees, job: int) -> float:
    """Return the predicted accuracy of a forecast that was rated, in [0, 1]."""
    return min(max(forest_sum(trees.ratings, trees.rated[job]), 0.0), 1.0)


@compiled
def note_tree_run(trees: Trees, habits: Habits, job: int, run: int, forecast: int) -> int:
    """Learn of a finished job, ``forecast`` being the answer at its submission; return its run time."""
    twin = habits.keys[TWINS, job]
    own = habits.keys[USERS, job]
    trees.flying[own] -= 1
    length = log_of(run)
    _count(trees.sums[0, twin], length)
    _count(trees.sums[1, own], length)
    missed = 1.0 if run > trees.upper[job] else 0.0
    level = trees.level[0] + LEVEL_STEP * (missed - (1.0 - UPPER_SHARE))
    trees.level[0] = min(max(level, LEVELS_TAKEN[0]), LEVELS_TAKEN[1])
    trees.outcomes[0, trees.cell[job]] += 1.0
    trees.outcomes[1, trees.cell[job]] += min(run, forecast) / max(run, forecast)
    return run


@compiled
def _count(sums: npt.NDArray[np.float64], value: float) -> None:
    """Welford's running mean and sum of squared deviations."""
    sums[0] += 1.0
    away = value - sums[1]
    sums[1] += away / sums[0]
    sums[2] += away * (value - sums[1])
