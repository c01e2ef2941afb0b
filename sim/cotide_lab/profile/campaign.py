"""An active campaign: window after window until every cell is known, too harmful, or the time is over.

Called by `profile_command`. The flow of each window: `next_cell` -> jobs next to the service -> load -> journal.
Invariant: a measurement is in the journal before the next window begins; after a stop, a campaign continues where it
was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cotide_core.errors import ClusterError
from cotide_lab.predictors.profiling.design import Mix, next_cell, windows_left
from cotide_lab.predictors.profiling.findings import by_cell
from cotide_lab.predictors.profiling.windows import Window
from cotide_lab.profile.journal import Journal
from cotide_lab.profile.meters import Reading
from cotide_lab.profile.plan import BatchJob


class Jobs(Protocol):
    """Jobs that are kept running (`RunningMix`, `PodMix`)."""

    fault: str

    def mark(self) -> None:
        """Begin the window."""

    def take(self) -> tuple[tuple[tuple[str, float], ...], float]:
        """Return the jobs that ended in it with their seconds, and their cpu seconds."""

    def failed(self) -> tuple[tuple[str, int], ...]:
        """Return how many jobs of each name failed in it."""


class Machine(Protocol):
    """The machine of the jobs (`LocalMachine`, `ClusterMachine`)."""

    def running(self, mix: Mix, jobs: Sequence[BatchJob]) -> AbstractContextManager[Jobs]:
        """Keep a mix running inside the context."""


class Meter(Protocol):
    """Makes load and measures (`LoadCommand`)."""

    def measure(self, rate: float, warm_up: float, seconds: float, harm_milliseconds: float, seed: int) -> Reading:
        """Measure one window."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits that end a campaign early.

    Attributes
    ----------
    seconds : wall time of this run.
    harm_seconds : time in windows with a p95 above the limit, over all runs.
    """

    seconds: float
    harm_seconds: float


def run_campaign(
    journal: Journal, machine: Machine, meter: Meter, budget: Budget, progress: Callable[[str, float], object]
) -> str:
    """Measure until every cell is done; return why it ended early, or an empty string.

    Raises
    ------
    InputError, ClusterError
        When a job or the load fails: a disturbed window is not kept.
    """
    plan = journal.plan
    cells, deadline = plan.cells(), time.monotonic() + budget.seconds
    while (cell := next_cell(cells, by_cell(journal.windows), plan.rule, plan.seed)) is not None:
        left = windows_left(cells, by_cell(journal.windows), plan.rule)
        done = len(journal.windows)
        progress(f"window {done + 1}, {left} left at least: {cell.rate:g}/s, {cell.named()}", done / (done + left))
        if time.monotonic() > deadline:
            return f"the time is over; {left} windows are left at least"
        if harm_seconds(journal) > budget.harm_seconds:
            return f"the service was over its limit for {harm_seconds(journal):.0f} s, more than was allowed"
        with machine.running(cell.mix, plan.jobs) as jobs:
            jobs.mark()
            began = time.monotonic()
            reading = meter.measure(
                cell.rate, plan.warm_up_seconds, plan.window_seconds, plan.rule.harm_milliseconds, plan.seed + done
            )
            lasted = time.monotonic() - began
            ended, cpu_seconds = jobs.take()
            failed = jobs.failed()
            fault = jobs.fault
        if fault:
            raise ClusterError(fault)
        journal.add(
            Window(
                cell=cell,
                p95_milliseconds=reading.p95_milliseconds,
                achieved_rate=reading.achieved_rate,
                requests=reading.requests,
                seconds=reading.seconds,
                cut=reading.cut,
                lag_milliseconds=reading.lag_milliseconds,
                job_seconds=ended,
                # Jobs run through connecting and warm-up, too.
                job_core_seconds=cpu_seconds * reading.seconds / max(lasted, reading.seconds),
                failed_jobs=failed,
                kernel_share=reading.kernel_share,
                reading_lag_milliseconds=reading.reading_lag_milliseconds,
                at_seconds=time.time(),
            )
        )
    return ""


def harm_seconds(journal: Journal) -> float:
    """Return the total seconds of windows with a p95 above the limit."""
    limit = journal.plan.limit_milliseconds
    return sum(window.seconds for window in journal.windows if window.p95_milliseconds > limit)
