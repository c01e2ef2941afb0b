"""Prometheus as a source: instant queries for the present, and range queries for the past.

The present is read by `usage_feed` at its interval: the rate and latency of each Workload (`workload_queries` makes the
query, `query_budgets` sets the time), and two recorded queries of the configuration for the usage of every pod. The
past of those two is read by `host_load.history` after a restart. Invariants: an answer to a Workload's query counts for
pods of this Workload only, whatever its labels are. A failed query is listed in `refused` and affects no other query.

Sources: https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries and #range-queries
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import aiohttp

from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.usage.measurement_faults import MeasurementFaults
from cotide_operator.usage.prometheus_client import AnswerTooLarge, Limits, PrometheusClient
from cotide_operator.usage.query_budgets import QueryBudgets
from cotide_operator.usage.service_readings import QueryFault, Reason
from cotide_operator.usage.sources import (
    CPU,
    MEMORY,
    Measured,
    NodeReading,
    Reading,
    SourceDown,
    UsageReading,
    merge,
    usable,
)
from cotide_operator.usage.workload_queries import WorkloadQueries, WorkloadQuery, is_plain_selector

_RANGE: Final = re.compile(r"\[((?:\d+(?:ms|[smhdwy]))+)")
_DURATION: Final = re.compile(r"(\d+)(ms|[smhdwy])")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}
CONCURRENT_QUERIES: Final = 8
"""Concurrent queries of Workloads. Chosen: Prometheus runs 20 queries at once by default and has other users."""
READING_SECONDS: Final = 10.0
"""Longest time of Workloads' queries in one reading; half of the staleness limit if that is shorter; chosen."""
PROBE_LIMITS: Final = Limits(1 << 16, 2)
USAGE_LIMITS: Final = Limits(256 << 20, 1_000_000)
"""Limits of the configuration's own queries. Chosen: 150,000 pods
(https://kubernetes.io/docs/setup/best-practices/cluster-large/) have 45 MB in an instant answer. A range has no more,
since `history` asks for little at a time."""
MESSAGE_CHARACTERS: Final = 400
"""Longest text of a fault in a status; chosen."""
HISTOGRAMS: Final = (
    "its series are native histograms, not numbers"
    " (write: histogram_quantile(0.95, ...) for a latency, histogram_count(...) for a rate)"
)
_CONFIGURED: Final = "metricsSource.prometheus"
_QUERY: Final = "/api/v1/query"
_USAGE_FIELDS: Final = {"podCpuQuery": CPU, "podMemoryQuery": MEMORY}


@dataclass(frozen=True, slots=True)
class _UsageQuery:
    """One query of the configuration."""

    field: str
    text: str

    @property
    def name(self) -> str:
        return f"{_CONFIGURED} {self.field}"


class _Value(NamedTuple):
    pod: str
    value: float | None
    wall_seconds: float


class _QueryFailedError(Exception):
    """A query gave nothing usable, for a reason of its own."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Outcome of a Workload's query: values, and the faults for its owner or only for the log."""

    values: Sequence[_Value] = ()
    fault: QueryFault | None = None
    unanswered: str = ""


class Series(NamedTuple):
    """One pod's values in a range, where it has one: epoch seconds and usable numbers."""

    pod: str
    moments: list[float]
    values: list[float]


