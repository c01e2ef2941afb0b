"""Experiment reliable-share: the hybrid platform against pure backfilling and pure plans (Naghshnejad 2019, section
4.5).

Called by ``cotide experiment reliable-share``. Each log is replayed under the platform and under every rival with every
source of run times. Each source learns from that replay's own completions; the platform has one configuration for all
logs. Each schedule passes the feasibility check, or the experiment stops. Invariant: same logs and seed, same figures,
whatever the number of workers; ``wall_seconds`` alone is measured.

Bars of ours: on three of five logs the platform is below *every* rival in mean wait and in mean bounded slowdown. In
bounded slowdown it closes on average at least 80 % of the gap between EASY and shortest-job backfill with all run times
known, and 90 % of the gap to the better plan with all run times known. On no log do its jobs wait longer than under the
best backfilling. A log with a gap below `LEAST_GAP` of EASY's figure has none to close and is left out of that mean. A
log with EASY's figure below `LEAST_SLOWDOWN` has no queue and is also left out of the mean gap to the plan and of the
bars of the paper.

Bars of the paper: on the same forecasts the platform *as printed* is below the best backfilling and the best plan. On
average over the logs it is below by a fifth in wait and by half in bounded slowdown (section 4.5.2). Rows with no
predictable job, or with all jobs predictable, show the worth of the distinction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import CotideError
from cotide_core.kernels.array_types import Booleans, Integers
from cotide_lab.experiments.side_by_side import Watch, side_by_side
from cotide_lab.trace_replay.check import faults_of
from cotide_lab.trace_replay.metrics import Figure, bounded_slowdown, figures_of
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import Reliability, Runtime, run_policy
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.run_time.scores import accuracy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

PLATFORM: Final = "hybrid"
PRINTED: Final = "hybrid-printed"
BY_TREES: Final[tuple[tuple[Runtime, Reliability], ...]] = (
    ("learned", "trees"),
    ("trees", "mixture"),
    ("trees", "trees"),
)
"""Forecasts and reliability of the platforms' further rows, where asked for; the first row has learned and mixture."""
ABLATIONS: Final[tuple[Reliability, ...]] = ("nobody", "everybody")
"""Rows of both platforms without the distinction."""
BACKFILLING: Final = ("easy", "easy-sjbf", "easy-svbf", "conservative", "slack")
"""Pure backfilling; easy-sjbf and easy-svbf are the seed's FCFS-BF1 and FCFS-BF2 (section 4.5.2)."""
PLANS: Final = ("sjf", "svf")
"""Pure plans, the seed's Plan-based1 and Plan-based2."""
FCFS: Final = "fcfs"
REFUSE_ALL: Final = "refuse all"
INACTIVE: Final = (FCFS, REFUSE_ALL)
"""Contenders that must miss a bar in the platform's place: one that only keeps the order of arrival, and one that
starts no job while jobs come."""
SOURCES: Final[tuple[Runtime, ...]] = ("request", "last-two", "learned")
FAMILIES: Final = {"backfilling": BACKFILLING, "plans": PLANS}
MEASURES: Final = ("wait_seconds", "bounded_slowdown")
LOGS_WON_SHARE: Final = 0.6
"""Three of five (issue 4)."""
GAP_CLOSED: Final = 0.8
"""Mean share of the gap (issue 4)."""
LEAST_GAP: Final = 0.01
"""Of EASY's bounded slowdown (chosen: less is a few jobs more or less)."""
PLAN_GAP_CLOSED: Final = 0.9
"""Mean share of the gap to the plan that knows all run times (chosen as the goal for one configuration)."""
CLASSES: Final = ("narrow", "wide", "occasional users", "frequent users")
"""Jobs of less than an eighth of the processors and others; of users with less than a hundredth of the jobs and others
(chosen)."""
NARROW_SHARE: Final = 1 / 8
OCCASIONAL_SHARE: Final = 1 / 100
LEAST_SLOWDOWN: Final = 2.0
"""A log with EASY's mean bounded slowdown below this has no queue, so policies do not differ (chosen)."""
PAPER_LOWER: Final = {"wait_seconds": 0.2, "bounded_slowdown": 0.5}
"""Relative distance of the seed's platform below its baselines (section 4.5.2: "about 20%", "more than 50%")."""
PAPER_TABLE_4_3: Final = {
    "SDSC": {"backfilling": 50.0, "plans": 45.0, "platform": 25.0},
    "ANL": {"backfilling": 24.0, "plans": 22.0, "platform": 12.0},
}
"""Bounded slowdown without clairvoyance (Naghshnejad 2019, Table 4.3)."""

