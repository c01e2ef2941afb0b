"""Experiment offline-readings: does any reading of Naghshnejad 2019, chapter 3, place HYBRID below SVF-EF?

Called by `experiment_command`. Every reading of HYBRID runs under every way of placing lists, on the instances of Figs.
3.6 and 3.7 and on others, against SVF-EF and RANDOM-RANDOM placed in the same way. The report adds a lower bound for
schedules that keep the two sets of jobs apart, and the distance from Table 3.2 under each way. Each schedule passes the
feasibility judge. Invariant: same settings, same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cotide_core.errors import CotideError
from cotide_core.kernels.array_types import Integers
from cotide_core.planning.high_demand_partition import machine_shares
from cotide_lab.experiments.offline.hybrids import READINGS, WAYS, ListRule
from cotide_lab.experiments.offline.stretch_readings import StretchReading, stretch_readings
from cotide_lab.job_logs.synthetic import Synthetic, sampled_jobs, synthetic_jobs
from cotide_lab.offline.block_scheduling import block_schedule
from cotide_lab.offline.bounds import apart_floor, optimum_floor
from cotide_lab.offline.hybrid import hybrid
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.orders import shortest_job_first, smallest_volume_first
from cotide_lab.offline.schedule import Schedule, first_fault, total_completion

SYNTHETIC: Final[tuple[Synthetic, ...]] = ("synth1", "synth2")
Progress = Callable[[str, float], object]

OTHERS: Final[dict[str, Callable[[JobList, int], Schedule]]] = {
    "Block-Scheduling as printed": block_schedule,
    "the same, blocks spread": lambda jobs, machines: block_schedule(jobs, machines, spread=True),
    "the same, spread and trimmed": lambda jobs, machines: block_schedule(jobs, machines, spread=True, trim=True),
    "HYBRID relisted": lambda jobs, machines: hybrid(jobs, machines, relist=True),
}
"""Algorithms that place no lists in these ways. Relisting takes SVF-EF where that is cheapest: it is no reading, and
never above SVF-EF."""
LOG: Final = "log"
SAMPLE: Final = 800
"""Jobs drawn of a log, as in section 3.4.1."""
FEWEST_IN_FIGURE: Final = 10
"""Machines at the left end of Fig. 3.7, as in Table 3.2; chosen, the axis is a picture."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The instances: (jobs, machines) of SYNTH1 and SYNTH2, and machines for the sample of a log.

    The first three are of Fig. 3.6, the next five of Fig. 3.7; the paper does not name the machines of either. Jobs and
    machines of ``stretch`` are Table 3.2's.
    """

    points: tuple[tuple[int, int], ...] = (
        (3000, 50), (8000, 50), (16_000, 50), (5000, 10), (5000, 20), (5000, 30), (5000, 50), (5000, 100), (3000, 5),
        (3000, 2),
    )  # fmt: skip
    log_machines: tuple[int, ...] = (2, 10)
    stretch_jobs: int = 5000
    stretch_machines: int = 10
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Instance:
    """The scheduled input."""

    workload: str
    jobs: int
    machines: int

    @property
    def name(self) -> str:
        """Return it in words."""
        return f"{self.workload}, {self.jobs:,} jobs, {self.machines} machines"


def in_figures(instance: Instance) -> bool:
    """Whether the paper's Figs. 3.6 and 3.7 show it: SYNTH2 on ten machines and more."""
    return instance.workload == "synth2" and instance.machines >= FEWEST_IN_FIGURE


@dataclass(frozen=True, slots=True)
class Cost:
    """A total completion time over that of SVF-EF and of RANDOM-RANDOM, placed in the same way."""

    instance: Instance
    svf: float
    random: float


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """One reading under one way of placing lists, over all instances: ratios of total completion times.

    Attributes
    ----------
    svf, random : least and largest over SVF-EF and over RANDOM-RANDOM, placed in the same way.
    figures : the same over SVF-EF, on the instances of Figs. 3.6 and 3.7 alone; None if there are none.
    below : number of ``instances`` with the reading below SVF-EF.
    below_on : numbers of machines with the reading below SVF-EF for SYNTH2 at every number of jobs.
    """

    way: str
    reading: str
    svf: tuple[float, float]
    random: tuple[float, float]
    figures: tuple[float, float] | None
    below: int
    instances: int
    below_on: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WayRow:
    """A way of placing lists: SJF-EF over SVF-EF, which is above 1 in Figs. 3.3 to 3.5, and SVF-EF over ours."""

    way: str
    sjf: tuple[float, float]
    svf: tuple[float, float]

    @property
    def svf_is_best(self) -> bool:
        """Whether SVF-EF is the better of the two lists on every instance."""
        return self.sjf[0] >= 1


@dataclass(frozen=True, slots=True)
class FloorRow:
    """Lower bounds of schedules on one instance, over SVF-EF as placed by this project.

    Attributes
    ----------
    any_schedule : the lower bound of the optimum.
    printed, best : of schedules that keep the sets apart, with the printed split and with the best split.
    best_high_machines : that split.
    """

    instance: Instance
    any_schedule: float
    printed: float
    best: float
    best_high_machines: int


