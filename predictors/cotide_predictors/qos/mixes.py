"""Rows of mixes: take some, find equal ones, put their columns in a model's order.

Called by training and evaluation, between samples and features. Invariant: a row of the result describes the same node
as its source row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats, Indices


def take_mixes(mixes: MixBatch, rows: Indices) -> MixBatch:
    """Return the given rows of a batch, in the given order; a row may be taken more than once."""
    return MixBatch(
        requests_per_second=mixes.requests_per_second[rows],
        other_requests_per_second=mixes.other_requests_per_second[rows],
        limit_milliseconds=mixes.limit_milliseconds[rows],
        cpu_pressure=mixes.cpu_pressure[rows],
        types=mixes.types,
        counts=mixes.counts[rows],
        input_bytes=mixes.input_bytes[rows],
        services=mixes.services,
        service=None if mixes.service is None else mixes.service[rows],
        unmeasured=None if mixes.unmeasured is None else mixes.unmeasured[rows],
    )


def with_limit(mixes: MixBatch, limit_milliseconds: float) -> MixBatch:
    """Return the same mixes with another limit."""
    return replace(mixes, limit_milliseconds=np.full(len(mixes), float(limit_milliseconds)))


def cells_of(mixes: MixBatch) -> Indices:
    """Return (n,) cell numbers: rows of equal rates, pressure and jobs are repetitions of one cell."""
    columns = np.column_stack(
        (
            mixes.requests_per_second,
            mixes.other_requests_per_second,
            mixes.cpu_pressure,
            mixes.counts,
            mixes.input_bytes,
        )
    )
    return np.unique(columns, axis=0, return_inverse=True)[1].ravel()


def cells_of_jobs(types: Sequence[str], *columns: Floats) -> Indices:
    """Return (n,) cell numbers of jobs: rows of equal type and equal numbers are repetitions of one cell."""
    names = np.unique(np.asarray(types), return_inverse=True)[1].ravel()
    return np.unique(np.column_stack((names, *columns)), axis=0, return_inverse=True)[1].ravel()