Progress = Callable[[str, float], object]


@dataclass(frozen=True, slots=True)
class Tail:
    """Some jobs of one replay: their number, and the figures of the unlucky ones; waits in seconds."""

    jobs: int
    wait_mean: float
    wait_p99: float
    wait_longest: int
    slowdown_mean: float
    slowdown_p99: float
    slowdown_largest: float


@dataclass(frozen=True, slots=True)
class Row:
    """One replay.

    Attributes
    ----------
    accuracy : mean of eq. 4.2 over all jobs, of the forecasts behind this schedule.
    wait_interval, slowdown_interval : ends of 95 % intervals over drawn weeks, or None for too few weeks.
    all_jobs : the tail of all jobs.
    classes : the tail of each of `CLASSES` with jobs.
    """

    policy: str
    source: str
    accuracy: float
    wait_seconds: float
    wait_interval: tuple[float, float] | None
    bounded_slowdown: float
    slowdown_interval: tuple[float, float] | None
    utilisation: float
    all_jobs: Tail
    classes: dict[str, Tail]
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class LogResult:
    """One log.

    Attributes
    ----------
    rows : all replays, the platform's first.
    best : by family and measure, the row of the least.
    lower : by family and measure, the platform's relative distance below that least; negative where it is above.
    wins : whether the platform is below every rival in both measures.
    gap : EASY's bounded slowdown less that of clairvoyant shortest-job backfill, as a share of EASY's.
    gap_closed : share of it that the platform closes; None where the gap is below `LEAST_GAP`.
    plan_gap_closed : the same for the gap between EASY and the better plan that knows all run times.
    same_forecasts : by platform, family and measure, its relative distance below the family's best on learned run
    times.
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
    plan_gap_closed: float | None
    same_forecasts: dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Report:
    """All logs, means over them, and the missed bars, in words.

    ``inactive``: bars that each contender of `INACTIVE` misses in the platform's place.
    """

    logs: tuple[LogResult, ...]
    mean_lower: dict[str, dict[str, float]]
    mean_same_forecasts: dict[str, dict[str, dict[str, float]]]
    mean_gap_closed: float | None
    mean_plan_gap_closed: float | None
    missed: tuple[str, ...]
    inactive: dict[str, int]


@on_one_thread
def run(
    logs: Sequence[BatchJobs],
    *,
    trees: bool = False,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Replay every log under the platform and its baselines.

    Parameters
    ----------
    trees : also replay the platforms on boosted trees, which takes minutes a log; judged are the first rows alone.
    seed : of the drawn weeks and of the trees.
    workers : replays at a time; kernels hold no interpreter lock, so threads do.
    progress : called with the name of each replay and the finished share.
    """
    cells = [(jobs, *cell) for jobs in logs for cell in _cells(trees)]
    names = [f"{Path(jobs.name).name}: {policy}, {source}" for jobs, policy, source, _ in cells]
    rows = side_by_side([partial(_row, *cell, seed) for cell in cells], workers, names, progress)
    by_log = [[rows[index] for index, cell in enumerate(cells) if cell[0] is jobs] for jobs in logs]
    for jobs, own in zip(logs, by_log, strict=True):
        own.append(_row_of(jobs, REFUSE_ALL, "request", jobs.request, after_the_last(jobs), 0.0, seed))
    found = tuple(_result(jobs, own) for jobs, own in zip(logs, by_log, strict=True))
    inactive = {name: _missed_by(name, logs, by_log) for name in INACTIVE}
    return _report(found, inactive)


def after_the_last(jobs: BatchJobs) -> Integers:
    """Return (n,) starts of a scheduler that starts nothing while jobs come, and then one job after the other."""
    ends = np.cumsum(jobs.run)
    starts: Integers = jobs.submit[-1] + ends - jobs.run
    return starts


def _missed_by(contender: str, logs: Sequence[BatchJobs], by_log: Sequence[list[Row]]) -> int:
    """Return the number of bars that a contender misses in the platform's place."""
    results = []
    for jobs, rows in zip(logs, by_log, strict=True):
        ours, *others = rows
        own = replace(next(row for row in others if row.policy == contender), policy=ours.policy, source=ours.source)
        results.append(_result(jobs, [own, *others]))
    return len(_own_missed(tuple(results)))


