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


class PrometheusSource:
    """Instant queries, as each Workload names them in ``rpsQuery`` and ``latencyQuery``."""

    def __init__(self, session: aiohttp.ClientSession, url: str, mirror: Mirror) -> None:
        self._session = session
        self._url = f"{url}/api/v1/query"
        self._mirror = mirror
        self._slots = asyncio.Semaphore(CONCURRENT_QUERIES)
        self.refused: dict[str, str] = {}
        """Queries that Prometheus does not take, with its words, by Workload key and field."""

    async def read(self) -> list[Reading]:
        """Run all queries; a query that is refused says so in `refused`, the others go on."""
        asked: list[tuple[str, str, str, str]] = []
        for key, workload in self._mirror.workloads.items():
            qos = workload.spec.get("qos")
            for field in ("rpsQuery", "latencyQuery"):
                query = qos.get(field) if isinstance(qos, dict) else None
                if query:
                    asked.append((key, workload.metadata.namespace, field, str(query)))
        answers = await asyncio.gather(*(self._ask(*one) for one in asked))
        return merge(value for values in answers for value in values)

    async def _ask(
        self, key: str, namespace: str, field: str, query: str
    ) -> list[tuple[str, bool, float | None, float]]:
        async with self._slots:
            body = await _fetch(self._session, self._url, {"query": query}, refusals=(400, 422))
        answer = _decoded(body)
        if answer.get("status") != "success":
            self.refused[f"{key} {field}"] = str(answer.get("error", "no reason given"))
            return []
        self.refused.pop(f"{key} {field}", None)
        values: list[tuple[str, bool, float | None, float]] = []
        data = answer.get("data")
        for series in data.get("result", ()) if isinstance(data, dict) and data.get("resultType") == "vector" else ():
            labels, sample = series.get("metric", {}), series.get("value", (0, None))
            if "pod" in labels:
                pod = f"{labels.get('namespace', namespace)}/{labels['pod']}"
                values.append((pod, field == "latencyQuery", usable(sample[1]), usable(sample[0]) or 0.0))
        return values


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