class PrometheusSource:
    """Queries of one Prometheus.

    Parameters
    ----------
    session : for the requests; its timeout holds for each query.
    settings : address, templates, permissions of queries, and the recorded queries for the usage of pods.
    cache : ObjectCache
        The Workloads and their pods.
    needs_usage : called at each reading; whether the recorded queries run. `usage_range` always runs them.
    stale_seconds : wall seconds after which a reading is too old: a reading takes at most half of them.
    faults : counts and logs errors that a part raised; None: only the query's own refusal reports them.

    Notes
    -----
    Prometheus stamps an answer with the time of the query and looks back 5 minutes by default, so that an old value
    seems to be new. For a query that is a plain selector, the time of each sample is queried too. For any other
    expression that time is unknown, and the time of the query takes its place.

    A rate over two minutes divides by two minutes however young the counter is, so that a pod which has just started
    seems to be nearly idle: ``settling_seconds`` is the longest range in the recorded queries.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        settings: PrometheusSourceSettings,
        cache: ObjectCache,
        *,
        needs_usage: Callable[[], bool] = lambda: False,
        stale_seconds: float = 60.0,
        faults: MeasurementFaults | None = None,
    ) -> None:
        self._client = PrometheusClient(session, settings)
        own = self._settings = settings.workload_queries
        self._queries = WorkloadQueries(own, cache)
        self._budgets: QueryBudgets[WorkloadQuery, _Outcome] = QueryBudgets(
            concurrent=CONCURRENT_QUERIES, per_namespace=own.concurrent_per_namespace, seconds=own.seconds_per_namespace
        )
        self._limits = Limits(own.maximum_answer_bytes, own.maximum_series)
        self._stale_seconds = stale_seconds
        self._left_out = faults
        self._outcomes: dict[WorkloadQuery, tuple[float, _Outcome]] = {}
        """The last outcome of each query and its time, in seconds of the monotonic clock."""
        texts = {"podCpuQuery": settings.pod_cpu_query, "podMemoryQuery": settings.pod_memory_query}
        self._cache = cache
        asked = {"nodeWaitingQuery": settings.node_waiting_query, "nodeThrottledQuery": settings.node_throttled_query}
        self._node_queries = [_UsageQuery(field, text) for field, text in asked.items() if text is not None]
        self._needs_usage = needs_usage
        self._usage = [_UsageQuery(field, text) for field, text in texts.items()]
        self.settling_seconds = max((longest_range(text) for text in texts.values()), default=0.0)
        self.refused: dict[str, str] = {}
        """Queries that gave nothing usable, with the reason, by owner and field."""

    async def read(self) -> Measured:
        """Run all queries; a failed one is listed in `refused`, and the others continue.

        Raises
        ------
        SourceDown
            When Prometheus does not answer the simplest query.
        """
        # A tenant's query does not show whether Prometheus is up: it may be slow, wrong or absent.
        probed = await self._client.answer(_QUERY, {"query": "vector(1)"}, PROBE_LIMITS)
        if probed.get("status") != "success":
            raise SourceDown(f"Prometheus refuses the simplest query: {_reason(probed)}")
        refused: dict[str, str] = {}
        usage, services, nodes = await asyncio.gather(
            self._read_usage(refused), self._read_workloads(refused), self._read_nodes(refused)
        )
        self.refused = refused
        return Measured(services, usage, self._faults(), nodes)

    async def usage_range(self, resource: int, start: float, end: float, step: float) -> list[Series]:
        """Return the usage of pods from ``start`` to ``end`` (epoch seconds, both included), every ``step`` seconds.

        Raises
        ------
        SourceDown
            When there is no answer, or the query is refused.
        """
        (one,) = [usage_query for usage_query in self._usage if _USAGE_FIELDS[usage_query.field] == resource]
        params = {"query": one.text, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        answer = await self._client.answer("/api/v1/query_range", params, USAGE_LIMITS)
        return await asyncio.to_thread(_matrix, one, answer)

    async def _read_usage(self, refused: dict[str, str]) -> list[UsageReading]:
        found: list[UsageReading] = []
        asked = self._usage if self._needs_usage() else []
        answers = await asyncio.gather(*(self._ask_usage(usage_query) for usage_query in asked))
        for usage_query, answer in zip(asked, answers, strict=True):
            if isinstance(answer, str):
                refused[usage_query.name] = answer
            else:
                found += [
                    UsageReading(pod, _USAGE_FIELDS[usage_query.field], value, wall) for pod, value, wall in answer
                ]
        return found

    async def _read_nodes(self, refused: dict[str, str]) -> list[NodeReading]:
        """Return the cpu contention of the existing nodes, as far as queries cover it."""
        answers: dict[str, dict[str, _Value]] = {}
        for query in self._node_queries:
            answers[query.field] = {}
            try:
                series = await self._vector(query.text, {}, USAGE_LIMITS)
                for each in series:
                    found = _value(_node(each), each)
                    if found is not None and found.value is not None and found.pod in self._cache.nodes:
                        answers[query.field][found.pod] = found
                if not answers[query.field]:
                    _refuse_histograms(series)
            except (SourceDown, _QueryFailedError) as error:
                refused[query.name] = str(error)
            except Exception as error:  # noqa: BLE001 - one answer that trips us must not take the others with it
                refused[query.name] = self._tripped(query.name, error)
        waiting, throttled = answers.get("nodeWaitingQuery", {}), answers.get("nodeThrottledQuery", {})
        read = []
        for node in waiting.keys() | throttled.keys():
            values = [item[node] for item in (waiting, throttled) if node in item]
            share = waiting[node].value if node in waiting else None
            held_back = node in throttled and bool(throttled[node].value)
            read.append(NodeReading(node, share, held_back, min(value.wall_seconds for value in values)))
        return read

    async def _ask_usage(self, one: _UsageQuery) -> list[_Value] | str:
        """Return the usage of every pod, or the reason why it is unknown."""
        try:
            series = await self._vector(one.text, {}, USAGE_LIMITS)
            if not series:
                return "no series: does this Prometheus scrape the kubelets' cAdvisor?"
            values = await asyncio.to_thread(_values_of, series)
            if not values:
                _refuse_histograms(series)
                return "none of its series has a label pod (write: sum by (namespace, pod) (...))"
            if not is_plain_selector(one.text):
                return values
            stamps = await asyncio.to_thread(_values_of, await self._vector(f"timestamp({one.text})", {}, USAGE_LIMITS))
            return await asyncio.to_thread(_dated, values, stamps)
        except (SourceDown, _QueryFailedError) as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - one answer that trips us must not take the others with it
            return self._tripped(one.name, error)

    async def _read_workloads(self, refused: dict[str, str]) -> list[Reading]:
        """Run the queries of Workloads in fair turns; fill in the refused ones."""
        queries = self._queries.by_namespace()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(READING_SECONDS, self._stale_seconds / 2)
        answers = await self._budgets.run(queries, self._ask, deadline)
        now = time.monotonic()
        before, self._outcomes = self._outcomes, {}
        for query in (query for each in queries.values() for query in each):
            if query in answers:
                self._outcomes[query] = (now, answers[query])
                continue
            at, outcome = before.get(query, (now, _Outcome()))
            if now - at > self._stale_seconds:
                sentence = f"spec.qos.{query.field}: the namespace has more queries than its time"
                outcome = _Outcome(fault=QueryFault("QueryTooSlow", sentence))
            self._outcomes[query] = (at, outcome)
        by_workload: dict[str, list[tuple[str, bool, float | None, float]]] = {}
        for query, outcome in answers.items():
            is_latency = query.field == "latencyQuery"
            of = by_workload.setdefault(query.workload, [])
            of += [(pod, is_latency, value, wall) for pod, value, wall in outcome.values]
        for query, (_, outcome) in self._outcomes.items():
            if outcome.fault is not None or outcome.unanswered:
                refused[query.name] = outcome.unanswered or (outcome.fault.message if outcome.fault else "")
        return [reading for key, values in by_workload.items() for reading in merge(values, key)]

    def _faults(self) -> dict[str, QueryFault]:
        """Return the faults of each Workload's queries, as one sentence."""
        found: dict[str, QueryFault] = {}
        for query, (_, outcome) in self._outcomes.items():
            if outcome.fault is not None:
                before = found.get(query.workload)
                reason = outcome.fault.reason if before is None else before.reason
                message = outcome.fault.message if before is None else f"{before.message}; {outcome.fault.message}"
                found[query.workload] = QueryFault(reason, message)
        return found

    def _tripped(self, what: str, error: Exception) -> str:
        """Count and log a query or an answer that makes a part raise; return the sentence for its owner."""
        if self._left_out is not None:
            self._left_out.leave_out("query", what, error)
        return f"it can't be sent, or its answer can't be parsed ({type(error).__name__})"

    async def _ask(self, query: WorkloadQuery, seconds: float) -> _Outcome:
        """Run one query of a Workload; an error that it raises counts as a fault of this Workload only."""
        try:
            return await self._ask_in_time(query, seconds)
        except Exception as error:  # noqa: BLE001 - one query that trips us must not take all others with it
            sentence = f"spec.qos.{query.field}: {self._tripped(query.name, error)}"
            return _Outcome(fault=QueryFault("AnswerUnusable", sentence))

    async def _ask_in_time(self, query: WorkloadQuery, seconds: float) -> _Outcome:
        """Run one query of a Workload within a number of seconds."""
        asked = self._queries.make(query)
        refused = QueryFault("QueryRefused", asked.refused[:MESSAGE_CHARACTERS]) if asked.refused else None
        if not asked.text:
            return _Outcome(fault=refused)
        reason: Reason
        try:
            async with asyncio.timeout(seconds):
                return _Outcome(await self._values(query, asked.text, asked.is_selector, seconds), refused)
        except _QueryFailedError as error:
            reason, sentence = error.reason, str(error)
        except AnswerTooLarge as error:
            reason, sentence = "AnswerTooLarge", str(error)
        except (TimeoutError, SourceDown) as error:
            if not isinstance(error, TimeoutError) and not isinstance(error.__cause__, TimeoutError):
                return _Outcome(fault=refused, unanswered=str(error))
            reason, sentence = "QueryTooSlow", "it was not answered in time"
        return _Outcome(fault=refused or QueryFault(reason, f"{asked.origin}: {sentence}"[:MESSAGE_CHARACTERS]))

    async def _values(self, query: WorkloadQuery, text: str, is_selector: bool, seconds: float) -> list[_Value]:
        """Return one value for each pod that an answer names: the highest if there are several."""
        # Prometheus stops at the same timeout, and newer versions send no more than this client reads (limit).
        bounds = {"timeout": f"{seconds:.3f}", "limit": str(self._limits.series + 1)}
        series = await self._vector(text, bounds, self._limits)
        found: dict[str, _Value] = {}
        for each in series:
            value = _value(self._pod_of(query, each), each)
            if value is None:
                continue
            before = found.get(value.pod)
            if before is None or (value.value is not None and value.value > (before.value or 0.0)):
                found[value.pod] = value
        if series and not found:
            _refuse_histograms(series)
            label = self._settings.pod_label
            raise _QueryFailedError(
                "AnswerUnusable",
                f"none of its series has a label {label} and this namespace (write: sum by (namespace, {label}) (...))",
            )
        if not found or not is_selector:
            return list(found.values())
        times: dict[str, float] = {}
        for each in await self._vector(f"timestamp({text})", bounds, self._limits):
            _note_time(times, _value(self._pod_of(query, each), each))
        return [_Value(pod, value, min(wall, times.get(pod, wall))) for pod, value, wall in found.values()]

    def _pod_of(self, query: WorkloadQuery, series: object) -> str:
        """Return the pod of a series if it is of the Workload's namespace, otherwise None."""
        labels = series.get("metric") if isinstance(series, dict) else None
        pod = labels.get(self._settings.pod_label) if isinstance(labels, dict) else None
        if not isinstance(labels, dict) or not isinstance(pod, str):
            return ""
        claimed = labels.get(self._settings.namespace_label, query.namespace)
        return f"{query.namespace}/{pod}" if claimed == query.namespace else ""

    async def _vector(self, text: str, bounds: dict[str, str], limits: Limits) -> list[object]:
        """Return the series of an instant query."""
        answer = await self._client.answer(_QUERY, {"query": text, **bounds}, limits)
        if answer.get("status") != "success":
            raise _QueryFailedError("QueryFailed", _reason(answer))
        data = answer.get("data")
        series = data.get("result") if isinstance(data, dict) and data.get("resultType") == "vector" else None
        if not isinstance(series, list):
            raise _QueryFailedError("AnswerUnusable", "it gives no instant vector")
        return series


