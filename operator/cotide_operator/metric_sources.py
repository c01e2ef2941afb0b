"""Where request rates and latencies are read: Prometheus queries, or a text endpoint of fake nodes.

Called by `feed` at its interval. A source says what it saw and when; it judges nothing. Invariant: a value that is no
finite number >= 0 leaves a source as None, never as zero.

Sources: https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries,
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp

from cotide_core.errors import ClusterError
from cotide_operator.mirror import Mirror

RPS_NAME: Final = "cotide_sim_service_requests_per_second"
LATENCY_NAME: Final = "cotide_sim_service_latency_p95_milliseconds"
_LINE: Final = re.compile(
    r"^(cotide_sim_service_requests_per_second|cotide_sim_service_latency_p95_milliseconds)"
    r"\{([^}]*)\}\s+(\S+)(?:\s+(-?\d+))?\s*$",
    re.MULTILINE,
)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SELECTOR: Final = re.compile(r'\s*(?:[a-zA-Z_:][\w:]*\s*)?(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?\s*')
"""A plain selector: a name, labels in braces, or both; for these alone timestamp() tells the samples' own times."""
CONCURRENT_QUERIES: Final = 8
"""Chosen: Prometheus runs 20 queries at once by default and has other users."""


class SourceDown(ClusterError):
    """The source gave no usable answer."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source says of one online pod.

    Attributes
    ----------
    pod : ``namespace/name``.
    requests_per_second, latency_p95_milliseconds : None where the source has no usable number.
    wall_seconds : epoch second at which it was so.
    """

    pod: str
    requests_per_second: float | None
    latency_p95_milliseconds: float | None
    wall_seconds: float


class Source(Protocol):
    """A place to read from."""

    async def read(self) -> list[Reading]:
        """Return the present readings; raises `SourceDown` when there is no answer."""
        ...


def usable(text: object) -> float | None:
    """Return a number that can be a rate or a latency; None for NaN, infinity, negatives and anything else."""
    try:
        value = float(text)  # type: ignore[arg-type]  # whatever came from the network; refused just below
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def merge(values: Iterable[tuple[str, bool, float | None, float]]) -> list[Reading]:
    """Join rates and latencies of the same pods; the older time counts.

    Parameters
    ----------
    values : of (pod key, whether it is a latency, value, wall seconds).
    """
    found: dict[str, Reading] = {}
    for pod, is_latency, value, wall in values:
        before = found.get(pod) or Reading(pod, None, None, wall)
        rate, latency = before.requests_per_second, before.latency_p95_milliseconds
        if is_latency:
            latency = value
        else:
            rate = value
        found[pod] = Reading(pod, rate, latency, min(before.wall_seconds, wall))
    return list(found.values())


