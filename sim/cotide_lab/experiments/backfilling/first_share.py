"""Experiment first-share: does the hybrid platform's initial share of the processors matter?

Called by ``cotide experiment first-share``: the average wait of every log under each first alpha (Naghshnejad 2019,
Fig. 4.13, which chooses 0.6 by it). There alpha is multiplied by a ratio of at most 1 at each step. Here it follows the
demand of recent jobs, so that its initial value soon loses its effect. Invariant: same logs, same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from cotide_core.kernels.machine_platform import FIRST_SHARE
from cotide_lab.experiments.side_by_side import Watch, side_by_side
from cotide_lab.trace_replay.kernels.platform import PlatformSettings
from cotide_lab.trace_replay.metrics import bounded_slowdown
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import run_policy
from cotide_predictors.one_thread import on_one_thread
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

SHARES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, FIRST_SHARE, 0.7, 0.8, 0.9, 1.0)

Progress = Callable[[str, float], object]


@dataclass(frozen=True, slots=True)
class ShareResult:
    """One log: mean wait in seconds and mean bounded slowdown, by first share."""

    trace: str
    jobs: int
    wait_seconds: dict[float, float]
    slowdown: dict[float, float]

    @property
    def best(self) -> float:
        """Return the first share of the least wait."""
        return min(self.wait_seconds, key=lambda share: (self.wait_seconds[share], share))

    @property
    def spread(self) -> float:
        """Return the relative distance of the longest mean wait above the least."""
        waits = self.wait_seconds.values()
        return max(waits) / max(min(waits), 1e-9) - 1.0


@on_one_thread
def run(
    logs: Sequence[BatchJobs],
    *,
    shares: Sequence[float] = SHARES,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[ShareResult]:
    """Replay every log under ``hybrid`` with every first share.

    Parameters
    ----------
    shares : above 0, at most 1. workers : replays at a time; kernels hold no interpreter lock, so threads do.
    progress : called with the name of each replay and the finished share.
    """
    cells = [(jobs, share) for jobs in logs for share in shares]
    names = [Path(jobs.name).name for jobs, _ in cells]
    figures = side_by_side([partial(_figures, *cell) for cell in cells], workers, names, progress)
    width = len(shares)
    found = []
    for at, jobs in enumerate(logs):
        own = dict(zip(shares, figures[at * width : (at + 1) * width], strict=True))
        waits = {share: wait for share, (wait, _) in own.items()}
        slowdowns = {share: slowdown for share, (_, slowdown) in own.items()}
        found.append(ShareResult(Path(jobs.name).name, len(jobs), waits, slowdowns))
    return found


def _figures(jobs: BatchJobs, share: float, watch: Watch) -> tuple[float, float]:
    policy = replace(POLICIES["hybrid"], platform=PlatformSettings(first_share=share))
    start = run_policy(jobs, policy, watch=watch).start
    return float((start - jobs.submit).mean()), float(bounded_slowdown(jobs, start).mean())
