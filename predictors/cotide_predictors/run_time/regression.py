"""Online l2-regularised polynomial regression of run times on the sixteen features of Table 4.1.

A baseline of the tree forecasts, cheap enough for every job of any log: a prediction or an update is one pass over 153
terms. Weights follow the normalised adaptive gradient of Ross, Mineiro and Langford (2013), which Naghshnejad 2019,
section 4.4.4 names. A term's step is divided by the largest size it has shown and by the root of its summed squared
gradients. Seconds, processors and counts may therefore keep their own units.

Loss: eq. 4.5 with both branches equal, as its text states, (f - p)^2. The printed factor lambda in front of both cannot
move the minimum. It is left to the penalty of eq. 4.4, here lambda sum (s_i w_i)^2 with s_i the size of term i.
Invariant: a prediction depends only on completions before it in the event order; one event at a time or all at once
give the same bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_predictors.run_time.heuristics import bounded
from cotide_predictors.run_time.history import Column, deviation
from cotide_predictors.run_time.jobs import Ints, JobTable

FEATURES: Final = (
    "reqTime",
    "last",
    "beflast",
    "beflast2",
    "lastcpu",
    "maxrt",
    "maxcpu",
    "tod1",
    "tod2",
    "dow1",
    "dow2",
    "meanrt",
    "stdrt",
    "meancpu",
    "stdcpu",
    "prevuser",
)
"""Naghshnejad 2019, Table 4.1, by its names; tod and dow are cosine and sine of the time of day and of the week."""
TERMS: Final = (len(FEATURES) + 1) * (len(FEATURES) + 2) // 2
"""Products of at most two features, the constant included: 153."""
LANES: Final = 4
"""Sums that run side by side in an inner product (chosen: the doubles of a 256-bit register)."""
PADDED: Final = -(-TERMS // LANES) * LANES
"""Terms and the zeros behind them that make whole lanes: 156."""
NOTHING: Final = 1e-300
"""Avoids 0 / 0 for a term that has always been 0."""
UNIT_SECONDS: Final = 3600.0
"""The gradient's steps are in units of the target; hours keep them near one (chosen)."""
DAY_SECONDS: Final = 86_400.0
WEEK_SECONDS: Final = 7 * DAY_SECONDS


def table_4_1(rows: Floats, jobs: JobTable) -> Floats:
    """Return (n, 16) features from the (n, WIDTH) snapshots of the users' histories; 0 where there is no such past.

    Times are in hours, processors in processors, the angles of day and week as cosine and sine.
    """
    day = 2 * np.pi * (jobs.submit_seconds % DAY_SECONDS) / DAY_SECONDS
    week = 2 * np.pi * (jobs.submit_seconds % WEEK_SECONDS) / WEEK_SECONDS
    hours = 1.0 / UNIT_SECONDS
    found = np.column_stack(
        [
            jobs.requested_seconds * hours,
            rows[:, Column.RUN] * hours,
            rows[:, Column.RUN + 1] * hours,
            rows[:, Column.RUN + 2] * hours,
            rows[:, Column.LAST_PROCESSORS],
            rows[:, Column.RUN_MAX] * hours,
            rows[:, Column.PROCESSORS_MAX],
            np.cos(day),
            np.sin(day),
            np.cos(week),
            np.sin(week),
            rows[:, Column.RUN_MEAN] * hours,
            deviation(rows, Column.RUN_SQUARES) * hours,
            rows[:, Column.PROCESSORS_MEAN],
            deviation(rows, Column.PROCESSORS_SQUARES),
            rows[:, Column.COUNT],
        ]
    )
    return np.where(np.isnan(found), 0.0, found)