def _refuse_histograms(series: list[object]) -> None:
    """Raise where a series of an instant answer has a native histogram in place of a number.

    Source: https://prometheus.io/docs/prometheus/latest/querying/api/#native-histograms
    """
    if any(isinstance(value, dict) and "histogram" in value and "value" not in value for value in series):
        raise _QueryFailedError("AnswerUnusable", HISTOGRAMS)


def _reason(answer: dict[str, Any]) -> str:
    reason = answer.get("error")
    return reason[:MESSAGE_CHARACTERS] if isinstance(reason, str) else "no reason given"


def _note_time(times: dict[str, float], found: _Value | None) -> None:
    """Keep the oldest time of a pod's samples."""
    if found is not None and found.value is not None:
        times[found.pod] = min(found.value, times.get(found.pod, found.value))


def longest_range(query: str) -> float:
    """Return the seconds of the longest range or subquery in a PromQL text, as far as it has one."""
    ranges = (_DURATION.findall(text) for text in _RANGE.findall(query))
    return max((sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in group) for group in ranges), default=0.0)


def _value(pod: str, series: object) -> _Value | None:
    """Return the value of a series; None when it names no pod."""
    sample = series.get("value") if isinstance(series, dict) else None
    if not pod or not isinstance(sample, list) or len(sample) != 2:
        return None
    return _Value(pod, usable(sample[1]), usable(sample[0]) or 0.0)


