"""Builds the mixes that a QoS forecast is asked about: nodes as they would be after a placement.

Called by `guard`. One row per (question, online pod with a promise on the node after the placement); the answer to a
question is the highest probability among its rows. Questions of several pods go into one batch. Invariant: for one
batch job alone beside one service a row holds the three features of seed 003, section 3.1 (type, input size, rate)
and nothing else that is not implied by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotide_core.columns import CPU_COLUMN
from cotide_core.forecasts import MixBatch
from cotide_core.shapes import Shape
from cotide_core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Question:
    """May a pod of this shape go to these nodes?

    Attributes
    ----------
    rows : candidates; each must carry a promised online pod after the placement.
    expected_rate : requests per second that the pod itself will bring; only read for a promised online pod.
    """

    shape: Shape
    rows: Sequence[int]
    expected_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class QuestionMixes:
    """The mixes of K (shape, node) pairs, questions in order and their rows in order.

    Attributes
    ----------
    mixes : one row per (pair, online pod).
    starts : (K,) first row of each pair; every pair has at least one.
    services : for each row, the Workload whose limit it is about.
    """

    mixes: MixBatch
    starts: NDArray[np.intp]
    services: list[str]


def mixes_after(snapshot: Snapshot, questions: Sequence[Question]) -> QuestionMixes:
    """Return the mixes of each question's nodes after its pod was placed there."""
    rates: list[float] = []
    others: list[float] = []
    limits: list[float] = []
    names: list[str] = []
    starts: list[int] = []
    owners: list[int] = []
    askers: list[int] = []
    summed = snapshot.service_rates.item
    for asker, question in enumerate(questions):
        promise = snapshot.state.workload(question.shape.fit.service)
        arriving = question.expected_rate if promise is not None else 0.0
        for row in question.rows:
            start = len(rates)
            starts.append(start)
            pods = snapshot.services[row]
            present = summed(row)
            if promise is None and len(pods) == 1:  # by far the most
                pod = pods[0]
                rates.append(pod.requests_per_second)
                others.append(max(0.0, present - pod.requests_per_second))
                limits.append(pod.limit_milliseconds)
                names.append(pod.workload)
                owners.append(row)
                askers.append(asker)
                continue
            total = present + arriving
            for pod in pods:
                rates.append(pod.requests_per_second)
                others.append(max(0.0, total - pod.requests_per_second))
                limits.append(pod.limit_milliseconds)
                names.append(pod.workload)
            if promise is not None:
                rates.append(arriving)
                others.append(present)
                limits.append(promise.latency_p95_milliseconds)
                names.append(promise.key)
            added = len(rates) - start
            owners.extend([row] * added)
            askers.extend([asker] * added)
    at = np.array(owners, np.intp)
    asker_of = np.array(askers, np.intp)
    counts = snapshot.type_counts[:, at].T.astype(np.float64)
    input_bytes = snapshot.type_bytes[:, at].T.astype(np.float64)
    shapes = [question.shape for question in questions]
    batch = np.flatnonzero(np.array([not shape.online for shape in shapes], np.bool_)[asker_of])
    columns = np.array([shape.type_column for shape in shapes], np.intp)[asker_of[batch]]
    counts[batch, columns] += 1
    input_bytes[batch, columns] += np.array([shape.input_bytes for shape in shapes], np.float64)[asker_of[batch]]
    asked = np.array([0 if shape.online else shape.fit.millicores for shape in shapes], np.int64)
    millicores = snapshot.batch_millicores[at] + asked[asker_of]
    mixes = MixBatch(
        requests_per_second=np.array(rates, np.float64),
        other_requests_per_second=np.array(others, np.float64),
        limit_milliseconds=np.array(limits, np.float64),
        cpu_pressure=millicores / np.maximum(1, snapshot.allocatable[CPU_COLUMN, at]),
        types=snapshot.types,
        counts=counts,
        input_bytes=input_bytes,
    )
    return QuestionMixes(mixes, np.array(starts, np.intp), names)
