"""The range of a QoS model's training, by service and by feature: where to trust it, and its number of samples.

Called by both QoS models with every batch of mixes. Of each service it keeps the highest measured rate, other rate,
pressure, number of jobs and input, and the tightest limit. A mix is inside when some measured one is at least as risky
in each of them: a region closed downwards, see `applicability`. Invariant: an outside mix stays outside when a rate, a
count, a size or the pressure grows or the limit shrinks; a service with fewer than `LEAST_SAMPLES` samples is outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_core.qos.applicability import INPUT, JOBS, LIMIT, OTHER_RATE, PRESSURE, RATE, SERVICE, TYPE

LEAST_SAMPLES: Final = 10
"""Fewest samples of a service that counts as seen (chosen: its level is known to a third of the noise of one sample,
and the range of its rates roughly).
"""
SLACK: Final = 1e-9
"""Share by which a value may be beyond a corner, for rounding."""
FEATURES: Final = (
    "requests_per_second", "other_requests_per_second", "limit_milliseconds", "cpu_pressure", "jobs", "input_bytes",
)  # fmt: skip
"""Columns of the corners; of the limit the lowest, of all others the highest."""
LEAST_KEPT: Final = 256
"""Rows; chosen: most batches of a scheduler have fewer."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The learned range of each service.

    Attributes
    ----------
    services : names; ``("",)`` is a model for any service, since its samples named none.
    corners : (S, 6) as in `FEATURES`.
    samples : (S,) of each service.
    types : job types in the samples of any service.
    """

    services: tuple[str, ...]
    corners: Floats
    samples: Integers
    types: tuple[str, ...]

    @property
    def speaks_for_all(self) -> bool:
        """Whether its samples named no service."""
        return self.services == ("",)

    def indices_of(self, services: tuple[str, ...]) -> Integers:
        """Return the index of each service here; S for an unseen one."""
        if self.speaks_for_all:
            return np.zeros(len(services), np.int64)
        known = {name: index for index, name in enumerate(self.services)}
        return np.array([known.get(name, len(known)) for name in services], np.int64)


class EnvelopeCheck:
    """Checks batches against an envelope; caches what depends on the names of types and services only."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        # An unseen service itself is outside, so its values are not: its corners are infinite.
        unseen = np.where(np.array(FEATURES) == "limit_milliseconds", -np.inf, np.inf)
        self.corners = np.ascontiguousarray(np.vstack((envelope.corners, unseen)))
        self.samples = np.append(envelope.samples, 0).astype(np.int64)
        self._services: tuple[str, ...] | None = None
        self._service_indices: Integers = np.zeros(0, np.int64)
        self._same: Integers = np.full(LEAST_KEPT, -1, np.int64)
        """The index of the common service of all rows of a batch, repeated for each row."""
        self._types: tuple[str, ...] | None = None
        self._unknown: Integers = np.zeros(0, np.int64)

    def service_index(self, mixes: MixBatch) -> Integers:
        """Return (n,) index of each row's service in the envelope; S for an unseen one."""
        if mixes.services is not self._services:
            self._service_indices = self._envelope.indices_of(mixes.services)
            self._services = mixes.services
        if mixes.service is None:
            rows = len(mixes)
            if rows > len(self._same) or self._same.item(0) != self._service_indices.item(0):
                self._same = np.full(max(rows, LEAST_KEPT), self._service_indices[0], np.int64)
            return self._same[:rows]
        return self._service_indices[mixes.service]

    def outside(self, mixes: MixBatch, service_index: Integers) -> Integers:
        """Return (n,) bits of `applicability`."""
        if mixes.types is not self._types:
            known = set(self._envelope.types)
            self._unknown = np.array([name not in known for name in mixes.types], np.int64)
            self._types = mixes.types
        bits = np.zeros(len(mixes), np.int64) if mixes.unmeasured is None else mixes.unmeasured.astype(np.int64)
        add_outside(
            service_index,
            np.ascontiguousarray(mixes.requests_per_second, np.float64),
            np.ascontiguousarray(mixes.other_requests_per_second, np.float64),
            np.ascontiguousarray(mixes.limit_milliseconds, np.float64),
            np.ascontiguousarray(mixes.cpu_pressure, np.float64),
            np.ascontiguousarray(mixes.counts, np.float64),
            np.ascontiguousarray(mixes.input_bytes, np.float64),
            self._unknown,
            self.corners,
            self.samples,
            bits,
        )
        return bits


def learn_envelope(
    mixes: MixBatch, service_index: Integers, services: tuple[str, ...], types: tuple[str, ...]
) -> Envelope:
    """Return the envelope of n samples; ``service_index`` has every service at least once."""
    columns = np.column_stack(
        (
            mixes.requests_per_second,
            mixes.other_requests_per_second,
            -mixes.limit_milliseconds,
            mixes.cpu_pressure,
            mixes.counts.sum(axis=1),
            mixes.input_bytes.sum(axis=1),
        )
    )
    corners = np.full((len(services), len(FEATURES)), -np.inf)
    np.maximum.at(corners, service_index, columns)
    corners[:, 2] *= -1.0
    return Envelope(services, corners, np.bincount(service_index, minlength=len(services)).astype(np.int64), types)


@compiled
def add_outside(
    service_index: Integers,
    rates: Floats,
    others: Floats,
    limits: Floats,
    pressures: Floats,
    counts: Floats,
    input_bytes: Floats,
    unknown: Integers,
    corners: Floats,
    samples: Integers,
    bits: Integers,
) -> None:
    """Add bits to (n,) values: the features of each mix outside of the range.

    It takes many arguments, because numba unpacks thirteen arrays in 2.2 us and a tuple of them in 4.7 us, for each
    batch of an attempt.

    Parameters
    ----------
    service_index : (n,) row of ``corners`` of each mix.
    unknown : (T,) 1 for an unseen type.
    corners, samples : (S + 1, 6) and (S + 1,).
    """
    for row in range(service_index.shape[0]):
        index = service_index[row]
        jobs = size = 0.0
        for column in range(counts.shape[1]):
            jobs += counts[row, column]
            size += input_bytes[row, column]
            if unknown[column] and counts[row, column] > 0.0:
                bits[row] |= TYPE
        if samples[index] < LEAST_SAMPLES:
            bits[row] |= SERVICE
        if rates[row] > corners[index, 0] * (1.0 + SLACK):
            bits[row] |= RATE
        if others[row] > corners[index, 1] * (1.0 + SLACK):
            bits[row] |= OTHER_RATE
        if limits[row] < corners[index, 2] * (1.0 - SLACK):
            bits[row] |= LIMIT
        if pressures[row] > corners[index, 3] * (1.0 + SLACK):
            bits[row] |= PRESSURE
        if jobs > corners[index, 4] * (1.0 + SLACK):
            bits[row] |= JOBS
        if size > corners[index, 5] * (1.0 + SLACK):
            bits[row] |= INPUT
