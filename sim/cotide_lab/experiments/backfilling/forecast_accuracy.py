"""Experiment forecast-accuracy: dependence of backfilling and plans on the accuracy of run times (Naghshnejad 2019,
Fig. 4.3).

Called by ``cotide experiment forecast-accuracy``. Every job's forecast is its run time off by one factor, so that its
accuracy (eq. 4.2) is the wanted one. Each job's forecast is too long or too short with even odds (the seed does not
describe its perturbation). A job that outlives its forecast counts with its request from then on. The draws are the
same for all policies and accuracies of a log. Each schedule passes the feasibility check, or the experiment stops.
Invariant: same logs and seed, same figures.
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
from cotide_lab.experiments.side_by_side import Watch, side_by_side
from cotide_lab.trace_replay.check import faults_of
from cotide_lab.trace_replay.metrics import bounded_slowdown
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

ACCURACIES: Final = (20, 40, 60, 80, 100)
"""Percent (Naghshnejad 2019, section 4.2.2)."""
CURVES: Final = {
    "fcfs": "FCFS", "easy-sjbf": "FCFS-SJF", "easy-svbf": "FCFS-SVF", "sjf": "Online-SJF",
    "svf": "Online-SVF",
}  # fmt: skip
"""Policies of Fig. 4.3 and the names they have there."""
BACKFILLING: Final = ("easy-sjbf", "easy-svbf")
PLANS: Final = ("sjf", "svf")
PAPER_PLANS_FROM: Final = 60
"""Least percent where plans outperform backfilling (Naghshnejad 2019, section 4.2.2)."""
PAPER_THRESHOLDS: Final = (40, 80)
"""Percent between which online-SVF becomes the best on all four of the seed's logs."""

Progress = Callable[[str, float], object]


@dataclass(frozen=True, slots=True)
class Point:
    """One replay: mean wait in seconds and mean bounded slowdown at an accuracy in percent."""

    policy: str
    accuracy: int
    wait_seconds: float
    bounded_slowdown: float


@dataclass(frozen=True, slots=True)
class LogCurves:
    """One log.

    Attributes
    ----------
    points : of every policy at every accuracy.
    plans_from : the least accuracy, percent; from there on a plan waits less than both kinds of backfilling. Or None.
    threshold : the least accuracy, percent; from there on online-SVF waits less than all others; None if it never does.
    spread : by policy, its largest mean wait over accuracies as a multiple of its least.
    """

    trace: str
    jobs: int
    points: tuple[Point, ...]
    plans_from: int | None
    threshold: int | None
    spread: dict[str, float]


@dataclass(frozen=True, slots=True)
class Report:
    """All logs, and the seed's statements that were not confirmed, in words."""

    logs: tuple[LogCurves, ...]
    missed: tuple[str, ...]


def perturbed(run: Integers, accuracy: int, seed: int) -> Integers:
    """Return (n,) forecasts, >= 1 s, of the given accuracy in percent, too long and too short with even odds."""
    longer = np.random.default_rng(seed).random(len(run)) < 0.5
    factor = np.where(longer, 100.0 / accuracy, accuracy / 100.0)
    return np.maximum(1, np.rint(run * factor)).astype(np.int64)


def run(
    logs: Sequence[BatchJobs],
    *,
    accuracies: Sequence[int] = ACCURACIES,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Replay every log under every policy at every accuracy.

    Parameters
    ----------
    seed : of the draws. workers : replays at a time. progress : called with the name of each replay and the finished
    share.
    """
    cells = [(jobs, policy, accuracy) for jobs in logs for policy in CURVES for accuracy in accuracies]
    names = [f"{Path(jobs.name).name}: {policy}, {accuracy} %" for jobs, policy, accuracy in cells]
    points = side_by_side([partial(_point, *cell, seed) for cell in cells], workers, names, progress)
    found = [_curves(jobs, [points[at] for at, cell in enumerate(cells) if cell[0] is jobs]) for jobs in logs]
    return Report(tuple(found), tuple(text for curves in found for text in _missed(curves)))


def _point(jobs: BatchJobs, policy: str, accuracy: int, seed: int, watch: Watch) -> Point:
    schedule = run_policy(jobs, POLICIES[policy], forecasts=perturbed(jobs.run, accuracy, seed), watch=watch)
    faults = faults_of(jobs, schedule)
    if faults:
        raise CotideError(f"the schedule of {policy} failed its check, please report this: {faults[0]}")
    wait, slowdown = (schedule.start - jobs.submit).mean(), bounded_slowdown(jobs, schedule.start).mean()
    return Point(policy, accuracy, float(wait), float(slowdown))


def _curves(jobs: BatchJobs, points: list[Point]) -> LogCurves:
    waits = {(point.policy, point.accuracy): point.wait_seconds for point in points}
    accuracies = sorted({point.accuracy for point in points})
    plans_from = threshold = None
    plans_first = svf_first = True
    for accuracy in reversed(accuracies):
        best = min(CURVES, key=lambda policy: waits[policy, accuracy])
        plans_first, svf_first = plans_first and best in PLANS, svf_first and best == "svf"
        plans_from = accuracy if plans_first else plans_from
        threshold = accuracy if svf_first else threshold
    spread = {}
    for policy in CURVES:
        of_policy = [waits[policy, accuracy] for accuracy in accuracies]
        spread[policy] = max(of_policy) / max(min(of_policy), 1e-9)
    return LogCurves(Path(jobs.name).name, len(jobs), tuple(points), plans_from, threshold, spread)


def _missed(curves: LogCurves) -> list[str]:
    """Return the seed's statements (section 4.2.2) that a log does not confirm."""
    out = []
    plans, backfilling = (min(curves.spread[name] for name in family) for family in (PLANS, BACKFILLING))
    if plans <= backfilling:
        out.append(
            f"{curves.trace}: plans are the more sensitive, but a plan's wait spreads by {plans:.2f} and "
            f"backfilling's by {backfilling:.2f}"
        )
    if curves.plans_from is None or curves.plans_from > PAPER_PLANS_FROM:
        when = "never" if curves.plans_from is None else f"only from {curves.plans_from} %"
        out.append(f"{curves.trace}: a plan waits less than backfilling from {PAPER_PLANS_FROM} %, but {when}")
    if curves.threshold is None or curves.threshold > PAPER_THRESHOLDS[1]:
        when = "never" if curves.threshold is None else f"only from {curves.threshold} %"
        out.append(f"{curves.trace}: svf waits least from {PAPER_THRESHOLDS[1]} % at the latest, but {when}")
    return out
