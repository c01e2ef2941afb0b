"""Forecasters by namespace: a namespace with its own models uses them, all others use the pooled ones.

Made by `cycle.Scheduler` from a `ModelsChanged` event that names models of namespaces. A latency uses the namespace of
the service, a run time that of the job. Data from one namespace's pods never answers for another. Invariant: one
forecaster answers each row, so that forecasts stay monotone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.events import Pod
from cotide_core.forecasts import CompletionForecast, CompletionForecaster, MixBatch, QosAnswers, QosForecaster
from cotide_core.kernels.array_types import Floats

BETWEEN: Final = "/"
"""Between a namespace and a type; neither contains it."""


def namespace_in(key: str) -> str:
    """Return the namespace of a ``namespace/name`` or ``namespace/type``; empty for none."""
    return key.rpartition(BETWEEN)[0]


def type_for(forecaster: CompletionForecaster, pod: Pod) -> str:
    """Return the type to pass to a forecaster for a pod."""
    return forecaster.type_of(pod) if isinstance(forecaster, CompletionByNamespace) else pod.type


def qos_by_namespace(pooled: QosForecaster, own: Mapping[str, QosForecaster]) -> QosForecaster:
    """Return a forecaster that uses the one of a service's own namespace, otherwise the pooled one."""
    return QosByNamespace(pooled, own) if own else pooled


def completion_by_namespace(
    pooled: CompletionForecaster, own: Mapping[str, CompletionForecaster]
) -> CompletionForecaster:
    """Return a forecaster that uses the one of a job's own namespace, otherwise the pooled one; pass types from
    `type_for`.
    """
    return CompletionByNamespace(pooled, own) if own else pooled


class QosByNamespace:
    """Latency forecasts by the namespace of the service."""

    def __init__(self, pooled: QosForecaster, own: Mapping[str, QosForecaster]) -> None:
        self._pooled, self._own = pooled, dict(own)
        self.model_id = _together(
            pooled.model_id, {name: qos_forecaster.model_id for name, qos_forecaster in own.items()}
        )

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities; see `forecasts.QosForecaster`."""
        return self.answer(mixes).probability

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return each row's answer by the forecaster of its service's namespace."""
        forecasters = [self._own.get(namespace_in(service), self._pooled) for service in mixes.services]
        asked = list(dict.fromkeys(forecasters))
        if len(asked) == 1:
            return asked[0].answer(mixes)
        indices = np.array([asked.index(qos_forecaster) for qos_forecaster in forecasters], np.int64)
        of_row = indices[np.zeros(len(mixes), np.int64) if mixes.service is None else mixes.service]
        answers = QosAnswers(np.zeros(len(mixes)), np.zeros(len(mixes), np.int64), np.zeros(len(mixes), np.int64))
        for number, forecaster in enumerate(asked):
            rows = np.flatnonzero(of_row == number)
            if len(rows):
                part = forecaster.answer(_rows_of(mixes, rows))
                answers.probability[rows] = part.probability
                answers.outside[rows] = part.outside
                answers.evidence[rows] = part.evidence
        return answers


class CompletionByNamespace:
    """Run times by the namespace of the job; types come from `type_of`."""

    def __init__(self, pooled: CompletionForecaster, own: Mapping[str, CompletionForecaster]) -> None:
        self._pooled, self._own = pooled, dict(own)
        self.model_id = _together(
            pooled.model_id, {name: completion_forecaster.model_id for name, completion_forecaster in own.items()}
        )

    def type_of(self, pod: Pod) -> str:
        """Return ``namespace/type`` for the pods of a namespace with its own forecaster, otherwise the type."""
        namespace = namespace_in(pod.key)
        return f"{namespace}{BETWEEN}{pod.type}" if namespace in self._own else pod.type

    def knows(self, job_type: str) -> bool:
        """Whether the training of the responsible forecaster included the type."""
        return self._of(job_type).knows(_bare(job_type))

    def isolated_seconds(
        self, types: Sequence[str], input_bytes: Floats, requested_seconds: Floats
    ) -> CompletionForecast:
        """Forecast n jobs on an idle node, each by its own forecaster."""
        forecast = CompletionForecast(np.zeros(len(types)), np.zeros(len(types)))
        for forecaster, rows in self._shares(types):
            bare = [_bare(types[row]) for row in rows.tolist()]
            part = forecaster.isolated_seconds(bare, input_bytes[rows], requested_seconds[rows])
            forecast.p50[rows], forecast.p90[rows] = part.p50, part.p90
        return forecast

    def slowdown(self, types: Sequence[str], requests_per_second: Floats, cpu_pressure: Floats) -> Floats:
        """Return (n,) factors >= 1, each by its own forecaster."""
        factors = np.ones(len(types))
        for forecaster, rows in self._shares(types):
            bare = [_bare(types[row]) for row in rows.tolist()]
            factors[rows] = forecaster.slowdown(bare, requests_per_second[rows], cpu_pressure[rows])
        return factors

    def _of(self, job_type: str) -> CompletionForecaster:
        return self._own.get(namespace_in(job_type), self._pooled)

    def _shares(self, types: Sequence[str]) -> list[tuple[CompletionForecaster, NDArray[np.intp]]]:
        shares: dict[CompletionForecaster, list[int]] = {}
        for row, job_type in enumerate(types):
            shares.setdefault(self._of(job_type), []).append(row)
        return [(forecaster, np.array(rows, np.intp)) for forecaster, rows in shares.items()]


def _bare(job_type: str) -> str:
    return job_type.rpartition(BETWEEN)[2]


def _rows_of(mixes: MixBatch, rows: NDArray[np.intp]) -> MixBatch:
    return MixBatch(
        mixes.requests_per_second[rows],
        mixes.other_requests_per_second[rows],
        mixes.limit_milliseconds[rows],
        mixes.cpu_pressure[rows],
        mixes.types,
        mixes.counts[rows],
        mixes.input_bytes[rows],
        mixes.services,
        None if mixes.service is None else mixes.service[rows],
        None if mixes.unmeasured is None else mixes.unmeasured[rows],
    )


def _together(pooled: str, own: Mapping[str, str]) -> str:
    """Return one id for all models; the same models give the same id."""
    text = "\n".join((pooled, *(f"{name} {model_id}" for name, model_id in sorted(own.items()))))
    return hashlib.sha256(text.encode()).hexdigest()
