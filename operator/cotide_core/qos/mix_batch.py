"""Builds the mixes for QoS forecasts: nodes as they would be after a placement.

Called by `qos_guard`, and by `latency_relief` with nodes as they would be after pods leave. One row per (pair, online
pod with a promise on the node after the placement). The answer for a pair of a shape and a node is the highest
probability among its rows. Pairs of several pods go into one batch. Invariant: for one batch job and one service alone,
a row holds the three features of Ou 2024, section 3.1 (type, input size, rate) and only values that follow from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.mix_rows import OTHER_RATE_UNKNOWN, RATE_UNKNOWN, mixes_of
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.node_columns import CPU_COLUMN
from cotide_core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PairMixes:
    """The mixes of P (shape, node) pairs, in order.

    Attributes
    ----------
    mixes : one row per (pair, online pod).
    starts : (P,) first row of each pair; every pair has at least one.
    numbers : for each row, the number of the Workload with the limit (see `columns`).
    """

    mixes: MixBatch
    starts: Integers
    numbers: Integers


def mixes_after(snapshot: Snapshot, shapes: Integers, arriving: Floats, indices: Integers, rows: Integers) -> PairMixes:
    """Return the mixes of each row after the placement of a pod of the shape at its index.

    Each row must carry a promised online pod after the placement.

    Parameters
    ----------
    shapes, arriving : (S, 6) and (S, 2) the inputs of each shape, as in `prediction_cache.AnswerTables`.
    """
    columns = snapshot.columns
    starts, numbers, unmeasured, single, counts, input_bytes = mixes_of(
        indices,
        rows,
        shapes,
        arriving,
        columns.service_counts,
        columns.rates_ahead,
        columns.promised_ahead,
        columns.promised_limits,
        columns.promised_numbers,
        columns.type_counts,
        columns.type_bytes,
        columns.batch_millicores,
        columns.allocatable[CPU_COLUMN],
    )
    rates, others, limits, pressure = single
    mixes = MixBatch(
        rates,
        others,
        limits,
        pressure,
        snapshot.types,
        counts,
        input_bytes,
        services=columns.service_names(),
        service=numbers,
        unmeasured=unmeasured,
    )
    return PairMixes(mixes, starts, numbers)


@dataclass(frozen=True, slots=True)
class Departure:
    """A question about an online pod on its node: its forecast after these batch and gratis pods leave."""

    key: str
    leaving: tuple[PodRecord, ...]
    horizon: int = 0
    """Horizon of forecast rates, counted from 1: the highest rates up to its end; 0 for the present ones."""


def mixes_without(state: ClusterState, departures: Sequence[Departure]) -> MixBatch:
    """Return one mix for each departure; each is about a promised online pod that is counted on a row.

    Loops in plain Python: the caller checks only nodes in trouble.
    """
    columns, rows = state.columns, len(departures)
    counts, input_bytes = np.zeros((rows, len(columns.type_names))), np.zeros((rows, len(columns.type_names)))
    single, numbers, unmeasured = np.zeros((4, rows)), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for index, departure in enumerate(departures):
        record = state.record(departure.key)
        assert record is not None  # noqa: S101 - asked about pods on rows only
        row = record.row
        services = columns.services[row]
        own = next(service_pod for service_pod in services if service_pod.key == departure.key)
        horizon = departure.horizon
        rate = own.rate_within(horizon)
        others_unknown = any(
            service_pod.requests_per_second is None for service_pod in services if service_pod is not own
        )
        unmeasured[index] = RATE_UNKNOWN * (own.requests_per_second is None) + OTHER_RATE_UNKNOWN * others_unknown
        numbers[index] = columns.workload_number(own.workload)
        counts[index], input_bytes[index] = columns.type_counts[:, row], columns.type_bytes[:, row]
        batch = int(columns.batch_millicores[row])
        for pod_record in departure.leaving:
            batch -= state.demand(pod_record.pod.requests).millicores
            counts[index, pod_record.type_column] -= 1
            input_bytes[index, pod_record.type_column] -= pod_record.pod.input_bytes
        pressure = batch / max(1, int(columns.allocatable[CPU_COLUMN, row]))
        others = max(0.0, float(columns.rates_ahead[horizon, row]) - rate)
        single[:, index] = rate, others, own.limit_milliseconds, pressure
    requests, others_requests, limits, pressures = single
    return MixBatch(
        requests,
        others_requests,
        limits,
        pressures,
        tuple(columns.type_names),
        counts,
        input_bytes,
        services=columns.service_names(),
        service=numbers,
        unmeasured=unmeasured,
    )