def _cells(trees: bool) -> Iterator[tuple[str, Runtime, Reliability]]:
    for platform in (PLATFORM, PRINTED):
        yield platform, "learned", "mixture"
        for reliability in ABLATIONS:
            yield platform, "learned", reliability
        for source, reliability in BY_TREES if trees else ():
            yield platform, source, reliability
    for policy in (*BACKFILLING, *PLANS):
        for source in SOURCES:
            yield policy, source, "mixture"
    yield FCFS, "request", "mixture"
    for policy in ("easy-sjbf", *PLANS, PLATFORM, PRINTED):
        yield policy, "clairvoyant", "mixture"


def _row(jobs: BatchJobs, policy: str, source: Runtime, reliability: Reliability, seed: int, watch: Watch) -> Row:
    schedule = run_policy(jobs, POLICIES[policy], source, reliability=reliability, seed=seed, watch=watch)
    faults = faults_of(jobs, schedule)
    if faults:
        raise CotideError(f"the schedule of {policy} failed its check, please report this: {faults[0]}")
    return _row_of(jobs, policy, schedule.source, schedule.forecast, schedule.start, schedule.wall_seconds, seed)


def _row_of(
    jobs: BatchJobs, policy: str, source: str, forecast: Integers, start: Integers, wall_seconds: float, seed: int
) -> Row:
    figures = figures_of(jobs, start, seed=seed)
    wait, slowdown = figures["wait_seconds_mean"], figures["bounded_slowdown_mean"]
    return Row(
        policy=policy,
        source=source,
        accuracy=float(accuracy(forecast.astype(np.float64), jobs.run.astype(np.float64)).mean()),
        wait_seconds=wait.value,
        wait_interval=_interval(wait),
        bounded_slowdown=slowdown.value,
        slowdown_interval=_interval(slowdown),
        utilisation=figures["utilisation"].value,
        all_jobs=_tail(jobs, start, np.ones(len(jobs), np.bool_)),
        classes={name: _tail(jobs, start, chosen) for name, chosen in job_classes(jobs).items() if chosen.any()},
        wall_seconds=wall_seconds,
    )


def job_classes(jobs: BatchJobs) -> dict[str, Booleans]:
    """Return the jobs of each of `CLASSES`; a job without a known user counts as occasional."""
    narrow = jobs.demand < NARROW_SHARE * jobs.processors
    _, user, counts = np.unique(jobs.user, return_inverse=True, return_counts=True)
    frequent = (counts[user] >= OCCASIONAL_SHARE * len(jobs)) & (jobs.user >= 0)
    return dict(zip(CLASSES, (narrow, ~narrow, ~frequent, frequent), strict=True))


def _tail(jobs: BatchJobs, start: Integers, chosen: Booleans) -> Tail:
    wait, slowdown = (start - jobs.submit)[chosen], bounded_slowdown(jobs, start)[chosen]
    return Tail(
        jobs=int(chosen.sum()),
        wait_mean=float(wait.mean()),
        wait_p99=float(np.quantile(wait, 0.99)),
        wait_longest=int(wait.max()),
        slowdown_mean=float(slowdown.mean()),
        slowdown_p99=float(np.quantile(slowdown, 0.99)),
        slowdown_largest=float(slowdown.max()),
    )


def _interval(figure: Figure) -> tuple[float, float] | None:
    return None if figure.low is None or figure.high is None else (figure.low, figure.high)


def _result(jobs: BatchJobs, rows: list[Row]) -> LogResult:
    platform = rows[0]
    baselines = {
        family: [row for row in rows if row.policy in names and row.source in SOURCES]
        for family, names in FAMILIES.items()
    }
    best = {
        family: {measure: min(these, key=lambda row: float(getattr(row, measure))) for measure in MEASURES}
        for family, these in baselines.items()
    }
    lower = {
        family: {name: 1.0 - getattr(platform, name) / max(getattr(row, name), 1e-9) for name, row in rows_of.items()}
        for family, rows_of in best.items()
    }
    by_name = {(row.policy, row.source): row.bounded_slowdown for row in rows}
    easy, clairvoyant = by_name["easy", "request"], by_name["easy-sjbf", "clairvoyant"]
    plan = min(by_name[name, "clairvoyant"] for name in PLANS)
    return LogResult(
        trace=Path(jobs.name).name,
        jobs=len(jobs),
        processors=jobs.processors,
        rows=tuple(rows),
        best=best,
        lower=lower,
        wins=all(share > 0 for shares in lower.values() for share in shares.values()),
        gap=(easy - clairvoyant) / easy,
        gap_closed=closed_share(easy, clairvoyant, platform.bounded_slowdown),
        plan_gap_closed=closed_share(easy, plan, platform.bounded_slowdown) if easy >= LEAST_SLOWDOWN else None,
        same_forecasts={name: _lower_on_learned(name, rows) for name in (PLATFORM, PRINTED)},
    )


