"""Experiment reliable-share: the hybrid platform beside pure backfilling and pure plans (Naghshnejad 2019, section
4.5).

Called by ``cotide experiment reliable-share``. Each log is replayed under the platform and under every rival with every
source of run times, each source learning from that replay's own completions; the platform has one configuration for all
logs. Each schedule passes the feasibility check, or the experiment stops. Invariant: same logs and seed, same figures,
whatever the number of workers; ``wall_seconds`` alone is measured.

What is judged (issue 4): on three of five logs the platform is below *every* rival in mean wait and in mean bounded
slowdown; and it closes on average at least 80 % of the gap between EASY and shortest-job backfill that knows all run
times, in bounded slowdown. A log whose gap is below `LEAST_GAP` of EASY's figure has none to close and is left out of
that mean. The seed's own statements compare the platform with its rivals on the same forecasts; they are shown beside
ours, not judged, since three of its four logs are other logs or other years.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import CotideError
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.run_time.scores import accuracy
from cotide_sim.experiments.side_by_side import Watch, side_by_side
from cotide_sim.trace_replay.check import faults_of
from cotide_sim.trace_replay.metrics import Figure, figures_of
from cotide_sim.trace_replay.policies import POLICIES
from cotide_sim.trace_replay.runner import Reliability, Runtime, run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

PLATFORM: Final = "hybrid"
BY_TREES: Final[tuple[tuple[Runtime, Reliability], ...]] = (
    ("learned", "trees"),
    ("trees", "mixture"),
    ("trees", "trees"),
)
"""Forecasts and reliability of the platform's further rows, where asked for; the first row has learned and mixture."""
BACKFILLING: Final = ("easy", "easy-sjbf", "easy-svbf", "conservative", "slack")
"""Pure backfilling; easy-sjbf and easy-svbf are the seed's FCFS-BF1 and FCFS-BF2 (section 4.5.2)."""
PLANS: Final = ("sjf", "svf")
"""Pure plans, the seed's Plan-based1 and Plan-based2."""
SOURCES: Final[tuple[Runtime, ...]] = ("request", "last-two", "learned")
FAMILIES: Final = {"backfilling": BACKFILLING, "plans": PLANS}
MEASURES: Final = ("wait_seconds", "bounded_slowdown")
LOGS_WON_SHARE: Final = 0.6
"""Three of five (issue 4)."""
GAP_CLOSED: Final = 0.8
"""Mean share of the gap (issue 4)."""
LEAST_GAP: Final = 0.01
"""Of EASY's bounded slowdown (chosen: less is a few jobs more or less)."""
PAPER_LOWER: Final = {"wait_seconds": 0.2, "bounded_slowdown": 0.5}
"""By how much the seed's platform is below its rivals (section 4.5.2: "about 20%", "more than 50%")."""
PAPER_TABLE_4_3: Final = {
    "SDSC": {"backfilling": 50.0, "plans": 45.0, "platform": 25.0},
    "ANL": {"backfilling": 24.0, "plans": 22.0, "platform": 12.0},
}
"""Bounded slowdown without clairvoyance (Naghshnejad 2019, Table 4.3)."""

Progress = Callable[[str, float], object]


@dataclass(frozen=True, slots=True)
class Row:
    """One replay.

    Attributes
    ----------
    accuracy : mean of eq. 4.2 over all jobs, of the forecasts that this schedule was made with.
    wait_interval, slowdown_interval : ends of 95 % intervals over drawn weeks, or None for too few weeks.
    """

    policy: str
    source: str
    accuracy: float
    wait_seconds: float
    wait_interval: tuple[float, float] | None
    bounded_slowdown: float
    slowdown_interval: tuple[float, float] | None
    utilisation: float
    longest_wait_seconds: int
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class LogResult:
    """One log.

    Attributes
    ----------
    rows : all replays, the platform's first.
    best : by family and measure, the row of the least.
    lower : by family and measure, by what share of that least the platform is below it; negative where it is above.
    wins : whether the platform is below every rival in both measures.
    gap : EASY's bounded slowdown less that of clairvoyant shortest-job backfill, as a share of EASY's.
    gap_closed : share of it that the platform closes; None where the gap is below `LEAST_GAP`.
    """

    trace: str
    jobs: int
    processors: int
    rows: tuple[Row, ...]
    best: dict[str, dict[str, Row]]
    lower: dict[str, dict[str, float]]
    wins: bool
    gap: float
    gap_closed: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """All logs, means over them, and what was missed, in words."""

    logs: tuple[LogResult, ...]
    mean_lower: dict[str, dict[str, float]]
    mean_gap_closed: float | None
    missed: tuple[str, ...]


