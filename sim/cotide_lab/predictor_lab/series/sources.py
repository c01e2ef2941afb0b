"""The series of a cell: load series in any known format, requests of a service in five-minute slots.

Called by `series.task`. Invariant: a rate is scaled by the series' highest slot of its first half, so that later slots
cannot move a unit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictor_lab.cells import LabSource
from cotide_sim.traces.load.any_load import read_load_series
from cotide_sim.traces.load.worldcup98 import FILE, read_worldcup98
from cotide_sim.workloads.generated_load import generated_load

RATE_FILE: Final = Path(FILE).name
MINUTES: Final = 5


def read_series(source: LabSource, seed: int) -> Floats:
    """Return (n, m) series; at most ``hosts`` of them, drawn by the seed, and at most ``limit`` slots.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    if source.path is None:
        load = generated_load(seed).load
    elif source.name == RATE_FILE:
        load = _rates(source.path)
    else:
        load = read_load_series(source.path).load
    if source.limit is not None:
        load = load[:, : source.limit]
    if source.hosts is not None and source.hosts < len(load):
        chosen = np.random.default_rng(seed).choice(len(load), source.hosts, replace=False)
        load = load[np.sort(chosen)]
    return np.ascontiguousarray(load)


def _rates(path: Path) -> Floats:
    """Return (1, m) requests in each five minutes."""
    minutes = read_worldcup98(path.parent.parent).requests
    whole = len(minutes) // MINUTES * MINUTES
    slots = minutes[:whole].reshape(-1, MINUTES).sum(axis=1).astype(np.float64)
    found: Floats = slots[None, :] / slots[: len(slots) // 2].max()
    return found