class OnlineRegression:
    """Predicts at submissions, learns at completions.

    Parameters
    ----------
    rate : of the gradient. penalty : lambda. Defaults chosen on the KTH-SP2 and LLNL-Atlas logs.

    Attributes
    ----------
    state_ : (4, PADDED) weights, largest sizes of the terms, one over these (0 for 0), summed squared gradients.
    totals_ : completions learned from, and their summed squared normalised size.
    """

    def __init__(self, *, rate: float = 3.0, penalty: float = 1e-4) -> None:
        self.rate = rate
        self.penalty = penalty
        self.state_ = np.zeros((4, PADDED))
        self.totals_ = np.zeros(2)

    def walk(self, events: Ints, features: Floats, run_seconds: Floats, out: Floats) -> None:
        """Take events in order: write a submission's raw forecast (seconds) to ``out``, learn from a completion.

        Parameters
        ----------
        events : as in `jobs.event_order`, or any piece of it.
        features : (n, 16) as `table_4_1` gave them at submission. run_seconds : (n,) read for completions only.
        """
        knobs = np.array([self.rate, self.penalty])
        _walk(events, features, run_seconds, self.state_, self.totals_, knobs, out)


def regressed(events: Ints, features: Floats, run_seconds: Floats, requested_seconds: Floats) -> Floats:
    """Return (n,) forecasts of a whole log, between a second and the request."""
    out = np.empty(len(features))
    OnlineRegression().walk(events, features, run_seconds, out)
    return bounded(out, requested_seconds)


@compiled
def _terms(row: Floats, terms: Floats) -> None:
    """Write all products of at most two of the features; the padding of ``terms`` behind them stays."""
    terms[0] = 1.0
    index = 1
    for first in range(len(row)):
        terms[index] = row[first]
        index += 1
        for second in range(first, len(row)):
            terms[index] = row[first] * row[second]
            index += 1


@compiled
def _dot(left: Floats, right: Floats) -> float:
    """Return the inner product in four interleaved sums: their additions run independently, in a fixed order."""
    first = second = third = fourth = 0.0
    for index in range(0, len(left), LANES):
        first += left[index] * right[index]
        second += left[index + 1] * right[index + 1]
        third += left[index + 2] * right[index + 2]
        fourth += left[index + 3] * right[index + 3]
    return (first + second) + (third + fourth)


@compiled
def _grow(terms: Floats, weights: Floats, sizes: Floats, inverse: Floats) -> None:
    """Raise the sizes of terms larger than ever before, and lower their weights in proportion, as the paper does."""
    grown = False
    for index in range(len(terms)):
        grown |= abs(terms[index]) > sizes[index]
    if grown:
        for index in range(len(terms)):
            size = abs(terms[index])
            if size > sizes[index]:
                weights[index] *= sizes[index] / size
                sizes[index] = size
                inverse[index] = 1.0 / size


@compiled
def _descend(terms: Floats, weights: Floats, sizes: Floats, inverse: Floats, squares: Floats, steps: Floats) -> None:
    """Move every weight; ``steps`` holds the loss's slope, the step and twice the penalty.

    Without a branch it is vectorised; numba's ``/`` on two numbers hides one, its ``np.divide`` does not.
    """
    slope, step, penalty = steps[0], steps[1], steps[2]
    for index in range(len(terms)):
        gradient = slope * terms[index] + penalty * sizes[index] * sizes[index] * weights[index]
        squares[index] += gradient * gradient
        weights[index] -= np.divide(step * gradient * inverse[index], np.sqrt(squares[index] + NOTHING))


@compiled
def _walk(
    events: Ints, features: Floats, run: Floats, state: Floats, totals: Floats, knobs: Floats, out: Floats
) -> None:
    weights, sizes, inverse, squares = state[0], state[1], state[2], state[3]
    terms, scaled, steps = np.zeros(len(weights)), np.zeros(len(weights)), np.zeros(3)
    for event in events:
        job = event if event >= 0 else ~event
        _terms(features[job], terms)
        if event >= 0:
            out[job] = _dot(weights, terms) * UNIT_SECONDS
            continue
        _grow(terms, weights, sizes, inverse)
        for index in range(len(terms)):
            scaled[index] = terms[index] * inverse[index]
        totals[0] += 1.0
        totals[1] += _dot(scaled, scaled)
        steps[0] = 2.0 * (_dot(weights, terms) - run[job] / UNIT_SECONDS)
        steps[1] = knobs[0] * np.sqrt(totals[0] / totals[1])
        steps[2] = 2.0 * knobs[1]
        _descend(terms, weights, sizes, inverse, squares, steps)
