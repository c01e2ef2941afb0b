"""The mixes of a question to the latency forecaster, on arrays: nodes as they would be after a placement.

Called by `mix_batch` with the tables of `node_columns`. Invariant: a pair of a shape and a row gets one mix for each
online pod with a promise on the row, in order of their keys. It gets another for the arriving pod if that has a
promise.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.guard_answers import CPU, HORIZON, JOB, KIND, PROMISE, SIZE, TYPE

RATE_UNKNOWN: Final = 1
"""The request rate of the mix's own pod is unmeasured."""
OTHER_RATE_UNKNOWN: Final = 2
"""The rate of another online pod on the node is unmeasured. Both are bits of `qos.applicability`."""


@compiled
def mixes_of(
    indices: Integers,
    rows: Integers,
    shapes: Integers,
    arriving: Floats,
    services: Integers,
    summed: Floats,
    service_rates: Floats,
    service_limits: Floats,
    service_numbers: Integers,
    type_counts: Integers,
    type_bytes: Integers,
    batch_millicores: Integers,
    allocatable: Integers,
) -> tuple[Integers, Integers, Integers, Floats, Floats, Floats]:
    """Return the mixes of P pairs.

    It takes many arguments, because numba unpacks thirteen arrays in 2.2 us and one tuple of them in 4.7 us. Each
    attempt calls this.

    Parameters
    ----------
    indices, rows : (P,) of each pair: the index of its shape, and the row.
    shapes : (S, 6) see `guard_answers`.
    arriving : (S, 2) requests/s and limit in milliseconds of an arriving pod with a promise; a rate below 0 is
        estimated (`node_columns.unmeasured`).
    services : (N,) online pods with a promise on each row.
    summed : (1 + H, N) their requests/s, now and at their highest up to the end of each horizon.
    service_rates : (1 + H, K, N) those of each of them; a rate below 0 is estimated. The sum contains it as well.
    service_limits, service_numbers : (K, N). type_counts, type_bytes : (T, N).
    batch_millicores, allocatable : (N,) requested cpu of jobs, and allocatable cpu.

    Returns
    -------
    starts : (P,) first mix of each pair.
    numbers : (n,) of the Workload that each mix is about.
    unmeasured : (n,) bits of `applicability.UNMEASURED`.
    single : (4, n) requests/s, other requests/s, limit, cpu pressure.
    counts, input_bytes : (n, T)
    """
    pairs = rows.shape[0]
    starts, total = first_mixes(indices, rows, shapes, services)
    types = type_counts.shape[0]
    numbers = np.empty(total, np.int64)
    unmeasured = np.zeros(total, np.int64)
    single = np.empty((4, total))
    counts = np.empty((total, types))
    input_bytes = np.empty((total, types))
    for pair in range(pairs):
        index, row = indices[pair], rows[pair]
        promise = shapes[index, PROMISE]
        there = services[row]
        horizon = shapes[index, HORIZON]
        present, rate = summed[horizon, row], assumed_rate(arriving[index, 0]) if promise >= 0 else 0.0
        joint = present + rate
        first = starts[pair]
        mark_unmeasured(unmeasured[first:], service_rates[0, :there, row], promise >= 0, arriving[index, 0])
        for number in range(there):
            own = assumed_rate(service_rates[horizon, number, row])
            single[0, first + number] = own
            single[1, first + number] = max(0.0, joint - own)
            single[2, first + number] = service_limits[number, row]
            numbers[first + number] = service_numbers[number, row]
        end = first + there
        if promise >= 0:
            single[0, end] = rate
            single[1, end] = present
            single[2, end] = arriving[index, 1]
            numbers[end] = promise
            end += 1
        job = shapes[index, KIND] == JOB
        pressure = (batch_millicores[row] + (shapes[index, CPU] if job else 0)) / max(1, allocatable[row])
        copy_row(counts[first:end], type_counts, row)
        copy_row(input_bytes[first:end], type_bytes, row)
        for mix in range(first, end):
            single[3, mix] = pressure
            if job:
                counts[mix, shapes[index, TYPE]] += 1.0
                input_bytes[mix, shapes[index, TYPE]] += shapes[index, SIZE]
    return starts, numbers, unmeasured, single, counts, input_bytes


@compiled
def assumed_rate(rate: float) -> float:
    """Return the requests/s of a rate in the columns: a value below 0 is an estimate."""
    return rate if rate >= 0.0 else -1.0 - rate


@compiled
def first_mixes(indices: Integers, rows: Integers, shapes: Integers, services: Integers) -> tuple[Integers, int]:
    """Return (P,) the first mix of each pair, and how many mixes there are."""
    starts = np.empty(rows.shape[0], np.int64)
    total = 0
    for pair in range(rows.shape[0]):
        starts[pair] = total
        total += services[rows[pair]]
        if shapes[indices[pair], PROMISE] >= 0:
            total += 1
    return starts, total


@compiled
def copy_row(mixes: Floats, table: Integers, row: int) -> None:
    """Copy a row of a (T, N) table into each of (k, T) mixes."""
    for mix in range(mixes.shape[0]):
        for column in range(table.shape[0]):
            mixes[mix, column] = table[column, row]


@compiled
def mark_unmeasured(unmeasured: Integers, rates: Floats, arrives: bool, arriving_rate: float) -> None:
    """Write the bits of one pair's mixes: of the (k,) rates on the row and, where a pod arrives, of its own.

    A rate below 0 is estimated.
    """
    there = rates.shape[0]
    unknown = 1 if arrives and arriving_rate < 0.0 else 0
    for number in range(there):
        unknown += 1 if rates[number] < 0.0 else 0
    for number in range(there + (1 if arrives else 0)):
        rate = rates[number] if number < there else arriving_rate
        mine = 1 if rate < 0.0 else 0
        unmeasured[number] = RATE_UNKNOWN * mine + (OTHER_RATE_UNKNOWN if unknown > mine else 0)
