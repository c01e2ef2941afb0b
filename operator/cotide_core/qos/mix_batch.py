"""Builds the mixes that a QoS forecast is asked about: nodes as they would be after a placement.

Called by `qos_guard`. One row per (pair, online pod with a promise on the node after the placement); the answer to a
pair of a shape and a node is the highest probability among its rows. Pairs of several pods go into one batch.
Invariant: for one batch job alone beside one service a row holds the three features of Ou 2024, section 3.1 (type,
input size, rate) and nothing else that is not implied by them.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.mix_rows import mixes_of
from cotide_core.qos.prediction_cache import AnswerTables
from cotide_core.state.node_columns import CPU_COLUMN
from cotide_core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PairMixes:
    """The mixes of P (shape, node) pairs, in order.

    Attributes
    ----------
    mixes : one row per (pair, online pod).
    starts : (P,) first row of each pair; every pair has at least one.
    numbers : for each row, the number of the Workload whose limit it is about (see `columns`).
    """

    mixes: MixBatch
    starts: Integers
    numbers: Integers


def mixes_after(snapshot: Snapshot, tables: AnswerTables, indices: Integers, rows: Integers) -> PairMixes:
    """Return the mixes of each row after a pod of the shape at its place in the tables was put there.

    Each row must carry a promised online pod after the placement.
    """
    columns = snapshot.columns
    starts, numbers, unmeasured, single, counts, input_bytes = mixes_of(
        indices,
        rows,
        tables.shapes,
        tables.arriving,
        columns.service_counts,
        columns.service_rates,
        columns.promised_rates,
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
