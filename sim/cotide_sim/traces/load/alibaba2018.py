"""Reader of the machine usage of the Alibaba 2018 trace: irregular samples, folded to maxima of five-minute slots.

Called by `experiments.host_load.forecasts`. A slot's value is the maximum inside it (Jiang et al., section V).
Invariant: a slot without a sample is nan; the machines report nothing for hours, and that is no idleness.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_files.rows import stream_rows
from cotide_predictors.host_load.slots import slot_maxima
from cotide_sim.traces.load.load_series import PERCENT, SLOT_SECONDS, SLOTS_MAX, LoadSeries, check_cells, file_of

FILE: Final = "alibaba/alibaba2018_machine_usage_10machines.csv.gz"
PATTERN: Final = "alibaba/alibaba2018_machine_usage*.csv*"


def read_alibaba2018_usage(source: Path) -> LoadSeries:
    """Return the cpu usage of each machine as shares of 100 percent; ``source``: the file, or a data directory.

    Raises
    ------
    InputError
        When the file is missing or a row is broken; names file, line and column.
    """
    samples: dict[str, tuple[list[float], list[float]]] = {}
    path = file_of(source, FILE, PATTERN)
    for row in stream_rows(path, ("machine", "time_s", "cpu_percent"), what="Alibaba 2018 machine usage"):
        load = row.optional_number("cpu_percent")
        times, loads = samples.setdefault(row.text("machine"), ([], []))
        time = row.number("time_s")
        if time >= SLOTS_MAX * SLOT_SECONDS:
            raise row.error("time_s", f"{time:g} s is beyond {SLOTS_MAX} slots of {SLOT_SECONDS:g} s")
        times.append(time)
        # The trace marks a broken sample with a value above 100.
        loads.append(load * PERCENT if load is not None and load <= 100 else np.nan)
    if not samples:
        raise InputError("has no rows", file=str(path))
    slots = 1 + int(max(max(times) for times, _ in samples.values()) // SLOT_SECONDS)
    check_cells(path, len(samples), slots)
    load_rows = [
        slot_maxima(np.asarray(times), np.asarray(loads), slot_seconds=SLOT_SECONDS, slots=slots)
        for times, loads in samples.values()
    ]
    return LoadSeries("alibaba2018", tuple(samples), np.stack(load_rows))
