"""From what pods use to what the online pods of a node use: the one law, for the present and for a rebuilt past.

Called by `sampler` and `history`. Pure arrays. Invariants: what is not known of a pod counts as what the pod asks for,
never as zero; a node of which more than half of the pods are not known has no load at all (nan).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_core.state.host_load import IMPOSSIBLE
from cotide_operator.usage.sources import MEMORY

Rows = NDArray[np.intp]


def believable(usage: Floats, physical: Floats) -> NDArray[np.bool_]:
    """Return which values (2, P, ...) can be what a pod uses on a node with that much (2, P, ...).

    No pod uses more than there is (`IMPOSSIBLE` allows for what the system reserves), and none runs in no memory: a
    zero there is how a missing number looks in some pipelines. No cpu at all is what an idle pod uses.
    """
    with np.errstate(invalid="ignore"):
        found: NDArray[np.bool_] = np.isfinite(usage) & (usage >= 0) & (usage <= IMPOSSIBLE * physical)
    found[MEMORY] &= usage[MEMORY] > 0
    return found


def node_loads(rows: Rows, usage: Floats, requests: Floats, nodes: int) -> Floats:
    """Return (2, N, T) what the online pods of each node use at T moments; nan where too little is known.

    Parameters
    ----------
    rows : (P,) the node of each pod. usage : (2, P, T) millicores and bytes, nan where not known.
    requests : (2, P) what each pod asks for. nodes : N.
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