def closed_share(easy: float, best: float, ours: float) -> float | None:
    """Return the share of a gap in bounded slowdown that is closed; None where there is none to close."""
    return (easy - ours) / (easy - best) if (easy - best) / easy >= LEAST_GAP else None


def _lower_on_learned(platform: str, rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return a platform's relative distance below the best of each family, all with learned run times."""
    learned = {row.policy: row for row in rows if row.source == "learned"}
    return {
        family: {
            name: 1.0
            - getattr(learned[platform], name) / max(min(getattr(learned[text], name) for text in these), 1e-9)
            for name in MEASURES
        }
        for family, these in FAMILIES.items()
    }


def _report(logs: tuple[LogResult, ...], inactive: dict[str, int] | None = None) -> Report:
    mean_lower = {
        family: {name: _mean([log.lower[family][name] for log in logs]) for name in MEASURES} for family in FAMILIES
    }
    queued = [log for log in logs if log.plan_gap_closed is not None] or logs
    same = {
        platform: {
            family: {name: _mean([log.same_forecasts[platform][family][name] for log in queued]) for name in MEASURES}
            for family in FAMILIES
        }
        for platform in (PLATFORM, PRINTED)
    }
    inactive = inactive or {}
    missed = _own_missed(logs)
    missed += [f"{contender} misses no bar: the bars are too low" for contender, many in inactive.items() if not many]
    missed += _paper_missed(same[PRINTED])
    return Report(logs, mean_lower, same, *_mean_closed(logs), tuple(missed), inactive)


def _mean_closed(logs: tuple[LogResult, ...]) -> tuple[float | None, float | None]:
    """Return the mean share of the gap to clairvoyant backfilling, and to the clairvoyant plan, that is closed."""
    closed = [log.gap_closed for log in logs if log.gap_closed is not None]
    plan_closed = [log.plan_gap_closed for log in logs if log.plan_gap_closed is not None]
    return (_mean(closed) if closed else None), (_mean(plan_closed) if plan_closed else None)


def _own_missed(logs: tuple[LogResult, ...]) -> list[str]:
    """Return the bars of ours that the first row of each log misses, in words."""
    mean_closed, mean_plan_closed = _mean_closed(logs)
    missed = []
    needed = math.ceil(LOGS_WON_SHARE * len(logs))
    won = sum(log.wins for log in logs)
    if won < needed:
        missed.append(f"below every rival in wait and bounded slowdown on {won} of {len(logs)} logs, not on {needed}")
    if mean_closed is not None and mean_closed < GAP_CLOSED:
        missed.append(f"closes {mean_closed:.0%} of the gap to clairvoyant backfill on average, not {GAP_CLOSED:.0%}")
    if mean_plan_closed is not None and mean_plan_closed < PLAN_GAP_CLOSED:
        missed.append(f"closes {mean_plan_closed:.0%} of the gap to the clairvoyant plan, not {PLAN_GAP_CLOSED:.0%}")
    longer = [log.trace for log in logs if log.lower["backfilling"]["wait_seconds"] < 0]
    if longer:
        missed.append(f"waits longer than the best backfilling on {', '.join(longer)}")
    return missed


def _paper_missed(printed: dict[str, dict[str, float]]) -> Iterator[str]:
    """Return the paper's statements that the platform as printed does not reach."""
    for family, shares in printed.items():
        for name, words in (("wait_seconds", "wait"), ("bounded_slowdown", "bounded slowdown")):
            if shares[name] < PAPER_LOWER[name]:
                side = "below" if shares[name] >= 0 else "above"
                yield (
                    f"the platform as printed is {abs(shares[name]):.0%} {side} the"
                    f" best of {family} in {words}, not {PAPER_LOWER[name]:.0%} below (Naghshnejad 2019, section 4.5.2)"
                )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
