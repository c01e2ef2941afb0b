"""List prices of transfers between a provider's regions.

Called by the placement experiment. Invariant: a price for every pair of regions, >= 0, in dollars per gigabyte.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_files.rows import stream_rows

FILE: Final = "economy/network_cost_gcp_usd_per_gb.csv"


def read_transfer_costs(directory: Path, regions: tuple[str, ...]) -> NDArray[np.float64]:
    """Return (n, n) dollars per gigabyte from region to region.

    Raises
    ------
    InputError
        When the file is missing or broken, or lacks a region.
    """
    path = directory / FILE
    found: dict[str, list[float]] = {}
    for row in stream_rows(path, ("", *regions), what="transfer costs"):
        found[row.text("")] = [row.number(region) for region in regions]
    for region in regions:
        if region not in found:
            raise InputError(f"lacks the region {region!r}", file=str(path))
    return np.array([found[region] for region in regions])
