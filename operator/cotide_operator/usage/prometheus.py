"""Prometheus as a source: instant queries of now, and range queries of what was.

The present is read by `feed` at its interval: what each Workload asks for in ``rpsQuery`` and ``latencyQuery``, and the
two recorded queries of the configuration for what every pod uses. The past of those two is read by `host_load.history`
after a restart. Invariant: a query that fails says so in `refused` and takes no other with it.

Sources: https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries and #range-queries
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec

from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.usage.sources import (
    CPU,
    MEMORY,
    THREAD_ABOVE_BYTES,
    Measured,
    SourceDown,
    UsageReading,
    fetch,
    merge,
    usable,
)

_SELECTOR: Final = re.compile(r'\s*(?:[a-zA-Z_:][\w:]*\s*)?(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?\s*')
"""A plain selector: a name, labels in braces, or both; for these alone timestamp() tells the samples' own times."""
_RANGE: Final = re.compile(r"\[((?:\d+(?:ms|[smhdwy]))+)")
_DURATION: Final = re.compile(r"(\d+)(ms|[smhdwy])")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}
CONCURRENT_QUERIES: Final = 8
"""Chosen: Prometheus runs 20 queries at once by default and has other users."""
_CONFIGURED: Final = "metricsSource.prometheus"
_USAGE_FIELDS: Final = {"podCpuQuery": CPU, "podMemoryQuery": MEMORY}
_REFUSALS: Final = (400, 422)
"""Prometheus' words for a query that it can't parse or run: an answer all the same, with the reason in it."""


@dataclass(frozen=True, slots=True)
class _Query:
    """One query of one Workload, or of the configuration."""

    owner: str
    namespace: str
    field: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.owner} {self.field}"


class _Value(NamedTuple):
    pod: str
    value: float | None
    wall_seconds: float


class Series(NamedTuple):
    """One pod's values in a range, at the moments where it has one: epoch seconds and usable numbers."""

    pod: str
    moments: list[float]
    values: list[float]


