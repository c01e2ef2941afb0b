"""Readings of a source of measurements, and the simplest source: a text endpoint of fake nodes.

Sources are read by `usage_feed` at its interval: Prometheus (`prometheus`), the metrics API (`metrics_api`), or
`TextSource`. A source returns values with their times and does not judge them. Invariant: a value that is not a finite
number >= 0 leaves a source as None, never as zero.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

import aiohttp

from cotide_core.errors import ClusterError
from cotide_core.limits import MAX_EXACT_INT, MAX_LATENCY_MILLISECONDS, MAX_RATE
from cotide_kube.connection.faults import why_unreachable
from cotide_operator.usage.service_readings import QueryFault

CPU: Final = 0
MEMORY: Final = 1
"""Values of a `UsageReading`'s resource: millicores, bytes."""
RPS_NAME: Final = "cotide_sim_service_requests_per_second"
LATENCY_NAME: Final = "cotide_sim_service_latency_p95_milliseconds"
CPU_NAME: Final = "cotide_sim_pod_cpu_usage_millicores"
MEMORY_NAME: Final = "cotide_sim_pod_memory_usage_bytes"
_REST_OF_LINE: Final = r"\{([^}\n]*)\}[ \t]+(\S+)(?:[ \t]+(-?\d{1,18}))?[ \t\r]*$"
"""A stamp has at most 18 digits, as many as an int64 holds: a line with more is invalid. Every part matches within one
line: otherwise an unclosed brace would start a search of the whole rest for each line."""
_SERVICE_LINE: Final = re.compile(rf"^({RPS_NAME}|{LATENCY_NAME}){_REST_OF_LINE}", re.MULTILINE)
_USAGE_LINE: Final = re.compile(rf"^({CPU_NAME}|{MEMORY_NAME}){_REST_OF_LINE}", re.MULTILINE)
_LABEL: Final = re.compile(r'(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"')
THREAD_ABOVE_BYTES: Final = 200_000
"""Longer answers are parsed in a thread: otherwise they take a few milliseconds of the event loop (chosen)."""


class SourceDown(ClusterError):
    """The source gave no usable answer."""


TEXT_BYTES: Final = 256 << 20
"""Limit of a text endpoint; chosen: 200,000 pods with four numbers each have 100 MB."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A source's values of one online pod.

    Attributes
    ----------
    pod : ``namespace/name``.
    requests_per_second, latency_p95_milliseconds : None where the source has no usable number.
    rate_wall_seconds, latency_wall_seconds : epoch seconds of each value.
    workload : the owner of the query: the value counts for pods of this Workload only. None from a source without
        queries of Workloads.
    """

    pod: str
    requests_per_second: float | None
    latency_p95_milliseconds: float | None
    rate_wall_seconds: float
    latency_wall_seconds: float
    workload: str | None = None


class UsageReading(NamedTuple):
    """A source's value of one resource of one pod of any class.

    Attributes
    ----------
    pod : ``namespace/name``.
    resource : `CPU` or `MEMORY`.
    value : millicores or bytes; None where the source has no usable number.
    wall_seconds : epoch second of the value.
    """

    pod: str
    resource: int
    value: float | None
    wall_seconds: float


class NodeReading(NamedTuple):
    """A source's values of the cpu contention on one node.

    Attributes
    ----------
    node : its name.
    waiting_share : share of time that the longest waiting service waits for a cpu; None where unknown.
    throttled : whether a service on it is throttled by its own limit.
    wall_seconds : epoch second of the value.
    """

    node: str
    waiting_share: float | None
    throttled: bool
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One reading of a source."""

    services: list[Reading] = field(default_factory=list)
    usage: list[UsageReading] = field(default_factory=list)
    faults: dict[str, QueryFault] = field(default_factory=dict)
    """Faults of a Workload's queries, by its key."""
    nodes: list[NodeReading] = field(default_factory=list)


