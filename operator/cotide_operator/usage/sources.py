"""What a source of measurements says, and the simplest one: a text endpoint of fake nodes.

Sources are read by `usage_feed` at its interval: Prometheus (`prometheus`), the metrics API (`metrics_api`), or
`TextSource`. A source says what it saw and when; it judges nothing. Invariant: a value that is no finite number >= 0
leaves a source as None, never as zero.

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
"""A stamp has at most 18 digits, as many as an int64 holds: a line with more is none of an exposition. Of the same line
in every part: a brace that is never closed must not have the whole rest looked through, for each line anew."""
_SERVICE_LINE: Final = re.compile(rf"^({RPS_NAME}|{LATENCY_NAME}){_REST_OF_LINE}", re.MULTILINE)
_USAGE_LINE: Final = re.compile(rf"^({CPU_NAME}|{MEMORY_NAME}){_REST_OF_LINE}", re.MULTILINE)
_LABEL: Final = re.compile(r'(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"')
THREAD_ABOVE_BYTES: Final = 200_000
"""Longer answers are taken apart in a thread: a few milliseconds of the event loop otherwise (chosen)."""


class SourceDown(ClusterError):
    """The source gave no usable answer."""


TEXT_BYTES: Final = 256 << 20
"""Of a text endpoint; chosen: 200,000 pods with four numbers each have 100 MB."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source says of one online pod.

    Attributes
    ----------
    pod : ``namespace/name``.
    requests_per_second, latency_p95_milliseconds : None where the source has no usable number.
    rate_wall_seconds, latency_wall_seconds : epoch seconds at which each was so.
    workload : whose query gave it: it counts for pods of this Workload only. None of a source that asks for no
        Workload's sake.
    """

    pod: str
    requests_per_second: float | None
    latency_p95_milliseconds: float | None
    rate_wall_seconds: float
    latency_wall_seconds: float
    workload: str | None = None


class UsageReading(NamedTuple):
    """What a source says of one resource of one pod of any class.

    Attributes
    ----------
    pod : ``namespace/name``.
    resource : `CPU` or `MEMORY`.
    value : millicores or bytes; None where the source has no usable number.
    wall_seconds : epoch second at which it was so.
    """

    pod: str
    resource: int
    value: float | None
    wall_seconds: float


class NodeReading(NamedTuple):
    """What a source says of how the cpu of one node is fought for.

    Attributes
    ----------
    node : its name.
    waiting_share : of its time, for which the service waits for a cpu that waits most; None where nobody tells.
    throttled : whether a service there is held back by a limit of its own.
    wall_seconds : epoch second at which it was so.
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
    """What is wrong with a Workload's queries, by its key."""
    nodes: list[NodeReading] = field(default_factory=list)


class Source(Protocol):
    """A source to read from."""

    @property
    def settling_seconds(self) -> float:
        """Wall seconds after a pod's start for which what is said of its use is too low to be taken."""
        ...

    @property
    def refused(self) -> dict[str, str]:
        """What gave nothing usable at the last reading, with the reason."""
        ...

    async def read(self) -> Measured:
        """Return the present readings; raises `SourceDown` when there is no answer."""
        ...


def usable(text: object) -> float | None:
    """Return a number that can be a rate, a latency or a use; None for NaN, infinity, negatives and anything else.

    Beyond `MAX_EXACT_INT` a number is no measurement either: what can't be is unknown, and neither zero nor very much.
    """
    try:
        value = float(text)  # type: ignore[arg-type]  # whatever came from the network; refused just below
    except (TypeError, ValueError, OverflowError):
        return None
    return value if 0.0 <= value <= MAX_EXACT_INT else None  # NaN is in no order


def merge(values: Iterable[tuple[str, bool, float | None, float]], workload: str | None = None) -> list[Reading]:
    """Join rates and latencies of the same pods, each with its own time; what no pod can have is unknown.

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
    """Yield what an exposition says of each pod's use."""
    for name, labels, value, stamp in _USAGE_LINE.findall(text):
        pod = _pod(labels)
        if pod:
            resource = CPU if name == CPU_NAME else MEMORY
            yield UsageReading(pod, resource, usable(value), int(stamp) / 1000 if stamp else now)


def _pod(labels: str) -> str:
    named = dict(_LABEL.findall(labels))
    return f"{named.get('namespace', 'default')}/{named['pod']}" if "pod" in named else ""


async def fetch(session: aiohttp.ClientSession, url: str) -> bytes:
    """Return what a GET gives with status 200.

    Raises
    ------
    SourceDown
        When nobody answers in time, the answer has another status, or is larger than `TEXT_BYTES`.
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
