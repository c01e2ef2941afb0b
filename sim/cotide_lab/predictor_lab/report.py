"""The lab's tables: figures with intervals, ranks with a critical difference, and one sentence with the winner of each.

Called by `cotide lab report`. Seeds of one predictor are averaged. Invariant: pure; ordered by content, not by time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotide_lab.predictor_lab.blocks import (
    Blocks,
    Interval,
    critical_difference,
    difference_interval,
    mean_interval,
    mean_ranks,
)
from cotide_lab.predictor_lab.cells import HIGHER_IS_BETTER, LabOutcome, Task

FIRST_FIGURE: Final[dict[Task, str]] = {
    "run-time": "accuracy", "usage-path": "mase", "host-peak": "pinball_99", "service-rate": "mase",
}  # fmt: skip
"""The figure that orders a task's table."""
DECISIONS: Final[dict[Task, tuple[str, ...]]] = {
    "run-time": (
        "easy_slowdown", "easy_sjbf_slowdown", "hybrid_slowdown",
        "easy_wait_seconds", "easy_sjbf_wait_seconds", "hybrid_wait_seconds",
    ),
    "usage-path": ("nodes_at_overload", "capacity_at_shortfall"),
    "host-peak": ("slack_at_violations",), "service-rate": ("capacity_at_shortfall",),
}  # fmt: skip
"""Figures of the decision behind a task, where the run has them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One predictor on one data set: means over seeds, and the first figure's interval and distance to the best."""

    predictor: str
    seeds: int
    figures: dict[str, float]
    costs: dict[str, float]
    first: Interval
    behind_best: Interval


@dataclass(frozen=True, slots=True)
class Table:
    """One task on one data set, best row first; ``missing`` names predictors without figures and why."""

    task: Task
    data: str
    settings: str
    count: int
    rows: tuple[Row, ...]
    missing: tuple[tuple[str, str], ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class Ranks:
    """Mean ranks of a task's predictors over its data sets, by error and by each decision."""

    task: Task
    sets: int
    figure: str
    ranks: dict[str, float]
    critical_difference: float | None


def tables_of(outcomes: Iterable[LabOutcome]) -> list[Table]:
    """Return a table for each task and data set."""
    groups: dict[tuple[Task, str, str], list[LabOutcome]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.cell.rank):
        groups.setdefault((outcome.cell.task, outcome.cell.data, outcome.cell.settings), []).append(outcome)
    return [_table(*key, found) for key, found in groups.items()]


def ranks_of(tables: Sequence[Table]) -> list[Ranks]:
    """Return mean ranks by error and by decision of each task."""
    found = []
    for task in dict.fromkeys(table.task for table in tables):
        for figure in (FIRST_FIGURE[task], *DECISIONS[task]):
            scores = {
                f"{table.data} {table.settings}": values
                for table in tables
                if table.task == task
                and (values := {row.predictor: row.figures[figure] for row in table.rows if figure in row.figures})
            }
            ranks = mean_ranks(scores, higher_is_better=figure in HIGHER_IS_BETTER)
            if ranks:
                ordered = dict(sorted(ranks.items(), key=lambda pair: (pair[1], pair[0])))
                apart = critical_difference(len(ranks), len(scores)) if len(ranks) > 1 else None
                found.append(Ranks(task, len(scores), figure, ordered, apart))
    return found


def as_document(tables: Sequence[Table], ranks: Sequence[Ranks]) -> dict[str, Any]:
    """Return the report as one JSON document."""
    from dataclasses import asdict

    return {"tables": [asdict(table) for table in tables], "ranks": [asdict(rank) for rank in ranks]}


def _table(task: Task, data: str, settings: str, outcomes: list[LabOutcome]) -> Table:
    first = FIRST_FIGURE[task]
    sign = -1.0 if first in HIGHER_IS_BETTER else 1.0
    by_name: dict[str, list[LabOutcome]] = {}
    for outcome in outcomes:
        if outcome.error is None:
            by_name.setdefault(outcome.cell.predictor, []).append(outcome)
    means = {name: _means([lab_outcome.figures for lab_outcome in found]) for name, found in by_name.items()}
    blocks = {name: pooled([lab_outcome.blocks[first] for lab_outcome in found]) for name, found in by_name.items()}
    ordered = sorted(means, key=lambda name: (sign * means[name][first], name))
    rows = tuple(
        Row(
            name, len(by_name[name]), means[name], _means([lab_outcome.costs for lab_outcome in by_name[name]]),
            mean_interval(blocks[name]), difference_interval(blocks[name], blocks[ordered[0]]),
        )
        for name in ordered
    )  # fmt: skip
    missing = tuple(
        (lab_outcome.cell.predictor, lab_outcome.error) for lab_outcome in outcomes if lab_outcome.error is not None
    )
    count = max((lab_outcome.count for lab_outcome in outcomes), default=0)
    return Table(task, data, settings, count, rows, missing, _sentence(data, first, rows))


def _sentence(data: str, figure: str, rows: Sequence[Row]) -> str:
    """Return a sentence with the winner, and with the predictors within noise of it."""
    if not rows:
        return f"{data}: no predictor has figures."
    near = [row.predictor for row in rows[1:] if not _apart(row.behind_best)]
    sentence = f"{data}: {rows[0].predictor} is best by {figure} ({rows[0].first.value:.4g})"
    return f"{sentence}, not beyond noise ahead of {', '.join(near)}." if near else f"{sentence}, beyond noise."


def _apart(difference: Interval) -> bool:
    """Return whether an interval leaves out 0; False without an interval."""
    if difference.low is None or difference.high is None:
        return False
    return difference.low > 0.0 or difference.high < 0.0


def _means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    names = [name for name in found[0] if all(name in item for item in found)]
    return {name: sum(item[name] for item in found) / len(found) for name in names}


def pooled(found: Sequence[Blocks]) -> Blocks:
    """Add the blocks of seeds, which cover the same times."""
    sums = tuple(sum(column) for column in zip(*(pair[0] for pair in found), strict=False))
    counts = tuple(sum(column) for column in zip(*(pair[1] for pair in found), strict=False))
    return sums, counts
