"""The design of a campaign: cells of rate and mix, and which of them is measured next.

Called by `campaign` for each window. Pure. Invariants: the first pass goes up from the least harmful cell, so that it
meets harm from below. Cells that a harmful cell dominates are never measured. Later passes are in random order, so that
a slowing machine is not taken for an effect of the rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

import numpy as np

Mix = tuple[tuple[str, int], ...]
"""Job names with their counts, sorted by name; empty for the service alone."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One rate (requests/s, > 0) next to one mix."""

    rate: float
    mix: Mix = ()

    def jobs(self) -> int:
        """Return the number of concurrent jobs."""
        return sum(count for _, count in self.mix)

    def covers(self, other: Self) -> bool:
        """Whether this cell is at least as hard as another: no lower rate, and no fewer jobs of any name."""
        own = dict(self.mix)
        return self.rate >= other.rate and all(own.get(name, 0) >= count for name, count in other.mix)

    def named(self) -> str:
        """Return the mix as text."""
        return " + ".join(f"{count} {name}" for name, count in self.mix) or "alone"


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for when a cell is known.

    Attributes
    ----------
    least, most : number of windows of a cell; 2 <= least <= most.
    width : largest accepted half width of the p95's interval, as a share of the p95; > 0.
    harm_milliseconds : a higher p95 is harm: the cell is left, and with it all cells that cover it; infinite for never.
    """

    least: int = 3
    most: int = 8
    width: float = 0.25
    harm_milliseconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Interval:
    """The p95 of a cell over its windows: geometric mean and 95 % interval, in milliseconds."""

    middle: float
    low: float
    high: float
    windows: int


class Standing(StrEnum):
    """The state of a cell."""

    OPEN = "open"
    KNOWN = "known"
    NOISY = "noisy"
    """The cell has all allowed windows, and the interval is still wide."""
    HARMFUL = "harmful"
    SKIPPED = "skipped"
    """Covers a harmful cell."""


LEVEL: Final = 0.95


def p95_interval(p95_milliseconds: Sequence[float]) -> Interval:
    """Return the interval of a cell's p95 from those of its windows.

    Student's t on the logs: the windows are repetitions with their own state of the machine, which requests within one
    window are not. One window has no interval: from 0 to infinity.

    Parameters
    ----------
    p95_milliseconds : one for each window, > 0; at least one.
    """
    logs = np.log(np.asarray(p95_milliseconds, np.float64))
    middle = float(logs.mean())
    if len(logs) < 2:
        return Interval(math.exp(middle), 0.0, math.inf, len(logs))
    from scipy.stats import t as student

    half = float(student.ppf(0.5 + LEVEL / 2, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half), len(logs))


def is_narrow(interval: Interval, width: float) -> bool:
    """Whether the interval ends within the share ``width`` above its middle."""
    return interval.high <= interval.middle * (1.0 + width)


def cells_of(rates: Sequence[float], mixes: Sequence[Mix]) -> tuple[Cell, ...]:
    """Return every rate with every mix, the least harmful first: few jobs before many, low rates before high."""
    found = {Cell(float(rate), mix) for rate in rates for mix in mixes}
    return tuple(sorted(found, key=lambda cell: (cell.jobs(), cell.rate, cell.mix)))


def standings(cells: Sequence[Cell], measured: Mapping[Cell, Sequence[float]], rule: Rule) -> dict[Cell, Standing]:
    """Return the state of each cell after the windows so far (p95 in ms, by cell)."""
    harmful = [cell for cell in cells if any(value > rule.harm_milliseconds for value in measured.get(cell, ()))]
    found = {}
    for cell in cells:
        values = measured.get(cell, ())
        if cell in harmful:
            found[cell] = Standing.HARMFUL
        elif any(cell.covers(other) for other in harmful):
            found[cell] = Standing.SKIPPED
        elif len(values) < rule.least:
            found[cell] = Standing.OPEN
        elif is_narrow(p95_interval(values), rule.width):
            found[cell] = Standing.KNOWN
        else:
            found[cell] = Standing.OPEN if len(values) < rule.most else Standing.NOISY
    return found


def next_cell(cells: Sequence[Cell], measured: Mapping[Cell, Sequence[float]], rule: Rule, seed: int) -> Cell | None:
    """Return the cell of the next window; None when every cell is known, noisy, harmful or skipped.

    Cells with the fewest windows come first. The same windows and seed give the same cell, so that a stopped campaign
    goes on unchanged.
    """
    where = standings(cells, measured, rule)
    found = [cell for cell in cells if where[cell] is Standing.OPEN]
    if not found:
        return None
    fewest = min(len(measured.get(cell, ())) for cell in found)
    due = [cell for cell in found if len(measured.get(cell, ())) == fewest]
    if fewest == 0:
        return due[0]
    windows = sum(map(len, measured.values()))
    return due[int(np.random.default_rng((seed, windows)).integers(len(due)))]


def windows_left(cells: Sequence[Cell], measured: Mapping[Cell, Sequence[float]], rule: Rule) -> int:
    """Return the least number of missing windows; a cell that stays wide takes more."""
    where = standings(cells, measured, rule)
    return sum(max(1, rule.least - len(measured.get(cell, ()))) for cell in cells if where[cell] is Standing.OPEN)