class Source(Protocol):
    """A source to read from."""

    @property
    def settling_seconds(self) -> float:
        """Return the wall seconds after a pod's start while its measured usage is too low to be used."""
        ...

    @property
    def refused(self) -> dict[str, str]:
        """Queries without a usable result at the last reading, with the reason."""
        ...

    async def read(self) -> Measured:
        """Return the present readings; raises `SourceDown` when there is no answer."""
        ...


def usable(text: object) -> float | None:
    """Return a number that can be a rate, a latency or a usage; None for NaN, infinity, negatives and anything else.

    A number beyond `MAX_EXACT_INT` is invalid, too: an impossible value is unknown, neither zero nor very large.
    """
    try:
        value = float(text)  # type: ignore[arg-type]  # any type from the network; refused below
    except (TypeError, ValueError, OverflowError):
        return None
    return value if 0.0 <= value <= MAX_EXACT_INT else None  # NaN fails both comparisons


def merge(values: Iterable[tuple[str, bool, float | None, float]], workload: str | None = None) -> list[Reading]:
    """Join rates and latencies of the same pods, each with its own time; an impossible value is unknown.

    Parameters
    ----------
    values : of (pod key, whether it is a latency, value, wall seconds).
    workload : see `Reading`.
    """
    found: dict[str, Reading] = {}
    for pod, is_latency, value, wall in values:
        before = found.get(pod) or Reading(pod, None, None, wall, wall, workload)
        most = MAX_LATENCY_MILLISECONDS if is_latency else MAX_RATE
        known = value if value is not None and value <= most else None
        found[pod] = (
            replace(before, latency_p95_milliseconds=known, latency_wall_seconds=wall)
            if is_latency
            else replace(before, requests_per_second=known, rate_wall_seconds=wall)
        )
    return list(found.values())


class TextSource:
    """The Prometheus text endpoint of fake nodes."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.settling_seconds = 0.0
        self.refused: dict[str, str] = {}

    async def read(self) -> Measured:
        """Scrape once."""
        body = await fetch(self._session, self._url)
        now = time.time()
        if len(body) > THREAD_ABOVE_BYTES:
            return await asyncio.to_thread(_parsed, body, now)
        return _parsed(body, now)


def _parsed(body: bytes, now: float) -> Measured:
    text = body.decode("utf-8", "replace")
    return Measured(merge(parse_text(text, now)), list(parse_usage(text, now)))


def parse_text(text: str, now: float) -> Iterable[tuple[str, bool, float | None, float]]:
    """Yield (pod key, whether it is a latency, value, wall seconds) from an exposition."""
    for name, labels, value, stamp in _SERVICE_LINE.findall(text):
        pod = _pod(labels)
        if pod:
            yield pod, name == LATENCY_NAME, usable(value), int(stamp) / 1000 if stamp else now


def parse_usage(text: str, now: float) -> Iterable[UsageReading]:
    """Yield each pod's usage from an exposition."""
    for name, labels, value, stamp in _USAGE_LINE.findall(text):
        pod = _pod(labels)
        if pod:
            resource = CPU if name == CPU_NAME else MEMORY
            yield UsageReading(pod, resource, usable(value), int(stamp) / 1000 if stamp else now)


def _pod(labels: str) -> str:
    named = dict(_LABEL.findall(labels))
    return f"{named.get('namespace', 'default')}/{named['pod']}" if "pod" in named else ""


async def fetch(session: aiohttp.ClientSession, url: str) -> bytes:
    """Return the body of a GET with status 200.

    Raises
    ------
    SourceDown
        When no answer comes in time, or the answer has another status or is larger than `TEXT_BYTES`.
    """
    try:
        async with session.get(url) as response:
            if response.status != 200:
                raise SourceDown(f"{url} answers {response.status} {response.reason}")
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > TEXT_BYTES:
                    raise SourceDown(f"{url} answers more than {TEXT_BYTES} bytes")
            return bytes(body)
    except TimeoutError as error:
        raise SourceDown(f"{url} does not answer in time") from error
    except aiohttp.ClientError as error:
        raise SourceDown(f"{url} can't be reached: {why_unreachable(error, url)}") from error
