"""A campaign of `cotide profile` beside the measured grid of memcached and batch jobs: is it the same within noise?

Run with ``python benchmarks/predictors/profile_grid.py CAMPAIGN GRID.csv``; CAMPAIGN is the ``--out`` of `cotide
profile active`, its jobs named as the grid's types. Prints one row for each cell that both have (geometric means of the
p95 in microseconds), then the median of |log ratio| over them: of the p95 itself, and of the p95 over that of the
service alone at the same rate, which leaves out how fast the machines are. Beside both stands what the grid says of
itself: the same figure between its own repetitions, and an interval of that figure's median over draws of as many
cells. Ends with exit code 3 where the first median lies above that interval.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from cotide_lab.predictors.profiling.findings import by_cell
from cotide_lab.profile.journal import Journal

ALONE: Final = "none"
DRAWS: Final = 10_000
MISSED: Final = 3


class Key(NamedTuple):
    """A cell that both may have: the type of the one job, ``none`` for the service alone, and the rate."""

    kind: str
    rate: float


class GridRow(NamedTuple):
    """One measurement of the grid: cell, input size, and p95 in microseconds."""

    key: Key
    input_bytes: float
    microseconds: float


def read_grid(path: Path) -> list[GridRow]:
    """Return all rows of the grid's file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            GridRow(
                Key(row["workload_type"], float(row["rps_target"])),
                float(row["input_size_bytes"] or 0),
                float(row["p95_us"]),
            )
            for row in csv.DictReader(file)
        ]


def campaign_means(journal: Journal) -> dict[Key, float]:
    """Return the geometric mean of the p95 by cell, in microseconds, of cells with one job or none."""
    found = {}
    for cell, values in by_cell(journal.windows).items():
        if cell.jobs() <= 1:
            kind = cell.mix[0][0] if cell.mix else ALONE
            found[Key(kind, cell.rate)] = 1000.0 * geometric_mean(values)
    return found


def grid_means(rows: Sequence[GridRow], sizes: Mapping[str, float]) -> dict[Key, float]:
    """Return the geometric mean of the p95 by cell: of a type at its size, or at any where it has none."""
    values: defaultdict[Key, list[float]] = defaultdict(list)
    for row in rows:
        if row.key.kind == ALONE or sizes.get(row.key.kind, row.input_bytes) == row.input_bytes:
            values[row.key].append(row.microseconds)
    return {key: geometric_mean(found) for key, found in values.items()}


def repetitions(rows: Sequence[GridRow], rates: set[float]) -> list[float]:
    """Return |log ratio| of each cell that the grid measured twice beside a job, at these rates."""
    by: defaultdict[tuple[Key, float], list[float]] = defaultdict(list)
    for row in rows:
        if row.key.kind != ALONE and row.key.rate in rates:
            by[row.key, row.input_bytes].append(math.log(row.microseconds))
    return [abs(one[0] - one[1]) for one in by.values() if len(one) == 2]


def geometric_mean(values: Sequence[float]) -> float:
    """Return it, of values above 0."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def interval_of_median(values: Sequence[float], count: int) -> tuple[float, float]:
    """Return where 95 % of the medians of ``count`` draws lie."""
    draws = np.random.default_rng(0).choice(np.asarray(values), (DRAWS, count))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975)).tolist()
    return low, high


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("campaign", type=Path)
    parser.add_argument("grid", type=Path)
    options = parser.parse_args()
    journal, rows = Journal(options.campaign, None), read_grid(options.grid)
    ours = campaign_means(journal)
    grid = grid_means(rows, {job.kind.name: float(job.kind.input_bytes) for job in journal.plan.jobs})
    both = sorted(set(ours) & set(grid))
    print("job      rate/s   ours us   grid us   ratio   over alone: ours   grid   ratio")
    shares: dict[Key, float] = {}
    for key in both:
        alone = Key(ALONE, key.rate)
        line = f"{key.kind:8} {key.rate:6.0f} {ours[key]:9.0f} {grid[key]:9.0f} {ours[key] / grid[key]:7.2f}"
        if key.kind != ALONE and alone in both:
            own, theirs = ours[key] / ours[alone], grid[key] / grid[alone]
            shares[key] = own / theirs
            line += f" {own:18.2f} {theirs:6.2f} {own / theirs:7.2f}"
        print(line)
    beside = [key for key in both if key.kind != ALONE]
    if not beside:
        parser.error("campaign and grid have no cell beside a job in common")
    again = repetitions(rows, {key.rate for key in beside})
    low, high = interval_of_median(again, len(beside))
    median = float(np.median([abs(math.log(ours[key] / grid[key])) for key in beside]))
    print(f"{len(beside)} cells beside a job: |log ratio| {median:.2f} in the median")
    if shares:
        logs = [abs(math.log(share)) for share in shares.values()]
        print(f"{len(logs)} of them over the service alone: {float(np.median(logs)):.2f}")
    alone_logs = [abs(math.log(ours[key] / grid[key])) for key in both if key.kind == ALONE]
    print(f"{len(alone_logs)} cells alone: {float(np.median(alone_logs)) if alone_logs else math.nan:.2f}")
    print(
        f"grid to itself, {len(again)} repetitions: {np.median(again):.2f}; "
        f"of {len(beside)} drawn {low:.2f} to {high:.2f}"
    )
    sys.exit(0 if median <= high else MISSED)


if __name__ == "__main__":
    main()
