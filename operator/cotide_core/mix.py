"""Builds the mixes that a QoS forecast is asked about: nodes as they would be after a placement.

Called by `guard`. One row per (candidate node, online pod with a promise on it after the placement); the node's
answer is the highest probability among its rows. Invariant: for one batch job alone beside one service a row holds
the three features of seed 003, section 3.1 (type, input size, rate) and nothing else that is not implied by them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotide_core.columns import CPU_COLUMN
from cotide_core.forecasts import MixBatch
from cotide_core.shapes import Shape
from cotide_core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class CandidateMixes:
    """The mixes of some candidate nodes.

    Attributes
    ----------
    mixes : one row per (candidate, online pod), candidates in order.
    starts : (K,) first row of each candidate; every candidate has at least one.
    services : for each row, the Workload whose limit it is about.
    """

    mixes: MixBatch
    starts: NDArray[np.intp]
    services: list[str]


def mixes_after(snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp], expected_rate: float) -> CandidateMixes:
    """Return the mixes of candidate nodes after a pod of this shape was placed there.

    Parameters
    ----------
    rows : (K,) candidates; each must carry a promised online pod after the placement.
    expected_rate : requests per second that the pod itself will bring; only read for a promised online pod.
    """
    rates: list[float] = []
    others: list[float] = []
    limits: list[float] = []
    names: list[str] = []
    starts: list[int] = []
    owners: list[int] = []
    service = shape.fit.service
    promise = snapshot.state.workload(service)
    arriving = expected_rate if promise is not None else 0.0
    totals = snapshot.service_rates[rows].tolist()
    for index, row in enumerate(rows.tolist()):
        starts.append(len(rates))
        total = totals[index] + arriving
        for pod in snapshot.services[row]:
            rates.append(pod.requests_per_second)
            others.append(max(0.0, total - pod.requests_per_second))
            limits.append(pod.limit_milliseconds)
            names.append(pod.workload)
            owners.append(row)
        if promise is not None:
            rates.append(arriving)
            others.append(totals[index])
            limits.append(promise.latency_p95_milliseconds)
            names.append(promise.key)
            owners.append(row)
    at = np.array(owners, np.intp)
    counts = snapshot.type_counts[:, at].T.astype(np.float64)
    input_bytes = snapshot.type_bytes[:, at].T.astype(np.float64)
    millicores = snapshot.batch_millicores[at].astype(np.float64)
    if not shape.online:
        counts[:, shape.type_column] += 1
        input_bytes[:, shape.type_column] += shape.input_bytes
        millicores += shape.fit.millicores
    mixes = MixBatch(
        requests_per_second=np.array(rates, np.float64),
        other_requests_per_second=np.array(others, np.float64),
        limit_milliseconds=np.array(limits, np.float64),
        cpu_pressure=millicores / np.maximum(1, snapshot.allocatable[CPU_COLUMN, at]),
        types=snapshot.types,
        counts=counts,
        input_bytes=input_bytes,
    )
    return CandidateMixes(mixes, np.array(starts, np.intp), names)
