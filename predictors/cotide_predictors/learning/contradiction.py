"""Whether samples of earlier times contradict the present latency measurements, independent of their labels.

Called by `renewal` before training. A challenger's score shows it only where limits break often enough to train without
the older samples. A store full of kept limits, read in a quiet night, would pass. So latencies themselves are compared,
within cells of one service, rates within a factor of two, and similar mixes. Invariant: pure; samples without a cell in
common never contradict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from cotide_core.recording.samples import MeasuredMix
from cotide_predictors.learning.reservoir import Cell, cell_of

APART: Final = math.log(2.0)
"""Cells with medians further apart than a factor of two contradict (chosen: the effect of a cell's own range of rates
on a latency, below saturation).
"""
LEAST_CELLS: Final = 8
"""Fewest cells in common for a judgement (chosen)."""
LEAST_SHARE: Final = 0.5
"""Share of cells above which the samples contradict: one service that changed is left to the challenge (chosen)."""


def contradicts(older: Sequence[MeasuredMix], latest: Mapping[str, Sequence[MeasuredMix]]) -> bool:
    """Whether the latencies of most common cells are more than a factor of two apart."""
    before, now = _medians(older), _medians(sample for samples in latest.values() for sample in samples)
    common = before.keys() & now.keys()
    apart = sum(abs(before[cell] - now[cell]) > APART for cell in common)
    return len(common) >= LEAST_CELLS and apart > LEAST_SHARE * len(common)


def _medians(samples: Iterable[MeasuredMix]) -> dict[Cell, float]:
    """Return the median of the log of the latency, by cell."""
    logs: dict[Cell, list[float]] = {}
    for sample in samples:
        logs.setdefault(cell_of(sample), []).append(math.log(sample.latency))
    return {cell: median(values) for cell, values in logs.items()}
