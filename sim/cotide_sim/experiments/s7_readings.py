"""Experiment s7-readings: is there a reading of seed 002, chapter 3, under which HYBRID comes out below SVF-EF?

Called by the `experiment` command. Every reading of HYBRID under every way of placing lists, on the instances of Figs.
3.6 and 3.7 and on others, each against SVF-EF and RANDOM-RANDOM placed in the same way; and what no schedule that
keeps the two sets of jobs apart can beat. Each schedule passes the feasibility judge. Invariant: same settings, same
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.approximation.block_scheduling import block_schedule
from cotide_core.approximation.bounds import apart_floor, optimum_floor
from cotide_core.approximation.hybrid import hybrid, machine_shares
from cotide_core.approximation.job_list import JobList
from cotide_core.approximation.orders import smallest_volume_first
from cotide_core.approximation.schedule import Schedule, first_fault
from cotide_core.errors import CotideError
from cotide_sim.experiments.s7_hybrids import HOLES, READINGS, WAYS
from cotide_sim.workloads.synthetic import sampled_jobs, synthetic_jobs

Integers = npt.NDArray[np.int64]
Progress = Callable[[str, float], object]

OTHERS: Final[dict[str, Callable[[JobList, int], Schedule]]] = {
    "Block-Scheduling as printed": block_schedule,
    "the same, blocks spread": lambda jobs, machines: block_schedule(jobs, machines, spread=True),
    "the same, spread and trimmed": lambda jobs, machines: block_schedule(jobs, machines, spread=True, trim=True),
    "HYBRID relisted": lambda jobs, machines: hybrid(jobs, machines, relist=True),
}
"""What places no lists in these ways. Relisting takes SVF-EF where that is cheapest: no reading, and never above it."""
LOG: Final = "log"
SAMPLE: Final = 800
"""Jobs drawn of a log, as in section 3.4.1."""
FEWEST_IN_FIGURE: Final = 10
"""Machines at the left end of Fig. 3.7."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The instances: (jobs, machines) of SYNTH1 and SYNTH2, and machines for the sample of a log.

    The first three are of Fig. 3.6, the next three of Fig. 3.7; the paper does not name the machines of Fig. 3.6.
    """

    points: tuple[tuple[int, int], ...] = (
        (3000, 50), (8000, 50), (16_000, 50), (5000, 10), (5000, 50), (5000, 100), (3000, 2), (3000, 5),
    )  # fmt: skip
    log_machines: tuple[int, ...] = (2, 10)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """One reading under one way of placing lists, over all instances: ratios of total completion times.

    Attributes
    ----------
    svf, random : least and largest over SVF-EF and over RANDOM-RANDOM, placed in the same way.
    below : instances on which it is below SVF-EF, of ``instances``.
    where : names of these instances.
    """

    way: str
    reading: str
    svf: tuple[float, float]
    random: tuple[float, float]
    below: int
    instances: int
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FloorRow:
    """What no schedule can beat on one instance, over SVF-EF as this project places it.

    Attributes
    ----------
    any_schedule : the lower bound of the optimum.
    printed, best : of schedules that keep the sets apart, with the printed split and with whichever split is best.
    best_high_machines : that split.
    worse_lists : SVF-EF under the other ways of placing, over the same.
    """

    instance: str
    generated: bool
    machines: int
    any_schedule: float
    printed: float
    best: float
    best_high_machines: int
    worse_lists: dict[str, float]


@dataclass(slots=True)
class Report:
    """All that was measured."""

    settings: Settings
    readings: list[ReadingRow] = field(default_factory=list)
    others: list[ReadingRow] = field(default_factory=list)
    floors: list[FloorRow] = field(default_factory=list)

    @property
    def reproduced(self) -> list[str]:
        """Return the readings of HYBRID that are below SVF-EF on all instances, as the paper has it."""
        return [f"{row.reading}; {row.way}" for row in self.readings if row.below == row.instances]

    @property
    def ruled_out(self) -> bool:
        """Tell whether no schedule with the printed split can be below SVF-EF on the generated jobs of Fig. 3.7."""
        figure = [row for row in self.floors if row.generated and row.machines >= FEWEST_IN_FIGURE]
        return bool(figure) and all(row.printed > 1 for row in figure)


def run(settings: Settings, log: tuple[Integers, Integers] | None = None, progress: Progress | None = None) -> Report:
    """Run the experiment.

    Parameters
    ----------
    log : (run seconds, processors) of a log's jobs, of which `SAMPLE` are drawn; left out when None.
    """
    report = Report(settings)
    instances = _instances(settings, log)
    costs: dict[tuple[str, str], dict[str, tuple[float, float, float]]] = {}
    for place, (name, jobs, machines) in enumerate(instances):
        if progress is not None:
            progress(name, place / len(instances))
        by_way = {way: _references(jobs, machines, way, settings.seed) for way in WAYS}
        others = {
            other: _cost(jobs, _judged(other, jobs, machines, made(jobs, machines)).starts)
            for other, made in OTHERS.items()
        }
        for way, (svf, random) in by_way.items():
            for reading in READINGS:
                schedule = reading.schedule(jobs, machines, WAYS[way])
                if schedule is not None:
                    cost = _cost(jobs, _judged(reading.name, jobs, machines, schedule).starts)
                    costs.setdefault((way, reading.name), {})[name] = (cost, svf, random)
            for other, cost in others.items():
                costs.setdefault((way, other), {})[name] = (cost, svf, random)
        report.floors.append(_floor(name, jobs, machines, {way: svf for way, (svf, _) in by_way.items()}))
    for (way, reading_name), found in costs.items():
        (report.others if reading_name in OTHERS else report.readings).append(_row(way, reading_name, found))
    return report


def _instances(settings: Settings, log: tuple[Integers, Integers] | None) -> list[tuple[str, JobList, int]]:
    found = [
        (f"{kind}, {count:,} jobs, {machines} machines", synthetic_jobs(kind, count, settings.seed), machines)
        for kind in ("synth1", "synth2")
        for count, machines in settings.points
    ]
    if log is not None:
        jobs, _ = sampled_jobs(*log, SAMPLE, settings.seed)
        found += [
            (f"{LOG}, {len(jobs):,} jobs, {machines} machines", jobs, machines) for machines in settings.log_machines
        ]
    return found


def _references(jobs: JobList, machines: int, way: str, seed: int) -> tuple[float, float]:
    """Return the cost of SVF-EF and of RANDOM-RANDOM."""
    generator = np.random.default_rng([seed, len(jobs)])
    svf = _judged("SVF-EF", jobs, machines, WAYS[way](jobs, machines, smallest_volume_first(jobs), None))
    order = generator.permutation(len(jobs))
    chosen = generator.integers(0, machines, len(jobs))
    random = _judged("RANDOM-RANDOM", jobs, machines, WAYS[way](jobs, machines, order, chosen))
    return _cost(jobs, svf.starts), _cost(jobs, random.starts)


def _judged(name: str, jobs: JobList, machines: int, schedule: Schedule) -> Schedule:
    fault = first_fault(jobs, machines, schedule)
    if fault is not None:
        raise CotideError(f"{name} gave a schedule that can't run: {fault}")
    return schedule


def _cost(jobs: JobList, starts: Integers) -> float:
    return float((starts + jobs.sizes).sum())


def _floor(name: str, jobs: JobList, machines: int, svf: dict[str, float]) -> FloorRow:
    printed = apart_floor(jobs, machines, machine_shares(machines)[0])
    best, high = min((apart_floor(jobs, machines, high), high) for high in range(1, machines))
    ours = svf[HOLES]
    worse = {way: cost / ours for way, cost in svf.items() if way != HOLES}
    generated = not name.startswith(LOG)
    return FloorRow(
        name, generated, machines, optimum_floor(jobs, machines) / ours, printed / ours, best / ours, high, worse
    )


def _row(way: str, reading: str, found: dict[str, tuple[float, float, float]]) -> ReadingRow:
    svf = {name: cost / one for name, (cost, one, _) in found.items()}
    random = [cost / one for cost, _, one in found.values()]
    below = tuple(name for name, ratio in svf.items() if ratio < 1)
    return ReadingRow(
        way,
        reading,
        (min(svf.values()), max(svf.values())),
        (min(random), max(random)),
        len(below),
        len(found),
        below,
    )
