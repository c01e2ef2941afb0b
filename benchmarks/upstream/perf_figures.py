"""What runs of `upstream_perf` show: rates, processor time, evenness and faults of a scheduler beside kube-scheduler's.

A run is a JSON object that `run_of` makes. Of repeated runs the median of each figure counts, and the sum of faults.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

KUBE_SCHEDULER: Final = "kube-scheduler"
THOUSAND: Final = 1000
Json = dict[str, Any]


def run_of(late: Sequence[float], pods: int, cpu_seconds: float) -> Json:
    """Return the figures of bindings that came so many seconds late, of so many pods."""
    last = max(late, default=0.0)
    return {
        "pods": pods,
        "bound": len(late),
        "seconds": round(last, 3),
        "pods_per_second": round(len(late) / last, 1) if last else 0.0,
        "cpu_seconds_per_1000_pods": round(THOUSAND * cpu_seconds / len(late), 3) if late else 0.0,
    }


@dataclass(frozen=True, slots=True)
class Figures:
    """One scheduler and one workload, all repeats.

    Attributes
    ----------
    faults : broken rules, pods without a node and errors, each with its number; empty where all is well.
    """

    pods_per_second: float
    cpu_seconds_per_1000_pods: float
    most_on_one_node: int
    zone_skew: int
    faults: Mapping[str, int]

    @classmethod
    def of(cls, runs: Sequence[Json]) -> Figures:
        faults: dict[str, int] = {}
        for run in runs:
            counted = {**run["violations"], "not bound": run["pods"] - run["bound"] + run["unbound"]}
            counted["error"] = len(run["faults"])
            for fault, number in counted.items():
                if number:
                    faults[fault] = faults.get(fault, 0) + number
        return cls(
            _median(runs, "pods_per_second"),
            _median(runs, "cpu_seconds_per_1000_pods"),
            max(run["most_on_one_node"] for run in runs),
            max(run["zone_skew"] for run in runs),
            faults,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One workload under a scheduler and under kube-scheduler."""

    workload: str
    mine: Figures
    other: Figures

    @property
    def ratio(self) -> float | None:
        """Pods a second, mine over kube-scheduler's; None where one of the two bound none."""
        both = self.mine.pods_per_second, self.other.pods_per_second
        return both[0] / both[1] if all(both) else None

    @property
    def cpu_ratio(self) -> float | None:
        """Processor time of a pod, mine over kube-scheduler's."""
        both = self.mine.cpu_seconds_per_1000_pods, self.other.cpu_seconds_per_1000_pods
        return both[0] / both[1] if all(both) else None


def comparisons(runs: Iterable[Json], scheduler: str) -> list[Comparison]:
    """Return the workloads that both a scheduler and kube-scheduler ran, by name."""
    by_key: dict[tuple[str, str], list[Json]] = {}
    for run in runs:
        by_key.setdefault((run["workload"], run["scheduler"]), []).append(run)
    names = sorted({name for name, of in by_key if of == scheduler})
    return [
        Comparison(name, Figures.of(by_key[name, scheduler]), Figures.of(by_key[name, KUBE_SCHEDULER]))
        for name in names
        if (name, KUBE_SCHEDULER) in by_key
    ]


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the ratios that there are; None of none."""
    known = [math.log(ratio) for ratio in ratios if ratio]
    return math.exp(statistics.fmean(known)) if known else None


HEADS: Final = (
    "workload", "pods/s kube-scheduler", "pods/s Cotide", "ratio", "cpu kube-scheduler", "cpu Cotide",
    "most on a node", "zone skew", "faults kube-scheduler", "faults Cotide",
)  # fmt: skip
"""cpu: seconds of the scheduler for 1,000 pods. most on a node, zone skew: kube-scheduler, then Cotide."""


def rows(compared: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return the table's rows in the order of `HEADS`, the means last."""
    found = [
        (
            one.workload,
            f"{one.other.pods_per_second:.0f}",
            f"{one.mine.pods_per_second:.0f}",
            _ratio(one.ratio),
            f"{one.other.cpu_seconds_per_1000_pods:.2f}",
            f"{one.mine.cpu_seconds_per_1000_pods:.2f}",
            f"{one.other.most_on_one_node}, {one.mine.most_on_one_node}",
            f"{one.other.zone_skew}, {one.mine.zone_skew}",
            _faults(one.other),
            _faults(one.mine),
        )
        for one in compared
    ]
    mean = _ratio(geometric_mean(one.ratio for one in compared))
    cpu = _ratio(geometric_mean(one.cpu_ratio for one in compared))
    return [*found, ("geometric mean", "", "", mean, "", f"x {cpu}", "", "", "", "")]


def table(compared: Sequence[Comparison]) -> str:
    """Return the rows as text in columns."""
    lines = [HEADS, *rows(compared)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    printed = []
    for first, *cells in lines:
        columns = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        printed.append("  ".join((first.ljust(widths[0]), *columns)))
    return "\n".join(printed)


def faulty(compared: Sequence[Comparison]) -> list[str]:
    """Return the workloads in which the scheduler breaks a rule or leaves a pod that kube-scheduler does not."""
    return [
        one.workload
        for one in compared
        if any(number > one.other.faults.get(fault, 0) for fault, number in one.mine.faults.items())
    ]


def _median(runs: Sequence[Json], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _faults(figures: Figures) -> str:
    return ", ".join(f"{number} {fault}" for fault, number in figures.faults.items()) or "none"
