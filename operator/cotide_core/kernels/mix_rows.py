"""The mixes that a latency forecast is asked about, on arrays: nodes as they would be after a placement.

Called by `mix_batch` with the tables of `node_columns`. Invariant: a pair of a shape and a row gets one mix for each
online pod with a promise on the row, in order of their keys, and one for the arriving pod where that has a promise.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.guard_answers import CPU, JOB, KIND, PROMISE, SIZE, TYPE


@compiled
def mixes_of(
    places: Integers,
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
) -> tuple[Integers, Integers, Floats, Floats, Floats]:
    """Return the mixes of P pairs.

    Parameters
    ----------
    places, rows : (P,) of each pair: the place of its shape, and the row.
    shapes : (S, 5) see `guard_answers`.
    arriving : (S, 2) requests/s and limit in milliseconds of an arriving pod with a promise.
    services, summed : (N,) online pods with a promise on each row, and their requests/s.
    service_rates, service_limits, service_numbers : (K, N) of each of them.
    type_counts, type_bytes : (T, N)
    batch_millicores, allocatable : (N,) cpu asked for by jobs, and what there is.

    Returns
    -------
    starts : (P,) first mix of each pair.
    numbers : (n,) of the Workload that each mix is about.
    single : (4, n) requests/s, other requests/s, limit, cpu pressure.
    counts, input_bytes : (n, T)
    """
    pairs = rows.shape[0]
    total = 0
    starts = np.empty(pairs, np.int64)
    for pair in range(pairs):
        starts[pair] = total
        total += services[rows[pair]]
        if shapes[places[pair], PROMISE] >= 0:
            total += 1
    types = type_counts.shape[0]
    numbers = np.empty(total, np.int64)
    single = np.empty((4, total))
    counts = np.empty((total, types))
    input_bytes = np.empty((total, types))
    for pair in range(pairs):
        place, row = places[pair], rows[pair]
        promise = shapes[place, PROMISE]
        there = services[row]
        present = summed[row]
        rate = arriving[place, 0] if promise >= 0 else 0.0
        joint = present + rate
        first = starts[pair]
        for one in range(there):
            others = joint - service_rates[one, row]
            single[0, first + one] = service_rates[one, row]
            single[1, first + one] = others if others > 0.0 else 0.0
            single[2, first + one] = service_limits[one, row]
            numbers[first + one] = service_numbers[one, row]
        end = first + there
        if promise >= 0:
            single[0, end] = rate
            single[1, end] = present
            single[2, end] = arriving[place, 1]
            numbers[end] = promise
            end += 1
        job = shapes[place, KIND] == JOB
        millicores = batch_millicores[row] + (shapes[place, CPU] if job else 0)
        pressure = millicores / max(1, allocatable[row])
        for mix in range(first, end):
            single[3, mix] = pressure
            for column in range(types):
                counts[mix, column] = type_counts[column, row]
                input_bytes[mix, column] = type_bytes[column, row]
            if job:
                counts[mix, shapes[place, TYPE]] += 1.0
                input_bytes[mix, shapes[place, TYPE]] += shapes[place, SIZE]
    return starts, numbers, single, counts, input_bytes