class PrometheusSource:
    """Queries of one Prometheus.

    Parameters
    ----------
    session : where to ask; its timeout holds for each query.
    settings : its url, and the recorded queries of what pods use.
    mirror : Mirror
        The Workloads, with their queries.
    usage : whether the recorded queries are asked at all.

    Notes
    -----
    Prometheus stamps an answer with the time of the query and looks back 5 minutes by default, so that an old value
    seems to be new. Of a query that is a plain selector the time of each sample is asked for too. Of any other
    expression nobody can tell; the time of the query stands for it.

    A rate over two minutes divides by two minutes however young the counter is, so that a pod which has just started
    seems to be nearly idle: ``settling_seconds`` is the longest range in the recorded queries.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        settings: PrometheusSourceSettings,
        mirror: ObjectCache,
        *,
        usage: bool = False,
    ) -> None:
        self._session = session
        self._url = settings.url
        self._mirror = mirror
        texts = {"podCpuQuery": settings.pod_cpu_query, "podMemoryQuery": settings.pod_memory_query}
        self._usage = [_Query(_CONFIGURED, "default", field, text) for field, text in texts.items()] if usage else []
        self._slots = asyncio.Semaphore(CONCURRENT_QUERIES)
        self.settling_seconds = max((longest_range(text) for text in texts.values()), default=0.0)
        self.refused: dict[str, str] = {}
        """Queries that gave nothing usable, with the reason, by owner and field."""

    async def read(self) -> Measured:
        """Run all queries; one that fails says so in `refused`, the others go on.

        Raises
        ------
        SourceDown
            When no query at all was answered.
        """
        asked = [*self._queries(), *self._usage]
        if not asked:
            await self._answer("vector(1)")  # whether it is up is known before the first Workload asks something
        answers = await asyncio.gather(*(self._ask(one) for one in asked))
        faults = [answer for answer in answers if isinstance(answer, SourceDown)]
        if asked and len(faults) == len(asked):
            raise faults[0]
        self.refused = {}
        values: list[tuple[str, bool, float | None, float]] = []
        usage: list[UsageReading] = []
        for one, answer in zip(asked, answers, strict=True):
            if isinstance(answer, (SourceDown, str)):
                self.refused[one.name] = str(answer)
            elif one.field in _USAGE_FIELDS:
                if not answer:
                    self.refused[one.name] = "no series: does this Prometheus scrape the kubelets' cAdvisor?"
                resource = _USAGE_FIELDS[one.field]
                usage += [UsageReading(pod, resource, value, wall) for pod, value, wall in answer]
            else:
                values += [(pod, one.field == "latencyQuery", value, wall) for pod, value, wall in answer]
        return Measured(merge(values), usage)

    async def usage_range(self, resource: int, start: float, end: float, step: float) -> list[Series]:
        """Return what pods used from ``start`` to ``end`` (epoch seconds, both included), every ``step`` seconds.

        Raises
        ------
        SourceDown
            When there is no answer, or the query is refused.
        """
        (one,) = [one for one in self._usage if _USAGE_FIELDS[one.field] == resource]
        params = {"query": one.text, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        async with self._slots:
            body = await fetch(self._session, f"{self._url}/api/v1/query_range", params, _REFUSALS)
        return await asyncio.to_thread(_matrix, one, body)

    def _queries(self) -> Iterable[_Query]:
        for key, workload in self._mirror.workloads.items():
            qos = workload.spec.get("qos")
            for field in ("rpsQuery", "latencyQuery"):
                query = qos.get(field) if isinstance(qos, dict) else None
                if query:
                    yield _Query(key, workload.metadata.namespace, field, str(query))

    async def _ask(self, one: _Query) -> list[_Value] | str | SourceDown:
        """Return the values, or why this query gave none, or that nobody answered."""
        try:
            answer = await self._answer(one.text)
        except SourceDown as error:
            return error
        if answer.get("status") != "success":
            return str(answer.get("error", "no reason given"))
        series = _vector(answer)
        if series is None:
            return "it gives no instant vector"
        values = [value for value in (_value(one, each) for each in series) if value is not None]
        if series and not values:
            return "none of its series has a label pod (write: sum by (namespace, pod) (...))"
        if not values or _SELECTOR.fullmatch(one.text) is None:
            return values
        times = await self._sample_times(one)
        return [_Value(pod, value, min(wall, times.get(pod, wall))) for pod, value, wall in values]

    async def _sample_times(self, one: _Query) -> dict[str, float]:
        """Return the epoch second of the oldest sample of each pod, as far as it can be had."""
        try:
            series = _vector(await self._answer(f"timestamp({one.text})"))
        except SourceDown:
            return {}
        times: dict[str, float] = {}
        for found in (_value(one, each) for each in series or ()):
            if found is not None and found.value is not None:
                times[found.pod] = min(found.value, times.get(found.pod, found.value))
        return times

    async def _answer(self, query: str) -> dict[str, Any]:
        async with self._slots:
            body = await fetch(self._session, f"{self._url}/api/v1/query", {"query": query}, _REFUSALS)
        return await asyncio.to_thread(_decoded, body) if len(body) > THREAD_ABOVE_BYTES else _decoded(body)


def longest_range(query: str) -> float:
    """Return the seconds of the longest range or subquery that a PromQL text names, as far as it names one."""
    ranges = (_DURATION.findall(text) for text in _RANGE.findall(query))
    return max((sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in one) for one in ranges), default=0.0)


def _vector(answer: dict[str, Any]) -> list[object] | None:
    """Return the series of an instant vector; None when the answer is something else."""
    data = answer.get("data")
    series = data.get("result") if isinstance(data, dict) and data.get("resultType") == "vector" else None
    return series if isinstance(series, list) else None


def _value(one: _Query, series: object) -> _Value | None:
    """Return the value of a series; None when it names no pod."""
    pod = _pod(one, series)
    sample = series.get("value") if isinstance(series, dict) else None
    if not pod or not isinstance(sample, list) or len(sample) != 2:
        return None
    return _Value(pod, usable(sample[1]), usable(sample[0]) or 0.0)


def _pod(one: _Query, series: object) -> str:
    labels = series.get("metric") if isinstance(series, dict) else None
    if not isinstance(labels, dict) or "pod" not in labels:
        return ""
    return f"{labels.get('namespace', one.namespace)}/{labels['pod']}"


def _matrix(query: _Query, body: bytes) -> list[Series]:
    """In a thread: take the answer of a range query apart."""
    answer = _decoded(body)
    if answer.get("status") != "success":
        raise SourceDown(f"{query.name}: {answer.get('error', 'no reason given')}")
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise SourceDown(f"{query.name} gives no range of values")
    found = []
    for series in data["result"]:
        pod = _pod(query, series)
        samples = series.get("values") if isinstance(series, dict) else None
        if not pod or not isinstance(samples, list):
            continue
        pairs = [(usable(one[0]), usable(one[1])) for one in samples if isinstance(one, list) and len(one) == 2]
        kept = [(moment, value) for moment, value in pairs if moment is not None and value is not None]
        found.append(Series(pod, [moment for moment, _ in kept], [value for _, value in kept]))
    return found


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise SourceDown("the answer is not JSON: is this a Prometheus?") from error
    if not isinstance(answer, dict):
        raise SourceDown("the answer is not what Prometheus sends")
    return answer
