"""Experiment known-run-times: without known run times, does the hybrid platform lose by its order or by its lengths?

Called by ``cotide experiment known-run-times``. A forecast has two uses there. Its point orders the jobs. Its upper end
is the planned length of a job: it decides the jobs that fit before a reservation, and the wait after which a job gets
its own reservation. Each log is replayed with either of them learned or true, and all jobs count as predictable, so
that nothing else differs. The learned forecasts are those of ``hybrid`` in its own replay. The reference is the gap in
mean bounded slowdown between EASY and the better plan with all run times known. The closed share of this gap shows the
possible gain of better forecasts, and the limit of any order. Invariant: same logs, same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import CotideError
from cotide_core.kernels.array_types import Integers
from cotide_lab.experiments.backfilling.reliable_share import PLANS, PLATFORM, closed_share
from cotide_lab.experiments.side_by_side import Watch, side_by_side
from cotide_lab.trace_replay.metrics import bounded_slowdown
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import GivenForecasts, run_policy
from cotide_predictors.one_thread import on_one_thread
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

KNOWN: Final = ("nothing", "order", "lengths", "both")
"""The true parts of the forecasts; the rest is learned."""

Progress = Callable[[str, float], object]


@dataclass(frozen=True, slots=True)
class KnownRow:
    """One replay.

    Attributes
    ----------
    known : one of `KNOWN`, or ``hybrid`` for the platform as it is.
    wait_seconds, wait_p99, wait_longest, bounded_slowdown : means, and the ends of the waits in seconds.
    gap_closed : share of the gap between EASY and the better plan that knows all; None where there is none.
    """

    known: str
    wait_seconds: float
    wait_p99: float
    wait_longest: int
    bounded_slowdown: float
    gap_closed: float | None


@dataclass(frozen=True, slots=True)
class KnownResult:
    """One log; its rows are the platform as it is and one of each of `KNOWN`."""

    trace: str
    jobs: int
    easy_slowdown: float
    plan_slowdown: float
    rows: tuple[KnownRow, ...]


@on_one_thread
def run(logs: Sequence[BatchJobs], *, workers: int = 1, progress: Progress | None = None) -> list[KnownResult]:
    """Replay every log with the known and the learned run times.

    Parameters
    ----------
    workers : logs at a time; kernels hold no interpreter lock, so threads do.
    progress : called with the name of each replay and the finished share.
    """
    names = [Path(jobs.name).name for jobs in logs]
    return side_by_side([partial(_result, jobs) for jobs in logs], workers, names, progress)


def forecasts_knowing(known: str, jobs: BatchJobs, point: Integers, upper: Integers) -> GivenForecasts:
    """Return learned forecasts with the run time in place of the known part, all of them reliable."""
    return GivenForecasts(
        point=jobs.run if known in ("order", "both") else point,
        upper=jobs.run if known in ("lengths", "both") else upper,
        predictable=np.ones_like(jobs.run),
    )


def _result(jobs: BatchJobs, watch: Watch) -> KnownResult:
    easy = _slowdown(jobs, run_policy(jobs, POLICIES["easy"], watch=watch).start)
    plan = min(_slowdown(jobs, run_policy(jobs, POLICIES[name], "clairvoyant", watch=watch).start) for name in PLANS)
    learned = run_policy(jobs, POLICIES[PLATFORM], watch=watch)
    if learned.upper is None:
        raise CotideError("the platform learned no upper forecasts, please report this")
    starts = {PLATFORM: learned.start}
    for known in KNOWN:
        given = forecasts_knowing(known, jobs, learned.forecast, learned.upper)
        starts[known] = run_policy(jobs, POLICIES[PLATFORM], forecasts=given, watch=watch).start
    rows = tuple(_row(known, jobs, start, easy, plan) for known, start in starts.items())
    return KnownResult(Path(jobs.name).name, len(jobs), easy, plan, rows)


def _row(known: str, jobs: BatchJobs, start: Integers, easy: float, plan: float) -> KnownRow:
    wait, slowdown = start - jobs.submit, _slowdown(jobs, start)
    return KnownRow(
        known=known,
        wait_seconds=float(wait.mean()),
        wait_p99=float(np.quantile(wait, 0.99)),
        wait_longest=int(wait.max()),
        bounded_slowdown=slowdown,
        gap_closed=closed_share(easy, plan, slowdown),
    )


def _slowdown(jobs: BatchJobs, start: Integers) -> float:
    return float(bounded_slowdown(jobs, start).mean())