class TextSource:
    """The Prometheus text endpoint of fake nodes."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def read(self) -> list[Reading]:
        """Scrape once."""
        text = (await _fetch(self._session, self._url, {})).decode("utf-8", "replace")
        now = time.time()
        return merge(parse_text(text, now))


def parse_text(text: str, now: float) -> Iterable[tuple[str, bool, float | None, float]]:
    """Yield (pod key, whether it is a latency, value, wall seconds) from an exposition."""
    for name, labels, value, stamp in _LINE.findall(text):
        named = dict(_LABEL.findall(labels))
        if "pod" not in named:
            continue
        pod = f"{named.get('namespace', 'default')}/{named['pod']}"
        yield pod, name == LATENCY_NAME, usable(value), int(stamp) / 1000 if stamp else now


@dataclass(frozen=True, slots=True)
class _Query:
    """One query of one Workload."""

    workload: str
    namespace: str
    field: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.workload} {self.field}"


class PrometheusSource:
    """Instant queries, as each Workload names them in ``rpsQuery`` and ``latencyQuery``.

    Parameters
    ----------
    session, url : where to ask.
    mirror : Mirror
        The Workloads, with their queries.

    Notes
    -----
    Prometheus stamps an answer with the time of the query and looks back 5 minutes by default, so that an old value
    seems to be new. Of a query that is a plain selector the time of each sample is asked for too. Of any other
    expression nobody can tell; the time of the query stands for it.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, mirror: Mirror) -> None:
        self._session = session
        self._url = f"{url}/api/v1/query"
        self._mirror = mirror
        self._slots = asyncio.Semaphore(CONCURRENT_QUERIES)
        self.refused: dict[str, str] = {}
        """Queries that gave nothing usable, with the reason, by Workload key and field."""

    async def read(self) -> list[Reading]:
        """Run all queries; one that fails says so in `refused`, the others go on.

        Raises
        ------
        SourceDown
            When no query at all was answered.
        """
        asked = list(self._queries())
        if not asked:
            await self._answer("vector(1)")  # whether it is up is known before the first Workload asks something
        answers = await asyncio.gather(*(self._ask(one) for one in asked))
        faults = [answer for answer in answers if isinstance(answer, SourceDown)]
        if asked and len(faults) == len(asked):
            raise faults[0]
        self.refused = {}
        values: list[tuple[str, bool, float | None, float]] = []
        for one, answer in zip(asked, answers, strict=True):
            if isinstance(answer, (SourceDown, str)):
                self.refused[one.name] = str(answer)
            else:
                values += answer
        return merge(values)

    def _queries(self) -> Iterable[_Query]:
        for key, workload in self._mirror.workloads.items():
            qos = workload.spec.get("qos")
            for field in ("rpsQuery", "latencyQuery"):
                query = qos.get(field) if isinstance(qos, dict) else None
                if query:
                    yield _Query(key, workload.metadata.namespace, field, str(query))

    async def _ask(self, one: _Query) -> list[tuple[str, bool, float | None, float]] | str | SourceDown:
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
        return [(pod, kind, value, min(wall, times.get(pod, wall))) for pod, kind, value, wall in values]

    async def _sample_times(self, one: _Query) -> dict[str, float]:
        """Return the epoch second of the oldest sample of each pod, as far as it can be had."""
        try:
            series = _vector(await self._answer(f"timestamp({one.text})"))
        except SourceDown:
            return {}
        times: dict[str, float] = {}
        for value in (_value(one, each) for each in series or ()):
            if value is not None and value[2] is not None:
                times[value[0]] = min(value[2], times.get(value[0], value[2]))
        return times

    async def _answer(self, query: str) -> dict[str, Any]:
        async with self._slots:
            return _decoded(await _fetch(self._session, self._url, {"query": query}, refusals=(400, 422)))


def _vector(answer: dict[str, Any]) -> list[object] | None:
    """Return the series of an instant vector; None when the answer is something else."""
    data = answer.get("data")
    series = data.get("result") if isinstance(data, dict) and data.get("resultType") == "vector" else None
    return series if isinstance(series, list) else None


def _value(one: _Query, series: object) -> tuple[str, bool, float | None, float] | None:
    """Return (pod key, whether it is a latency, value, wall seconds) of a series; None when it names no pod."""
    labels = series.get("metric") if isinstance(series, dict) else None
    sample = series.get("value") if isinstance(series, dict) else None
    if not isinstance(labels, dict) or "pod" not in labels or not isinstance(sample, list) or len(sample) != 2:
        return None
    pod = f"{labels.get('namespace', one.namespace)}/{labels['pod']}"
    return pod, one.field == "latencyQuery", usable(sample[1]), usable(sample[0]) or 0.0


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise SourceDown("the answer is not JSON: is this a Prometheus?") from error
    if not isinstance(answer, dict):
        raise SourceDown("the answer is not what Prometheus sends")
    return answer


async def _fetch(
    session: aiohttp.ClientSession, url: str, params: dict[str, str], refusals: tuple[int, ...] = ()
) -> bytes:
    try:
        async with session.get(url, params=params) as response:
            body = await response.read()
            if response.status == 200 or response.status in refusals:
                return body
            raise SourceDown(f"{url} answers {response.status} {response.reason}")
    except TimeoutError as error:
        raise SourceDown(f"{url} does not answer in time") from error
    except aiohttp.ClientError as error:
        raise SourceDown(f"{url} can't be reached: {error}") from error
