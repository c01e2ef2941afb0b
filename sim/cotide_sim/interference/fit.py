"""Fits of the measured interference model: tables of a ``colocation`` directory to curves.

Called only by `measured.MeasuredInterference.from_directory`. Invariants: each curve is monotone when it leaves this
module, and its function documents the reading of the data. A broken or missing table is an `InputError`.

The grid's machine and the antagonists' differ (183k and about 50k requests/s on one core), so everything is
compared at equal utilisation: the rate over the saturation rate of its own set-up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_files.columns import Table, read_table
from cotide_sim.traces.colocation import tables as colocation

HISTOGRAMS: Final = "memcached_batch_hist.csv.gz"
GRID_SATURATION: Final = 183_000.0
"""Requests/s at which the grid's memcached saturates one core (the grid's README)."""
NEAR_SATURATION: Final = ((170_000.0, 7.0), (GRID_SATURATION, 500.0))
"""(rate, factor on the latencies at 140k): alone, p95 is 0.2 ms at 140k and 1.4 ms at 170k (the grid's README); at
saturation the queue has no bound, 500 is chosen (0.1 s)."""
NEIGHBOUR_SHARE: Final = 0.5
"""Share of an antagonist's effect on PARSEC run times that an ordinary batch neighbour has; chosen: antagonists are
stress tools that do nothing but contend."""
CORE_TAKERS: Final = ("cpu", "l1i")
"""Antagonists that take the core's time as a second process of equal weight does (they halve the saturation rate)."""
KNEE_MILLISECONDS: Final = 2.0
"""The p95 that marks the knee of the antagonist curves: alone, it is passed just above the saturation rate."""
LATENCIES: Final[Floats] = np.geomspace(0.008, 8000.0, 160)
"""Milliseconds at which tails are kept: from the fastest reply, 8 microseconds, to 8 s; neighbours are 9 % apart."""

Rows = NDArray[np.bool_]


def read_grid(directory: Path) -> Table:
    """Return the grid's columns that the fits need."""
    return read_table(
        directory / colocation.GRID,
        texts=("workload_type",),
        numbers=("input_size_bytes", "rps_target", "order", "censored"),
        optional=("completion_seconds", "completion_est_seconds", "completion_alone_seconds"),
    )


def latency_tails(directory: Path, grid: Table) -> tuple[Floats, Floats, Floats]:
    """Return knots u (m,) and the tails P(latency > x) alone and with a job, each (m, g).

    Alone: the pointwise median over a rate's repetitions (the generator stalled in two of them, by the README). With a
    job: the mean over types, sizes and repetitions, with equal weights, since there a slow minute of the host is part
    of the measurement. Above the measured rates the 140k tail is stretched (`NEAR_SATURATION`). A running maximum along
    u, and of "with a job" over "alone", removes noise in the order of near rates.
    """
    tails = _row_tails(directory, grid)
    rates = grid.numbers["rps_target"]
    alone_rows = np.asarray([name == colocation.NO_JOB for name in grid.texts["workload_type"]])
    levels = np.unique(rates)
    for rows, what in ((alone_rows, "alone"), (~alone_rows, "beside a job")):
        for rate in levels:
            if not np.any(rows & (rates == rate)):
                raise InputError(f"has no row {what} at {rate:.0f} requests/s", file=str(grid.path))
    alone = [np.median(tails[alone_rows & (rates == rate)], axis=0) for rate in levels]
    beside = [tails[~alone_rows & (rates == rate)].mean(axis=0) for rate in levels]
    top_alone, top_beside = alone[-1], beside[-1]
    knots = [rate / GRID_SATURATION for rate in levels]
    for rate, factor in NEAR_SATURATION:
        knots.append(rate / GRID_SATURATION)
        alone.append(_stretched(top_alone, factor))
        beside.append(_stretched(top_beside, factor))
    smooth_alone = np.maximum.accumulate(np.asarray(alone), axis=0)
    smooth_beside = np.maximum(smooth_alone, np.maximum.accumulate(np.asarray(beside), axis=0))
    return np.asarray(knots, dtype=np.float64), smooth_alone, smooth_beside


def batch_slowdowns(grid: Table, knots: Floats) -> dict[str, tuple[float, ...]]:
    """Return each type's factor at the knots: median of run time over lone run time, running maximum along the rate.

    A censored row counts with the grid's estimate (lone cpu seconds over the cpu share it had). Above the highest
    measured rate the factor stays: the job's weight guarantees it a fifth of the core.
    """
    numbers = grid.numbers
    seconds = np.where(numbers["censored"] > 0, numbers["completion_est_seconds"], numbers["completion_seconds"])
    names = np.asarray(grid.texts["workload_type"], dtype=object)
    levels = np.unique(numbers["rps_target"])
    result = {}
    for name in sorted(set(grid.texts["workload_type"]) - {colocation.NO_JOB}):
        curve = []
        for rate in levels:
            rows = (names == name) & (numbers["rps_target"] == rate)
            curve.append(float(np.median(seconds[rows] / numbers["completion_alone_seconds"][rows])))
        curve += [curve[-1]] * (len(knots) - len(curve))
        result[name] = tuple(float(value) for value in np.maximum.accumulate(np.maximum(1.0, curve)))
    return result


def lone_run_times(grid: Table) -> dict[str, tuple[float, float]]:
    """Return (start-up seconds, seconds a byte) of each type by least squares, neither below zero.

    Residuals are weighted by 1 / seconds, so that the small inputs, where start-up shows, count as much as the
    large ones.
    """
    names = np.asarray(grid.texts["workload_type"], dtype=object)
    result = {}
    for name in sorted(set(grid.texts["workload_type"]) - {colocation.NO_JOB}):
        rows = names == name
        sizes, seconds = grid.numbers["input_size_bytes"][rows], grid.numbers["completion_alone_seconds"][rows]
        slope, start = np.polyfit(sizes, seconds, 1, w=1.0 / seconds)
        result[name] = (max(0.0, float(start)), max(0.0, float(slope)))
    return result


def antagonist_contention(directory: Path) -> dict[str, float]:
    """Return k of each antagonist: how much it raises the service time of a request, >= 0.

    k = R / R' - 1. R is the rate where the median p95 passes the knee alone, R' the same with the antagonist. Those
    that take the core pass it at every rate; for them R and R' are the highest rates achieved.
    """
    table = colocation.read_antagonists(directory)
    names = np.asarray(table.texts["interference"], dtype=object)
    if colocation.NO_JOB not in table.texts["interference"]:
        raise InputError("has no row without an antagonist", file=str(table.path))
    found = {}
    for name in sorted(set(table.texts["interference"])):
        rows = names == name
        targets, p95 = table.numbers["target"][rows], table.numbers["p95_us"][rows] / 1000.0
        levels = np.unique(targets)
        medians = np.maximum.accumulate([float(np.median(p95[targets == level])) for level in levels])
        knee = float(np.interp(KNEE_MILLISECONDS, medians, levels))
        found[name] = (knee, float(table.numbers["QPS"][rows].max()))
    alone = found.pop(colocation.NO_JOB)
    return {
        name: max(0.0, alone[which] / value[which] - 1.0)
        for name, value in found.items()
        for which in [1 if name in CORE_TAKERS else 0]
    }


def neighbour_growth(directory: Path) -> float:
    """Return by how much a machine full of batch neighbours stretches a job that has a core of its own, >= 0.

    The mean over the PARSEC programs of run time with the antagonists that spare the core, over run time alone (one
    thread, simlarge), less 1, times `NEIGHBOUR_SHARE`.
    """
    table = colocation.read_runtimes(directory)
    texts, seconds = table.texts, table.numbers["real_s"]
    single = np.asarray([threads == 1 for threads in table.numbers["threads"]])
    ratios: list[float] = []
    for program in sorted(set(texts["benchmark"])):
        for size in sorted(set(texts["input"])):
            rows = single & np.asarray(
                [(b, i) == (program, size) for b, i in zip(texts["benchmark"], texts["input"], strict=True)]
            )
            alone = rows & np.asarray([name == colocation.NO_JOB for name in texts["interference"]])
            beside = rows & np.asarray(
                [name not in (colocation.NO_JOB, *CORE_TAKERS) for name in texts["interference"]]
            )
            if alone.any() and beside.any():
                ratios.append(float(seconds[beside].mean() / seconds[alone].mean()))
    if not ratios:
        raise InputError("has no program measured both alone and beside an antagonist", file=str(table.path))
    return max(0.0, NEIGHBOUR_SHARE * (float(np.mean(ratios)) - 1.0))


def _row_tails(directory: Path, grid: Table) -> Floats:
    """Return (rows, g) P(latency > x) of each grid row from its histogram; unanswered requests are in neither."""
    table = read_table(directory / HISTOGRAMS, numbers=("order", "latency_us", "count"))
    index_of = {int(order): index for index, order in enumerate(grid.numbers["order"])}
    indices = np.asarray([index_of.get(int(order), -1) for order in table.numbers["order"]], dtype=np.intp)
    if np.any(indices < 0):
        row = int(np.flatnonzero(indices < 0)[0])
        raise InputError("no grid row has this order", file=str(table.path), line=table.lines[row], field="order")
    # A request of latency l counts as above x for each kept x < l: bin i holds those with exactly i kept points below.
    above = np.searchsorted(LATENCIES, table.numbers["latency_us"] / 1000.0, side="left")
    counts = np.zeros((len(grid), len(LATENCIES) + 1))
    np.add.at(counts, (indices, above), table.numbers["count"])
    totals = counts.sum(axis=1, keepdims=True)
    if np.any(totals == 0):
        order = int(grid.numbers["order"][int(np.flatnonzero(totals[:, 0] == 0)[0])])
        raise InputError(f"has no histogram for grid row {order}", file=str(table.path), field="order")
    return np.asarray(1.0 - np.cumsum(counts, axis=1)[:, :-1] / totals)


def _stretched(tail: Floats, factor: float) -> Floats:
    """Return the tail of latencies multiplied by ``factor``: P(factor l > x) = P(l > x / factor)."""
    logs = np.log(LATENCIES)
    return np.asarray(np.interp(logs - np.log(factor), logs, tail, left=1.0))