@dataclass(slots=True)
class Report:
    """All measurements."""

    settings: Settings
    readings: list[ReadingRow] = field(default_factory=list)
    others: list[ReadingRow] = field(default_factory=list)
    ways: list[WayRow] = field(default_factory=list)
    floors: list[FloorRow] = field(default_factory=list)
    stretch: list[StretchReading] = field(default_factory=list)

    @property
    def below_in_figures(self) -> list[ReadingRow]:
        """Return the readings of HYBRID that are below SVF-EF wherever the paper's figures show this."""
        return [row for row in self.readings if row.figures is not None and row.figures[1] < 1]

    @property
    def reproduced(self) -> list[str]:
        """Return those of them with a way of placing lists that also leaves SVF-EF the best list, as in the paper."""
        consistent = {row.way for row in self.ways if row.svf_is_best}
        return [f"{row.reading}; {row.way}" for row in self.below_in_figures if row.way in consistent]

    @property
    def ruled_out(self) -> bool:
        """Whether no schedule with the printed split can be below SVF-EF on the generated jobs of Fig. 3.7."""
        figure = [row for row in self.floors if in_figures(row.instance)]
        return bool(figure) and all(row.printed > 1 for row in figure)


def run(settings: Settings, log: tuple[Integers, Integers] | None = None, progress: Progress | None = None) -> Report:
    """Run the experiment.

    Parameters
    ----------
    log : (run seconds, processors) of a log's jobs; `SAMPLE` of them are drawn; left out when None.
    """
    report = Report(settings)
    instances = _instances(settings, log)
    found: dict[tuple[str, str], list[Cost]] = {}
    lists: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for index, (instance, jobs) in enumerate(instances):
        if progress is not None:
            progress(instance.name, index / len(instances))
        machines = instance.machines
        others = {name: _cost(name, jobs, machines, made(jobs, machines)) for name, made in OTHERS.items()}
        ours = 0.0
        for way, put in WAYS.items():
            svf, sjf, random = _references(jobs, machines, put, settings.seed)
            ours = ours or svf
            lists[way].append((sjf / svf, svf / ours))
            costs = dict(others)
            for reading in READINGS:
                schedule = reading.schedule(jobs, machines, put)
                if schedule is not None:
                    costs[reading.name] = _cost(reading.name, jobs, machines, schedule)
            for name, cost in costs.items():
                found.setdefault((way, name), []).append(Cost(instance, cost / svf, cost / random))
        report.floors.append(_floor(instance, jobs, ours))
    for (way, name), costs_found in found.items():
        (report.others if name in OTHERS else report.readings).append(_row(way, name, costs_found))
    report.ways = [
        WayRow(way, _span([sjf for sjf, _ in ratios]), _span([svf for _, svf in ratios]))
        for way, ratios in lists.items()
    ]
    report.stretch = stretch_readings(settings.stretch_jobs, settings.stretch_machines, settings.seed)
    return report


def _instances(settings: Settings, log: tuple[Integers, Integers] | None) -> list[tuple[Instance, JobList]]:
    found = [
        (Instance(kind, count, machines), synthetic_jobs(kind, count, settings.seed))
        for kind in SYNTHETIC
        for count, machines in settings.points
    ]
    if log is not None:
        jobs, _ = sampled_jobs(*log, SAMPLE, settings.seed)
        found += [(Instance(LOG, len(jobs), machines), jobs) for machines in settings.log_machines]
    return found


def _references(jobs: JobList, machines: int, rule: ListRule, seed: int) -> tuple[float, float, float]:
    """Return the costs of SVF-EF, SJF-EF and RANDOM-RANDOM."""
    generator = np.random.default_rng([seed, len(jobs)])
    order = generator.permutation(len(jobs))
    chosen = generator.integers(0, machines, len(jobs))
    return (
        _cost("SVF-EF", jobs, machines, rule(jobs, machines, smallest_volume_first(jobs), None)),
        _cost("SJF-EF", jobs, machines, rule(jobs, machines, shortest_job_first(jobs), None)),
        _cost("RANDOM-RANDOM", jobs, machines, rule(jobs, machines, order, chosen)),
    )


def _cost(name: str, jobs: JobList, machines: int, schedule: Schedule) -> float:
    """Return the total completion time of a schedule after the judge found no fault in it."""
    fault = first_fault(jobs, machines, schedule)
    if fault is not None:
        raise CotideError(f"{name} gave a schedule that can't run: {fault}")
    return float(total_completion(jobs, schedule))


def _floor(instance: Instance, jobs: JobList, ours: float) -> FloorRow:
    machines = instance.machines
    printed = apart_floor(jobs, machines, machine_shares(machines)[0])
    best, high = min((apart_floor(jobs, machines, high), high) for high in range(1, machines))
    return FloorRow(instance, optimum_floor(jobs, machines) / ours, printed / ours, best / ours, high)


def _row(way: str, reading: str, found: list[Cost]) -> ReadingRow:
    shown = [cost.svf for cost in found if in_figures(cost.instance)]
    second = [cost for cost in found if cost.instance.workload == SYNTHETIC[1]]
    above = {cost.instance.machines for cost in second if cost.svf >= 1}
    return ReadingRow(
        way,
        reading,
        _span([cost.svf for cost in found]),
        _span([cost.random for cost in found]),
        _span(shown) if shown else None,
        sum(cost.svf < 1 for cost in found),
        len(found),
        tuple(sorted({cost.instance.machines for cost in second} - above)),
    )


def _span(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)
