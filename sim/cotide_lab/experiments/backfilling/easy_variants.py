"""Experiment easy-variants: EASY in the variants of simulators, compared with published figures, and the jobs that
differ.

Called by `experiment_command`. One log under many readings: the handling of events, the rows that are jobs, the
machine, the measure. Each is compared job by job with `cotide simulate`. Invariant: same log, same numbers.

The published figures are those of the authors of predictsim. The files experiments/data/LOG/sim_analysis/metrics in
their repository give more digits than their paper. The lines are ``easy_backfill_scheduler`` and, for shortest-job
backfill, ``easy_plus_plus_scheduler`` with the predictors ``reqtime`` and ``clairvoyant``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.array_types import Floats, Integers
from cotide_lab.experiments.backfilling.easy_differences import Difference, compare
from cotide_lab.trace_replay.event_by_event import ONCE_A_MOMENT, PYSS, PYSS_SHORTEST_FIRST, EventRules, replay_events
from cotide_lab.trace_replay.metrics import TAU_SECONDS
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf import Field, SwfLog
from cotide_sim.traces.jobs.swf_cleaning import Cleaning, clean
from cotide_sim.traces.jobs.swf_exclusion import parse_exclusion
from cotide_sim.traces.jobs.swf_rows import Table

Rows = Callable[[Table], npt.NDArray[np.bool_]]

PUBLISHED_VARIANT: Final = "as predictsim"
SHORTEST_FIRST: Final = "as predictsim, shortest-job backfill"
CLAIRVOYANT: Final = "the same, run times known"
AS_PUBLISHED: Final = (PUBLISHED_VARIANT, SHORTEST_FIRST, CLAIRVOYANT)
DEFAULT: Final = "default"
SDSC_BLUE_PROCESSORS: Final = 1152
"""144 nodes of 8; readings of nodes and machine are of this one."""
BAR: Final = 0.01
"""Allowed distance from the published average: 1 %."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Mean, largest and root mean square of the bounded slowdown."""

    mean: float
    largest: float
    root_mean_square: float


@dataclass(frozen=True, slots=True)
class Published:
    """The authors' lines for a log.

    Attributes
    ----------
    job_numbers_missing : their jobs that the present cleaned log no longer has.
    easy, shortest_first, clairvoyant : EASY, and with shortest-job backfill by requested and by true run times.
    """

    jobs: int
    job_numbers_missing: str
    easy: Figures
    shortest_first: Figures
    clairvoyant: Figures

    def of(self, variant: str) -> Figures:
        """Return the reference of a reading: EASY's, except for the two readings with another policy."""
        return {SHORTEST_FIRST: self.shortest_first, CLAIRVOYANT: self.clairvoyant}.get(variant, self.easy)


PUBLISHED: Final[dict[str, Published]] = {
    "KTH-SP2": Published(
        28_481,
        "1 to 14, all 14 of which ran",
        Figures(92.57653973362949, 14805.2, 476.260314538994),
        Figures(69.40540058030349, 14805.2, 427.20483073376704),
        Figures(49.8477189313406, 9941.7, 326.20971934787),
    ),
    "CTC-SP2": Published(
        77_199,
        "",
        Figures(49.5712902189859, 12715.4, 228.34063240970502),
        Figures(30.0410695214457, 9875.6, 150.930570034506),
        Figures(17.5716874376194, 2022.60416666667, 68.2662450866183),
    ),
    "SDSC-BLUE": Published(
        232_542,
        "1 to 8, six of which ran",
        Figures(36.5233635393129, 4939.43181818182, 158.644405999053),
        Figures(19.8260115151715, 5316.33928571429, 115.173165450106),
        Figures(13.1775880058696, 4513.09090909091, 73.6761572053337),
    ),
}


def published_of(file: str) -> tuple[str, Published] | None:
    """Return a log's published figures by its archive name, which its file name has to contain."""
    return next(((name, found) for name, found in PUBLISHED.items() if name in file), None)


