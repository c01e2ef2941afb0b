"""Online l2-regularised polynomial regression of run times on the sixteen features of Table 4.1.

A rival of the tree forecasts and cheap enough for every job of any log: a prediction or an update is one pass over 153
terms. Weights follow the normalised adaptive gradient of Ross, Mineiro and Langford (2013), which seed 002, section
4.4.4 names: a term's step is divided by the largest size it has shown and by the root of its summed squared gradients,
so that seconds, processors and counts may stand side by side in their own units.

Loss: eq. 4.5 with both branches equal, as its text says, (f - p)^2; the printed factor lambda in front of both can't
change where its minimum lies and is left to the penalty of eq. 4.4, here lambda sum (s_i w_i)^2 with s_i the size of
term i. Invariant: a prediction depends on completions that stood before it in the event order and on nothing else; one
event at a time or all at once give the same bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.compiled import compiled
from cotide_predictors.run_time.heuristics import bounded
from cotide_predictors.run_time.history import Column, deviation
from cotide_predictors.run_time.jobs import Floats, Ints, JobTable

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
"""Seed 002, Table 4.1, by its names; tod and dow are cosine and sine of the time of day and of the week."""
TERMS: Final = (len(FEATURES) + 1) * (len(FEATURES) + 2) // 2
"""Products of at most two features, the constant included: 153."""
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
    weights_, sizes_, squares_ : (TERMS,) weights, largest sizes and summed squared gradients of the terms.
    totals_ : completions learned from, and their summed squared normalised size.
    """

    def __init__(self, *, rate: float = 3.0, penalty: float = 1e-4) -> None:
        self.rate = rate
        self.penalty = penalty
        self.weights_ = np.zeros(TERMS)
        self.sizes_ = np.zeros(TERMS)
        self.squares_ = np.zeros(TERMS)
        self.totals_ = np.zeros(2)

    def walk(self, events: Ints, features: Floats, run_seconds: Floats, out: Floats) -> None:
        """Take events in order: write a submission's raw forecast (seconds) to ``out``, learn from a completion.

        Parameters
        ----------
        events : as in `jobs.event_order`, or any piece of it.
        features : (n, 16) as `table_4_1` gave them at submission. run_seconds : (n,) read for completions only.
        """
        _walk(
            events,
            features,
            run_seconds,
            self.weights_,
            self.sizes_,
            self.squares_,
            self.totals_,
            self.rate,
            self.penalty,
            out,
        )


def regressed(events: Ints, features: Floats, run_seconds: Floats, requested_seconds: Floats) -> Floats:
    """Return (n,) forecasts of a whole log, between a second and the request."""
    out = np.empty(len(features))
    OnlineRegression().walk(events, features, run_seconds, out)
    return bounded(out, requested_seconds)


@compiled
def _terms(row: Floats, terms: Floats) -> None:
    """Write all products of at most two of the features."""
    terms[0] = 1.0
    place = 1
    for first in range(len(row)):
        terms[place] = row[first]
        place += 1
        for second in range(first, len(row)):
            terms[place] = row[first] * row[second]
            place += 1


@compiled
def _walk(
    events: Ints,
    features: Floats,
    run: Floats,
    weights: Floats,
    sizes: Floats,
    squares: Floats,
    totals: Floats,
    rate: float,
    penalty: float,
    out: Floats,
) -> None:
    count = len(weights)
    terms = np.empty(count)
    for event in events:
        job = event if event >= 0 else ~event
        _terms(features[job], terms)
        if event >= 0:
            forecast = 0.0
            for place in range(count):
                forecast += weights[place] * terms[place]
            out[job] = forecast * UNIT_SECONDS
            continue
        forecast = 0.0
        spread = 0.0
        for place in range(count):
            size = abs(terms[place])
            if size > sizes[place]:
                weights[place] *= sizes[place] / size
                sizes[place] = size
            if sizes[place] > 0.0:
                spread += (size / sizes[place]) ** 2
            forecast += weights[place] * terms[place]
        totals[0] += 1.0
        totals[1] += spread
        slope = 2.0 * (forecast - run[job] / UNIT_SECONDS)
        step = rate * np.sqrt(totals[0] / totals[1])
        for place in range(count):
            size = sizes[place]
            if size > 0.0:
                gradient = slope * terms[place] + 2.0 * penalty * size * size * weights[place]
                squares[place] += gradient * gradient
                if squares[place] > 0.0:
                    weights[place] -= step * gradient / (size * np.sqrt(squares[place]))
