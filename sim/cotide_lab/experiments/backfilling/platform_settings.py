"""Experiment platform-settings: are the hybrid platform's settings good in general, or only on the logs of their
choice?

Called by ``cotide experiment platform-settings``. Every log is replayed under every one of `CANDIDATES`; then, for each
log in turn, the settings that are best on the *others* are judged on it. A figure is a share of EASY's: mean wait and
mean bounded slowdown, each divided by that of EASY with the users' requests. Settings are chosen by the geometric mean
of both over the other logs. Logs without waiting jobs under EASY choose nothing. Invariant: same logs, same figures.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from cotide_core.errors import InputError
from cotide_lab.experiments.backfilling.reliable_share import LEAST_SLOWDOWN
from cotide_lab.experiments.side_by_side import Watch, side_by_side
from cotide_lab.trace_replay.kernels.platform import PlatformSettings
from cotide_lab.trace_replay.kernels.replay_state import NEVER
from cotide_lab.trace_replay.metrics import bounded_slowdown
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import run_policy
from cotide_predictors.one_thread import on_one_thread
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

DAY_SECONDS: Final = 86_400
PATIENCES: Final = ((2, 5), (3, 10), (5, 20), (10, 10), (10, 40))
LONGEST_DAYS: Final = (3, 10, None)
MOST_RESERVED: Final = (1, 2, 4)
CANDIDATES: Final = tuple(
    PlatformSettings(patience, NEVER if days is None else days * DAY_SECONDS, reserved)
    for patience, reserved, days in itertools.product(PATIENCES, MOST_RESERVED, LONGEST_DAYS)
)
"""Settings around the engine's, which are included (chosen)."""
SHIPPED: Final = PlatformSettings()

Progress = Callable[[str, float], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replay as shares of EASY's figures; the longest wait, too."""

    wait: float
    bounded_slowdown: float
    longest_wait: float


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One log.

    Attributes
    ----------
    easy_slowdown : mean bounded slowdown of EASY, the base of the shares.
    chosen : the best settings on the other logs. there : their outcome on this one.
    shipped : outcome of the engine's settings. best : outcome of the best settings for this very log, unknowable in
    advance.
    """

    trace: str
    easy_slowdown: float
    chosen: PlatformSettings
    there: Outcome
    shipped: Outcome
    best: Outcome


@dataclass(frozen=True, slots=True)
class Report:
    """All logs, and the settings that are best on all of them together."""

    logs: tuple[HeldOut, ...]
    best_on_all: PlatformSettings


@on_one_thread
def run(
    logs: Sequence[BatchJobs],
    *,
    candidates: Sequence[PlatformSettings] = CANDIDATES,
    workers: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Replay every log under EASY and every candidate, and choose for each log by the others.

    Parameters
    ----------
    candidates : `SHIPPED` is added where it is not among them.
    workers : replays at a time; kernels hold no interpreter lock, so threads do.
    progress : called with the name of each replay and the finished share.

    Raises
    ------
    InputError
        When fewer than two logs have a queue under EASY: then no log is left for the choice.
    """
    tried = tuple(candidates) if SHIPPED in candidates else (*candidates, SHIPPED)
    cells = [(jobs, settings) for jobs in logs for settings in (None, *tried)]
    names = [Path(jobs.name).name for jobs, _ in cells]
    figures = side_by_side([partial(_figures, *cell) for cell in cells], workers, names, progress)
    width = len(tried) + 1
    easy = figures[::width]
    shares = [
        [_outcome(found, easy[at]) for found in figures[at * width + 1 : (at + 1) * width]] for at in range(len(logs))
    ]
    queued = [at for at in range(len(logs)) if easy[at][1] >= LEAST_SLOWDOWN]
    if len(queued) < 2:
        raise InputError("at least two logs must have a queue under easy, to choose on one and judge on another")
    shipped = tried.index(SHIPPED)
    held_out = []
    for at, jobs in enumerate(logs):
        chosen = _best(shares, [other for other in queued if other != at])
        held_out.append(
            HeldOut(
                trace=Path(jobs.name).name,
                easy_slowdown=easy[at][1],
                chosen=tried[chosen],
                there=shares[at][chosen],
                shipped=shares[at][shipped],
                best=shares[at][_best(shares, [at])],
            )
        )
    return Report(tuple(held_out), tried[_best(shares, queued)])


def _figures(jobs: BatchJobs, settings: PlatformSettings | None, watch: Watch) -> tuple[float, float, int]:
    """Return mean wait, mean bounded slowdown and longest wait; of EASY without settings."""
    policy = POLICIES["easy"] if settings is None else replace(POLICIES["hybrid"], platform=settings)
    start = run_policy(jobs, policy, watch=watch).start
    wait = start - jobs.submit
    return float(wait.mean()), float(bounded_slowdown(jobs, start).mean()), int(wait.max())


def _outcome(found: tuple[float, float, int], easy: tuple[float, float, int]) -> Outcome:
    return Outcome(*(ours / max(theirs, 1e-9) for ours, theirs in zip(found, easy, strict=True)))


def _best(shares: Sequence[Sequence[Outcome]], logs: Sequence[int]) -> int:
    """Return the index of the candidate with the least geometric mean of wait and slowdown over some logs."""

    def badness(candidate: int) -> float:
        return sum(
            math.log(max(shares[at][candidate].wait, 1e-9)) + math.log(shares[at][candidate].bounded_slowdown)
            for at in logs
        )

    return min(range(len(shares[0])), key=badness)