@dataclass(frozen=True, slots=True)
class Variant:
    """One reading; unnamed fields keep the default.

    Attributes
    ----------
    rules : the handling of events; None is the replay kernel, which decides once a moment.
    rows : the rows of the log's table that are left out before cleaning.
    shape : changes the jobs after cleaning.
    planned : (n,) planned seconds of the jobs; the requests when None.
    slowdown : of jobs and starts.
    counted : the jobs of the averages, of jobs and starts; all when None.
    """

    group: str
    name: str
    rules: EventRules | None = None
    cleaning: Cleaning | None = None
    rows: Rows | None = None
    shape: Callable[[BatchJobs], BatchJobs] | None = None
    planned: Callable[[BatchJobs], Integers] | None = None
    slowdown: Callable[[BatchJobs, Integers], Floats] | None = None
    counted: Callable[[BatchJobs, Integers], npt.NDArray[np.bool_]] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one reading."""

    group: str
    name: str
    jobs: int
    mean: float
    largest: float
    root_mean_square: float
    against_published: float | None
    """Relative difference of the mean, where one is published."""
    difference: Difference
    """From the default, job by job."""


@dataclass(frozen=True, slots=True)
class Report:
    """All readings of one log."""

    log: str
    published: Published | None
    rows: tuple[Row, ...]

    @property
    def missed(self) -> list[str]:
        """Return the authors' readings that are further than the bar from the published mean, one sentence each."""
        return [
            f"{self.log}, {row.name}: {row.mean:.4f} is {row.against_published:+.2%} from the published figure"
            for row in self.rows
            if row.name in AS_PUBLISHED and row.against_published is not None and abs(row.against_published) > BAR
        ]


def slowdown_over(seconds: float) -> Callable[[BatchJobs, Integers], Floats]:
    """Return the bounded slowdown with another threshold, at least 1."""

    def slowdown(jobs: BatchJobs, start: Integers) -> Floats:
        found: Floats = np.maximum(1.0, (start - jobs.submit + jobs.run) / np.maximum(jobs.run, seconds))
        return found

    return slowdown


