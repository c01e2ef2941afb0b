"""The value of the path of the next hour: fewer nodes for the series, and less capacity held for their sum.

Called by `task`. Consolidation repacks all series each hour with first fit (`cotide_lab.consolidation.ffd`), with the
twelve slots of a path as twelve resources of a node. Provisioning holds capacity for the highest slot of the sum. Each
predictor gets the margin, in the series' own units, at which the agreed share is short. It is set in hindsight by one
rule for all, as for slack, so the comparison is of the cost of the same safety. Invariant: pure; same paths, same
figures.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.consolidation.ffd import ffd
from cotide_lab.consolidation.instance import Instance

SHORT_HOURS: Final = 0.05
"""Share of hours with too little capacity for the sum (chosen, as for slack)."""
OVERLOADED: Final = 0.01
"""Share of the used nodes' slots above the node's capacity in the count of nodes (chosen)."""
SERIES_A_NODE: Final = 4.0
"""Size of a node: this number of mean peaks of the first half, at least the largest series (chosen: some eight typical
loads).
"""
UNITS: Final = 10_000
"""Of a node's capacity: packing is in whole numbers."""
MARGINS: Final = (-4.0, 16.0)
"""Range of the margin, in units of a series' hourly change (chosen)."""
HALVINGS: Final = 9
"""Of that range: to a twenty-fifth of a unit (chosen)."""


def capacity_held(truth: Floats, paths: Floats, scale: Floats) -> Floats:
    """Return (o,) capacity held for each hour's highest slot of the sum, in shares of its mean.

    Parameters
    ----------
    truth, paths : (o, n, h), nan in the truth where there is no record. scale : (n,) the series' units.
    """
    needed, said = (np.nan_to_num(values).sum(axis=1).max(axis=1) for values in (truth, paths))
    unit = float(scale.sum())
    margin = float(np.quantile((needed - said) / unit, 1.0 - SHORT_HOURS))
    found: Floats = np.maximum(said + margin * unit, 0.0) / max(float(needed.mean()), 1e-12)
    return found


def nodes_needed(truth: Floats, paths: Floats, scale: Floats, capacity: float) -> Floats:
    """Return (o,) nodes used in each hour, with the least margin that overloads no more than `OVERLOADED`.

    Parameters
    ----------
    capacity : of a node, in the unit of the series.
    """
    low, high = MARGINS
    best, _ = _packed(truth, paths + high * scale[None, :, None], capacity)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        nodes, overloaded = _packed(truth, paths + middle * scale[None, :, None], capacity)
        if overloaded <= OVERLOADED:
            best, high = nodes, middle
        else:
            low = middle
    return best


def node_capacity(first_half: Floats) -> float:
    """Return the capacity of a node for (n, t) series."""
    peaks = np.nanmax(np.nan_to_num(first_half), axis=1)
    return max(SERIES_A_NODE * float(peaks.mean()), float(peaks.max()), 1e-12)


def _packed(truth: Floats, planned: Floats, capacity: float) -> tuple[Floats, float]:
    """Pack each hour by the planned loads; return (o,) nodes used, and the overloaded share of their slots."""
    hours, series, slots = planned.shape
    sizes = np.clip(np.ceil(planned / capacity * UNITS), 0, UNITS).astype(np.int64)
    capacities = np.full((series, slots), UNITS, dtype=np.int64)
    homes, known = np.arange(series, dtype=np.int64), np.nan_to_num(truth)
    nodes, overloaded = np.zeros(hours), 0
    for hour in range(hours):
        found = ffd(Instance(sizes[hour], homes, capacities))
        nodes[hour] = found.nodes_used
        loads = np.zeros((series, slots))
        np.add.at(loads, found.targets, known[hour])
        overloaded += int((loads > capacity).sum())
    return nodes, overloaded / (nodes.sum() * slots)
