"""Models rebuilt every 24 simulated hours on completed jobs, and their forecasts in between.

Called by experiments and by trace replay, for the run-time distributions and for their reliability. Naghshnejad 2019,
section 4.4.4: the model is rebuilt every 24 hours. Invariant: a model learns from jobs that finished before its
rebuild, and answers for jobs submitted from then until the next. A run time that is not over therefore cannot move a
forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.run_time.hazard import HazardTrees
from cotide_predictors.run_time.distributions import Distributions
from cotide_predictors.run_time.jobs import Ints, RunLog
from cotide_predictors.run_time.tree_features import DAY_SECONDS, TreeFeatures

RECENT_JOBS: Final = 4000
"""Latest completed jobs that every model learns from: habits change within weeks (chosen on KTH-SP2 and LLNL-Atlas)."""
OLDER_JOBS: Final = 4000
"""Drawn from all jobs completed before those: jobs that are rare at present stay known (chosen on the same logs)."""
LEAST_JOBS: Final = 100
"""Fewest completed jobs for a model (chosen)."""

Progress = Callable[[float], object]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """One rebuild: when, the completed jobs to learn from (oldest completion first), the submissions to answer for."""

    at_seconds: float
    learned: Ints
    answered: slice


def rebuilds(
    log: RunLog,
    *,
    every_seconds: float = DAY_SECONDS,
    recent: int = RECENT_JOBS,
    older: int = OLDER_JOBS,
    random_state: int = 0,
) -> Iterator[Rebuild]:
    """Yield the rebuilds of a log in time; periods without a submission and times before `LEAST_JOBS` are left out."""
    submit = log.jobs.submit_seconds
    order = np.argsort(log.finish_seconds, kind="stable")
    finished = log.finish_seconds[order]
    at = float(submit[0]) if len(submit) else 0.0
    number = 0
    while len(submit) and at <= submit[-1]:
        first, last = np.searchsorted(submit, [at, at + every_seconds], side="left")
        over = int(np.searchsorted(finished, at, side="left"))
        if last > first and over >= LEAST_JOBS:
            learned = order[chosen(over, number, recent=recent, older=older, random_state=random_state)]
            yield Rebuild(at, learned, slice(int(first), int(last)))
        at += every_seconds
        number += 1


def chosen(over: int, number: int, *, recent: int, older: int, random_state: int) -> Ints:
    """Return which of ``over`` completed jobs, oldest first, the rebuild of period ``number`` learns from."""
    cut = max(over - recent, 0)
    generator = np.random.default_rng((random_state, number))
    drawn = np.sort(generator.choice(cut, min(older, cut), replace=False))
    return np.concatenate([drawn, np.arange(cut, over)]).astype(np.int64)


def rolling_distributions(
    log: RunLog,
    features: TreeFeatures,
    *,
    model: HazardTrees | None = None,
    every_seconds: float = DAY_SECONDS,
    progress: Progress | None = None,
) -> Distributions:
    """Return the distributions of all jobs of a log, each as forecast at its submission.

    Jobs that come before the first model get a distribution that is even over the log of seconds up to the request.

    Parameters
    ----------
    model : refitted in place at every rebuild; its parameters stay, earlier training is discarded.
    progress : called with the share of submissions answered after every rebuild.
    """
    trees = HazardTrees() if model is None else model
    edges = trees.edges()
    masses = ignorant_masses(edges, log.jobs.requested_seconds)
    for rebuild in rebuilds(log, every_seconds=every_seconds, random_state=trees.random_state):
        trees.fit(features.rows(rebuild.learned), log.run_seconds[rebuild.learned])
        masses[rebuild.answered] = trees.predict(features.rows(rebuild.answered)).masses
        if progress is not None:
            progress(rebuild.answered.stop / len(log))
    return Distributions(edges, masses)


def ignorant_masses(edges: Floats, requested_seconds: Floats) -> Floats:
    """Return (n, K) masses that are even over log seconds up to the request: the forecast before the first model."""
    limit = np.log(np.where(requested_seconds > 1.0, requested_seconds, np.exp(edges[-1])))
    width = edges[1] - edges[0]
    inside = np.clip((limit[:, None] - edges[:-1]) / width, 0.0, 1.0)
    inside[:, 0] = np.maximum(inside[:, 0], 1e-9)
    found: Floats = inside / inside.sum(axis=1, keepdims=True)
    return found
