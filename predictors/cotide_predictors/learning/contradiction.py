"""Whether samples of earlier times say another latency than what is measured now, whatever their labels are.

Called by `renewal` before anything learns from them. A challenger's score says so only where limits break often enough
to train without the older samples; a store in which every limit holds, read in a quiet night, would pass. So latencies
themselves are compared, within cells of one service, rates within a factor of two, and like mixes. Invariant: pure;
what has no cell in common contradicts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from cotide_core.recording.samples import MeasuredMix
from cotide_predictors.learning.reservoir import Cell, cell_of

APART: Final = math.log(2.0)
"""Cells whose medians are further apart than by a factor of two say another thing (chosen: what a cell's own range of
rates moves a latency by, below saturation)."""
LEAST_CELLS: Final = 8
"""Cells in common that are asked for (chosen)."""
LEAST_SHARE: Final = 0.5
"""More cells than this share must be apart: one service that changed is left to the challenge (chosen)."""


def contradicts(older: Sequence[MeasuredMix], latest: Mapping[str, Sequence[MeasuredMix]]) -> bool:
    """Whether most cells that both have say latencies more than a factor of two apart."""
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
