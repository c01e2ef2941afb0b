"""The load of a node's online pods from the usage of pods: one rule for the present and for the rebuilt history.

Called by `sampler` and `history`. Pure arrays. Invariants: the unknown usage of a pod counts as its requests, never as
zero. A node has no load (nan) when the usage of more than half of its pods is unknown.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_core.state.host_load import IMPOSSIBLE
from cotide_operator.usage.sources import MEMORY

Rows = NDArray[np.intp]


def believable(usage: Floats, physical: Floats) -> NDArray[np.bool_]:
    """Return which values (2, P, ...) are possible usages of a pod on a node of this capacity (2, P, ...).

    A pod uses at most the capacity (`IMPOSSIBLE` allows for the system's reserve). A pod always uses memory: some
    pipelines show a missing number as zero. Zero cpu is valid for an idle pod.
    """
    with np.errstate(invalid="ignore"):
        found: NDArray[np.bool_] = np.isfinite(usage) & (usage >= 0) & (usage <= IMPOSSIBLE * physical)
    found[MEMORY] &= usage[MEMORY] > 0
    return found


def node_loads(rows: Rows, usage: Floats, requests: Floats, nodes: int) -> Floats:
    """Return (2, N, T) usages of the online pods of each node at T moments; nan where too little is known.

    Parameters
    ----------
    rows : (P,) the node of each pod. usage : (2, P, T) millicores and bytes, nan where unknown.
    requests : (2, P) requests of each pod. nodes : N.
    """
    moments = usage.shape[2]
    known = np.isfinite(usage)
    loads = np.zeros((2, nodes, moments))
    for resource, amounts in enumerate(np.where(known, usage, requests[:, :, None])):
        np.add.at(loads[resource], rows, amounts)
    counted = np.zeros((nodes, moments))
    np.add.at(counted, rows, known.all(axis=0))
    pods = np.bincount(rows, minlength=nodes)[:, None]
    loads[:, 2 * counted < pods] = np.nan
    return loads
