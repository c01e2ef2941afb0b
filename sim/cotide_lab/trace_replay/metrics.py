"""The figures of a schedule, and intervals for them over resampled weeks.

Called by `cotide simulate`, the report and the benchmarks. Step after the schedule. Pure. Invariant: the same jobs,
starts and seed give the same figures; all policies of one log are resampled with the same weeks, so their
differences are paired.

Definitions (Naghshnejad 2019, section 4.5.2): wait = start - submit; bounded slowdown = max(1, (wait + run) / max(run,
tau)) with tau = 10 s (eq. 4.6); response = wait + run; stretch = response / run; utilisation = processor seconds used /
(processors x time from the first submission to the last end).

Jobs of a week wait together, so the weeks of a log are drawn with replacement, not its jobs: a percentile interval over
`RESAMPLES` draws. A job belongs to the week it was submitted in; use of processors to the week it took place in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

TAU_SECONDS: Final = 10
"""Threshold of the bounded slowdown (Naghshnejad 2019, eq. 4.6)."""
WEEK_SECONDS: Final = 7 * 86_400
RESAMPLES: Final = 2000
"""Draws of weeks; chosen, the ends of a 95 % interval then rest on 50 draws each."""
WEEKS_MIN: Final = 4
WEEKS_MAX: Final = 5_000
"""Fewer or more weeks give no interval; chosen. The draws of so many, 96 years, take 160 MB; one slip in a column of
times makes millions of weeks."""
NO_INTERVAL: Final = f"Means; an interval takes {WEEKS_MIN} to {WEEKS_MAX:,} weeks."

METRICS: Final = (
    "wait_seconds_mean", "bounded_slowdown_mean", "stretch_mean", "response_seconds_mean", "utilisation",
)  # fmt: skip
"""Names of the figures, in the order of tables."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, with the ends of its 95 % interval or None where there are too few weeks, or too many."""

    value: float
    low: float | None
    high: float | None


def bounded_slowdown(jobs: BatchJobs, start: Integers) -> Floats:
    """Return each job's bounded slowdown, >= 1 (Naghshnejad 2019, eq. 4.6)."""
    slowdown: Floats = np.maximum(1.0, (start - jobs.submit + jobs.run) / np.maximum(jobs.run, TAU_SECONDS))
    return slowdown


def figures_of(jobs: BatchJobs, start: Integers, *, seed: int = 0) -> dict[str, Figure]:
    """Return the figures of a schedule by the names of `METRICS`.

    Parameters
    ----------
    start : (n,) start times, seconds.
    seed : of the draws of weeks.
    """
    wait = (start - jobs.submit).astype(np.float64)
    columns = {
        "wait_seconds_mean": wait,
        "bounded_slowdown_mean": bounded_slowdown(jobs, start),
        "stretch_mean": (wait + jobs.run) / jobs.run,
        "response_seconds_mean": wait + jobs.run,
    }
    week = (jobs.submit - jobs.submit[0]) // WEEK_SECONDS
    jobs_of_week = np.bincount(week).astype(np.float64)
    sums: dict[str, tuple[Floats, Floats]] = {
        name: (np.bincount(week, values).astype(np.float64), jobs_of_week) for name, values in columns.items()
    }
    edges, used = use_by_week(jobs, start)
    sums["utilisation"] = (used, np.diff(edges) * float(jobs.processors))
    figures = {name: _ratio(*sums[name], seed=seed) for name in METRICS}
    if edges[1] - edges[0] > WEEK_SECONDS:
        figures["utilisation"] = Figure(figures["utilisation"].value, None, None)
    return figures


def use_by_week(jobs: BatchJobs, start: Integers) -> tuple[Integers, Floats]:
    """Return the (k + 1,) edges of the weeks from first submission to last end, and the processor seconds of each.

    Of more than `WEEKS_MAX` weeks so many are taken together that no more parts are left.
    """
    begin, end = int(jobs.submit[0]), int((start + jobs.run).max())
    together = max(1, -(-(end - begin) // (WEEK_SECONDS * WEEKS_MAX)))
    edges = np.append(np.arange(begin, end, WEEK_SECONDS * together, dtype=np.int64), np.int64(end))
    return edges, np.diff(used_until(jobs, start, edges))


def used_until(jobs: BatchJobs, start: Integers, times: Integers) -> Floats:
    """Return the processor seconds used up to each time."""
    return _area(start, jobs.demand, times) - _area(start + jobs.run, jobs.demand, times)


def waiting_by_time(jobs: BatchJobs, start: Integers, edges: Integers) -> Floats:
    """Return the (k,) mean number of jobs that waited between each two of (k + 1,) rising times."""
    ones = np.ones(len(jobs), dtype=np.int64)
    waited = _area(jobs.submit, ones, edges) - _area(start, ones, edges)
    means: Floats = np.diff(waited) / np.diff(edges)
    return means


def _area(begin: Integers, demand: Integers, times: Integers) -> Floats:
    """Return the processor seconds up to each time if every job held its processors from its begin for ever."""
    order = np.argsort(begin, kind="stable")
    index = np.searchsorted(begin[order], times, side="right")
    held = np.concatenate([[0], np.cumsum(demand[order])])[index]
    offset = np.concatenate([[0], np.cumsum(demand[order] * begin[order])])[index]
    area: Floats = (held * times - offset).astype(np.float64)
    return area


def _ratio(above: Floats, below: Floats, *, seed: int) -> Figure:
    """Return sum(above) / sum(below), with its interval over resampled weeks."""
    value = float(above.sum() / below.sum())
    weeks = len(below)
    if not WEEKS_MIN <= weeks <= WEEKS_MAX:
        return Figure(value, None, None)
    draws = np.random.default_rng(seed).multinomial(weeks, np.full(weeks, 1.0 / weeks), size=RESAMPLES)
    total = draws @ below
    ratios = (draws @ above)[total > 0] / total[total > 0]
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Figure(value, float(low), float(high))