def _values_of(series: list[object]) -> list[_Value]:
    """In a thread: parse the answer of a recorded query, which has a series for every pod of the cluster."""
    return [value for value in (_value(_pod(each), each) for each in series) if value is not None]


def _dated(values: list[_Value], stamps: list[_Value]) -> list[_Value]:
    """In a thread: return values with the times of their own samples, as far as known."""
    times: dict[str, float] = {}
    for stamp in stamps:
        _note_time(times, stamp)
    return [_Value(pod, value, min(wall, times.get(pod, wall))) for pod, value, wall in values]


def _pod(series: object) -> str:
    """Return the pod of a series of the configuration's own queries."""
    labels = series.get("metric") if isinstance(series, dict) else None
    if not isinstance(labels, dict):
        return ""
    namespace, pod = labels.get("namespace", "default"), labels.get("pod")
    return f"{namespace}/{pod}" if isinstance(namespace, str) and isinstance(pod, str) else ""


def _node(series: object) -> str:
    """Return the node of a series."""
    labels = series.get("metric") if isinstance(series, dict) else None
    node = labels.get("node") if isinstance(labels, dict) else None
    return node if isinstance(node, str) else ""


def _matrix(query: _UsageQuery, answer: dict[str, Any]) -> list[Series]:
    """In a thread: parse the answer of a range query."""
    if answer.get("status") != "success":
        raise SourceDown(f"{query.name}: {_reason(answer)}")
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise SourceDown(f"{query.name} gives no range of values")
    found = []
    if any(isinstance(one, dict) and "histograms" in one and "values" not in one for one in data["result"]):
        raise SourceDown(f"{query.name}: {HISTOGRAMS}")
    for series in data["result"]:
        pod = _pod(series)
        samples = series.get("values") if isinstance(series, dict) else None
        if not pod or not isinstance(samples, list):
            continue
        pairs = [
            (usable(sample[0]), usable(sample[1]))
            for sample in samples
            if isinstance(sample, list) and len(sample) == 2
        ]
        kept = [(moment, value) for moment, value in pairs if moment is not None and value is not None]
        found.append(Series(pod, [moment for moment, _ in kept], [value for _, value in kept]))
    return found
