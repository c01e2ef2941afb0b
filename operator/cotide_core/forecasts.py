"""Value types of forecasts and the protocols that predictors fulfil.

The engine calls predictors only through these. `cotide_predictors` fulfils them, and heuristics replace a missing model
(see `heuristics`). Forecasters are pure: same arrays in, same arrays out.

The mix
-------
A QoS forecast covers the load of a node after a placement, from the view of one online pod on it. `MixBatch` holds one
row per (node, online pod). For one batch job and one service alone it holds exactly the paper's three features
(workload type, input size, requests per second; Ou 2024, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers


@dataclass(frozen=True, slots=True)
class MixBatch:
    """The mixes of n (node, online pod) pairs, columnar.

    Attributes
    ----------
    requests_per_second : (n,) rate of the online pod.
    other_requests_per_second : (n,) summed rate of the node's other online pods.
    limit_milliseconds : (n,) the pod's p95 limit.
    cpu_pressure : (n,) millicores requested (plain or reclaimed) by batch and gratis pods, over allocatable cpu; >= 0.
    types : names of the T batch types that occur, in column order; ``""`` is a job without a type.
    counts : (n, T) batch and gratis pods of each type.
    input_bytes : (n, T) their summed input size.
    services : keys of the Workloads of the rows; ``""`` is one without a name (a table, a campaign).
    service : (n,) index of each row's Workload in ``services``; None if all rows belong to the first.
    unmeasured : (n,) bits of `applicability.UNMEASURED`: the unmeasured rates (they count 0 here, and differ from 0);
        None if all were measured.
    """

    requests_per_second: Floats
    other_requests_per_second: Floats
    limit_milliseconds: Floats
    cpu_pressure: Floats
    types: tuple[str, ...]
    counts: Floats
    input_bytes: Floats
    services: tuple[str, ...] = ("",)
    service: Integers | None = None
    unmeasured: Integers | None = None

    def __len__(self) -> int:
        return len(self.requests_per_second)


@dataclass(frozen=True, slots=True)
class QosAnswers:
    """The answer of a QoS forecaster about n mixes.

    Attributes
    ----------
    probability : (n,) that the limit breaks, in [0, 1]; outside the training region at least the heuristic's.
    outside : (n,) bits of `applicability`: how the mix lies outside the training region; 0 inside.
    evidence : (n,) samples of the mix's service behind the answer; -1 without a model.
    """

    probability: Floats
    outside: Integers
    evidence: Integers

    @classmethod
    def within(cls, probability: Floats) -> QosAnswers:
        """Return the answers of a forecaster that is valid everywhere: nothing is outside."""
        rows = len(probability)
        return cls(probability, np.zeros(rows, np.int64), np.full(rows, -1, np.int64))


HABITS: Final = "habits"
"""Replaces the id of a completion model for a run time from `events.RunTimesForecasted`."""


@dataclass(frozen=True, slots=True)
class CompletionForecast:
    """Predicted run times of n jobs in seconds; ``p90 >= p50 > 0``."""

    p50: Floats
    p90: Floats


@runtime_checkable
class QosForecaster(Protocol):
    """Will this online pod's p95 latency break its limit with this mix on its node?"""

    @property
    def model_id(self) -> str:
        """The sha256 of the model file, or ``heuristic``."""
        ...

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities in [0, 1]; never falling in rate, counts, input bytes or pressure."""
        ...

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return the same probabilities, with the applicability bits of each mix, and the evidence."""
        ...


@runtime_checkable
class CompletionForecaster(Protocol):
    """How long will this job run, alone and with others?"""

    @property
    def model_id(self) -> str:
        """The sha256 of the model file, or ``heuristic``."""
        ...

    def knows(self, job_type: str) -> bool:
        """Whether the type was seen in training; an unknown one is treated as the worst known."""
        ...

    def isolated_seconds(
        self, types: Sequence[str], input_bytes: Floats, requested_seconds: Floats
    ) -> CompletionForecast:
        """Forecast n jobs on an idle node; ``requested_seconds`` is nan without a user's estimate."""
        ...

    def slowdown(self, types: Sequence[str], requests_per_second: Floats, cpu_pressure: Floats) -> Floats:
        """Return (n,) factors >= 1: the stretch of each job by contention on the node."""
        ...


class ModelCatalogue(Protocol):
    """Where the engine finds the forecasters that a `ModelsChanged` event names; filled by the driver."""

    def qos(self, model_id: str) -> QosForecaster:
        """Return the QoS forecaster of this id (empty: the heuristic)."""
        ...

    def completion(self, model_id: str) -> CompletionForecaster:
        """Return the completion forecaster of this id (empty: the heuristic)."""
        ...


@dataclass(frozen=True, slots=True)
class QosSamples:
    """The measurements of n mixes: the training data of a `QosForecaster`.

    ``mixes.limit_milliseconds`` is the limit in force when the sample was taken; training may relabel the same
    latencies for other limits. ``latency_milliseconds``: (n,) measured p95.
    """

    mixes: MixBatch
    latency_milliseconds: Floats


@dataclass(frozen=True, slots=True)
class CompletionSamples:
    """The measurements of n finished jobs: the training data of a `CompletionForecaster`.

    Attributes
    ----------
    types : n type names.
    input_bytes : (n,)
    requests_per_second : (n,) mean over the run of the summed online rate on the node; 0 if there was none.
    cpu_pressure : (n,) mean over the run of the node's pressure, the job itself included (see `MixBatch`).
    seconds : (n,) run time, from started to finished.
    """

    types: tuple[str, ...]
    input_bytes: Floats
    requests_per_second: Floats
    cpu_pressure: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True)
class HostLoadForecast:
    """The peak load of n hosts over the coming slots, in shares of capacity, each >= 0.

    Attributes
    ----------
    point : (n,) last-state ARMA (Jiang et al., section IV), or the present holdings plus their mean rise in a slot.
    p50, p90, p99 : (n,) calibrated quantiles, ``p50 <= p90 <= p99``; read from the pool for hosts without history.
    """

    point: Floats
    p50: Floats
    p90: Floats
    p99: Floats


@runtime_checkable
class HostLoadForecaster(Protocol):
    """How loaded will each host be in the next slots?"""

    def record(self, values: Floats) -> None:
        """Record one slot's maxima (n,), nan for hosts without one; nan never counts as zero."""
        ...

    def forecast(self, horizon_slots: int = 1) -> HostLoadForecast:
        """Forecast the peak over the next slots."""
        ...