def _whole_nodes(jobs: BatchJobs) -> BatchJobs:
    return replace(jobs, demand=np.minimum(-(-jobs.demand // 8) * 8, jobs.processors))


def _rounded(step: int) -> Callable[[BatchJobs], Integers]:
    return lambda jobs: -(-jobs.request // step) * step


def _without(text: str) -> Cleaning:
    return Cleaning(exclusions=(parse_exclusion(text),))


def _middle(jobs: BatchJobs, start: Integers) -> npt.NDArray[np.bool_]:
    """Return all but the first and the last hundredth of the jobs by end."""
    order = np.argsort(start + jobs.run, kind="stable")
    edge = len(jobs) // 100
    kept = np.zeros(len(jobs), dtype=np.bool_)
    kept[order[edge : len(jobs) - edge]] = True
    return kept


VARIANTS: Final[tuple[Variant, ...]] = (
    Variant("", DEFAULT),
    Variant("events", "one event at a time, submissions first", EventRules()),
    Variant("events", "one event at a time, ends first", EventRules(submits_first=0)),
    Variant("events", "and a planned end frees processors", PYSS),
    Variant("events", "the same, ends first", PYSS._replace(submits_first=0)),
    Variant("published", PUBLISHED_VARIANT, PYSS, _without("limit<=0")),
    Variant("published", SHORTEST_FIRST, PYSS_SHORTEST_FIRST, _without("limit<=0")),
    Variant("published", CLAIRVOYANT, PYSS_SHORTEST_FIRST, _without("limit<=0"), planned=lambda jobs: jobs.run),
    Variant("backfill", "nobody outlasts the reservation", ONCE_A_MOMENT._replace(beside=0)),
    Variant("backfill", "a reservation is never moved", ONCE_A_MOMENT._replace(fixed=1)),
    Variant("backfill", "plans round requests to 5 min", planned=_rounded(300)),
    Variant("backfill", "plans round requests to 1 h", planned=_rounded(3600)),
    Variant("rows", "request raised to the run", cleaning=Cleaning(overrun="raise")),
    Variant("rows", "neither cut nor raised", cleaning=Cleaning(overrun="keep")),
    Variant("rows", "runs above the request dropped", rows=lambda t: t[:, Field.RUN] > t[:, Field.LIMIT]),
    Variant("rows", "no run time counts as 1 s", cleaning=Cleaning(not_run="one-second")),
    Variant("rows", "no requested time dropped", cleaning=_without("limit<=0")),
    Variant("rows", "status 0 (failed) dropped", cleaning=_without("status=0")),
    Variant("rows", "status 5 (cancelled) dropped", cleaning=_without("status=5")),
    Variant("rows", "nothing allocated dropped", cleaning=_without("allocated<=0")),
    Variant("size", "allocated processors", cleaning=Cleaning(demand="allocated")),
    Variant("size", "the larger of both", cleaning=Cleaning(demand="larger")),
    Variant("size", "whole nodes of 8", shape=_whole_nodes),
    Variant("size", "machine of 1,128", cleaning=Cleaning(processors=1128)),
    Variant("size", "machine of 1,096", cleaning=Cleaning(processors=1096)),
    Variant("measure", "threshold 1 s", slowdown=slowdown_over(1.0)),
    Variant("measure", "threshold 60 s", slowdown=slowdown_over(60.0)),
    Variant("measure", "without the first and last 1 %", counted=_middle),
    Variant(
        "measure",
        "only ends before the last submission",
        counted=lambda jobs, start: start + jobs.run <= jobs.submit[-1],
    ),
)
"""The readings. Machines other than the header's are 1,152 processors less some nodes that ran no batch work."""


def run(log: SwfLog, progress: Callable[[str, float], object] | None = None) -> Report:
    """Replay a log under every reading that applies to it."""
    known = published_of(log.file)
    rows: list[Row] = []
    base: tuple[BatchJobs, Integers, Floats] | None = None
    variants = [variant for variant in VARIANTS if _applies(variant, log)]
    for index, variant in enumerate(variants):
        if progress is not None:
            progress(f"{known[0] if known else log.file}: {variant.name}", index / len(variants))
        jobs, start, slowdown = replayed(variant, log)
        base = base or (jobs, start, slowdown)
        counted = slowdown if variant.counted is None else slowdown[variant.counted(jobs, start)]
        mean = float(counted.mean())
        rows.append(
            Row(
                variant.group,
                variant.name,
                len(counted),
                mean,
                float(counted.max()),
                float(np.sqrt((counted**2).mean())),
                mean / known[1].of(variant.name).mean - 1 if known else None,
                compare(*base, jobs, start, slowdown),
            )
        )
    return Report(known[0] if known else log.file, known[1] if known else None, tuple(rows))


def replayed(variant: Variant, log: SwfLog) -> tuple[BatchJobs, Integers, Floats]:
    """Return the jobs of a log under one reading, their (n,) starts and bounded slowdowns."""
    if variant.rows is not None:
        kept = ~variant.rows(log.table)
        log = replace(log, table=log.table[kept], lines=log.lines[kept])
    jobs, _ = clean(log, variant.cleaning)
    if variant.shape is not None:
        jobs = variant.shape(jobs)
    planned = None if variant.planned is None else variant.planned(jobs)
    if variant.rules is None:
        start = run_policy(jobs, POLICIES["easy"], forecasts=planned).start
    else:
        start = replay_events(jobs, variant.rules, planned)
    measure = variant.slowdown or slowdown_over(TAU_SECONDS)
    return jobs, start, measure(jobs, start)


def _applies(variant: Variant, log: SwfLog) -> bool:
    """Whether a reading of the machine is about this log."""
    processors = None if variant.cleaning is None else variant.cleaning.processors
    return log.processors == SDSC_BLUE_PROCESSORS or (processors is None and variant.shape is None)
