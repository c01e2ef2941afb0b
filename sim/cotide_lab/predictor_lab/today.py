"""Does any predictor beat Cotide's present one, by the decision behind a task?

Called by `cotide lab report`. On each data set a predictor beats today's where the whole 95 % interval of the
difference lies on its side. The interval is Student's over blocks of time, since these are few. Many predictors are
compared with one, so the interval is widened for their number (Bonferroni): otherwise one of twenty would win by luck.
Invariant: pure; without a run of today's predictor there is no sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cotide_lab.predictor_lab.blocks import Blocks, Interval, paired_interval
from cotide_lab.predictor_lab.cells import HIGHER_IS_BETTER, LabOutcome, Task
from cotide_lab.predictor_lab.report import DECISIONS, pooled

TODAY: Final[dict[Task, str]] = {"run-time": "mixture", "usage-path": "host-load", "host-peak": "host-load"}
"""The predictor that decides in the operator and in ``hybrid``; a service's rate is taken as measured."""
ERROR: Final = 0.05


@dataclass(frozen=True, slots=True)
class AgainstToday:
    """One decision on one data set.

    Attributes
    ----------
    better : predictors that beat today's beyond noise, with the difference and its interval, best first.
    nearest : the predictor that is closest to it, or ahead of it within noise; None where all others are better.
    """

    task: Task
    data: str
    figure: str
    today: str
    better: dict[str, Interval]
    nearest: tuple[str, Interval] | None
    sentence: str


def against_today(outcomes: Iterable[LabOutcome]) -> list[AgainstToday]:
    """Return each decision on each data set with runs of today's predictor and of another."""
    groups: dict[tuple[Task, str, str, str], dict[str, list[Blocks]]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.cell.rank):
        cell = outcome.cell
        for figure in DECISIONS[cell.task]:
            if outcome.error is None and figure in outcome.blocks:
                found = groups.setdefault((cell.task, cell.data, cell.settings, figure), {})
                found.setdefault(cell.predictor, []).append(outcome.blocks[figure])
    return [
        _compared(task, data, figure, TODAY[task], {name: pooled(blocks) for name, blocks in found.items()})
        for (task, data, _, figure), found in groups.items()
        if TODAY.get(task) in found and len(found) > 1
    ]


def _compared(task: Task, data: str, figure: str, today: str, blocks: dict[str, Blocks]) -> AgainstToday:
    sign = 1.0 if figure in HIGHER_IS_BETTER else -1.0
    others = [name for name in blocks if name != today]
    level = 1.0 - ERROR / len(others)
    found = {name: paired_interval(blocks[name], blocks[today], level) for name in others}
    ordered = sorted(found, key=lambda name: (-sign * found[name].value, name))
    better = {name: found[name] for name in ordered if _beyond(found[name], sign)}
    nearest = next(((name, found[name]) for name in ordered if name not in better), None)
    return AgainstToday(task, data, figure, today, better, nearest, _sentence(data, figure, today, better, nearest))


def _beyond(difference: Interval, sign: float) -> bool:
    if difference.low is None or difference.high is None:
        return False
    return (difference.low if sign > 0 else -difference.high) > 0


def _sentence(
    data: str, figure: str, today: str, better: dict[str, Interval], nearest: tuple[str, Interval] | None
) -> str:
    if better:
        winners = ", ".join(f"{name} ({_shown(interval)})" for name, interval in better.items())
        return f"{data}: by {figure} better than {today}, beyond noise: {winners}."
    closest = "" if nearest is None else f"; nearest is {nearest[0]} ({_shown(nearest[1])})"
    return f"{data}: by {figure} no predictor beats {today} beyond noise{closest}."


def _shown(difference: Interval) -> str:
    if difference.low is None or difference.high is None:
        return f"{difference.value:+.3g}, too few blocks"
    return f"{difference.value:+.3g}, {difference.low:+.3g} to {difference.high:+.3g}"