@on_one_thread
def run(
    logs: Sequence[BatchJobs],
    *,
    trees: bool = False,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Replay every log under the platform and its rivals.

    Parameters
    ----------
    trees : also replay the platform on boosted trees, which takes minutes a log; judged is the first row alone.
    seed : of the drawn weeks and of the trees.
    workers : replays at a time; kernels hold no interpreter lock, so threads do.
    progress : told what was replayed and the share that is done.
    """
    cells = [(jobs, *cell) for jobs in logs for cell in _cells(trees)]

    def told(place: int, done: int) -> None:
        jobs, policy, source, _ = cells[place]
        if progress is not None:
            progress(f"{Path(jobs.name).name}: {policy}, {source}", done / len(cells))

    rows = side_by_side([partial(_row, *cell, seed) for cell in cells], workers, told)
    found = tuple(_result(jobs, [rows[place] for place, cell in enumerate(cells) if cell[0] is jobs]) for jobs in logs)
    return _report(found)


def _cells(trees: bool) -> Iterator[tuple[str, Runtime, Reliability]]:
    yield PLATFORM, "learned", "mixture"
    for source, reliability in BY_TREES if trees else ():
        yield PLATFORM, source, reliability
    for policy in (*BACKFILLING, *PLANS):
        for source in SOURCES:
            yield policy, source, "mixture"
    for policy in ("easy-sjbf", *PLANS, PLATFORM):
        yield policy, "clairvoyant", "mixture"


def _row(jobs: BatchJobs, policy: str, source: Runtime, reliability: Reliability, seed: int, watch: Watch) -> Row:
    schedule = run_policy(jobs, POLICIES[policy], source, reliability=reliability, seed=seed, watch=watch)
    faults = faults_of(jobs, schedule)
    if faults:
        raise CotideError(f"the schedule of {policy} failed its check, please report this: {faults[0]}")
    figures = figures_of(jobs, schedule.start, seed=seed)
    wait, slowdown = figures["wait_seconds_mean"], figures["bounded_slowdown_mean"]
    return Row(
        policy=policy,
        source=schedule.source,
        accuracy=float(accuracy(schedule.forecast.astype(np.float64), jobs.run.astype(np.float64)).mean()),
        wait_seconds=wait.value,
        wait_interval=_interval(wait),
        bounded_slowdown=slowdown.value,
        slowdown_interval=_interval(slowdown),
        utilisation=figures["utilisation"].value,
        longest_wait_seconds=int((schedule.start - jobs.submit).max()),
        wall_seconds=schedule.wall_seconds,
    )


def _interval(figure: Figure) -> tuple[float, float] | None:
    return None if figure.low is None or figure.high is None else (figure.low, figure.high)


def _result(jobs: BatchJobs, rows: list[Row]) -> LogResult:
    platform = rows[0]
    rivals = {
        family: [row for row in rows if row.policy in names and row.source in SOURCES]
        for family, names in FAMILIES.items()
    }
    best = {
        family: {measure: min(these, key=lambda row: float(getattr(row, measure))) for measure in MEASURES}
        for family, these in rivals.items()
    }
    lower = {
        family: {name: 1.0 - getattr(platform, name) / max(getattr(row, name), 1e-9) for name, row in rows_of.items()}
        for family, rows_of in best.items()
    }
    by_name = {(row.policy, row.source): row.bounded_slowdown for row in rows}
    easy, clairvoyant = by_name["easy", "request"], by_name["easy-sjbf", "clairvoyant"]
    gap = (easy - clairvoyant) / easy
    return LogResult(
        trace=Path(jobs.name).name,
        jobs=len(jobs),
        processors=jobs.processors,
        rows=tuple(rows),
        best=best,
        lower=lower,
        wins=all(share > 0 for shares in lower.values() for share in shares.values()),
        gap=gap,
        gap_closed=(easy - platform.bounded_slowdown) / (easy - clairvoyant) if gap >= LEAST_GAP else None,
    )


def _report(logs: tuple[LogResult, ...]) -> Report:
    mean_lower = {
        family: {name: sum(log.lower[family][name] for log in logs) / len(logs) for name in MEASURES}
        for family in FAMILIES
    }
    closed = [log.gap_closed for log in logs if log.gap_closed is not None]
    mean_closed = sum(closed) / len(closed) if closed else None
    missed = []
    needed = math.ceil(LOGS_WON_SHARE * len(logs))
    won = sum(log.wins for log in logs)
    if won < needed:
        missed.append(f"below every rival in wait and bounded slowdown on {won} of {len(logs)} logs, not on {needed}")
    if mean_closed is not None and mean_closed < GAP_CLOSED:
        missed.append(f"closes {mean_closed:.0%} of the gap to clairvoyant backfill on average, not {GAP_CLOSED:.0%}")
    return Report(logs, mean_lower, mean_closed, tuple(missed))
