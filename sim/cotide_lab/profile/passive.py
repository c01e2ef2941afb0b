"""A passive campaign: watches Prometheus while batch comes and goes, and switches Jobs off and on where allowed.

Called by `profile_command`. Each interval becomes a window if the same jobs were on the node at its beginning and at
its end. With Jobs to alternate, each pair of intervals has one with and one without them, in random order: a day's
course of the load then falls on both alike. Invariant: Jobs that were suspended here run again when the watch ends.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import numpy as np

from cotide_core.classes import CLASS_LABEL, WorkloadClass
from cotide_core.errors import ClusterError, InputError
from cotide_core.units import resource_amount
from cotide_lab.predictors.profiling.design import Cell, Mix
from cotide_lab.predictors.profiling.windows import JobKind, Window
from cotide_lab.profile.journal import Journal
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.usage.prometheus_client import Limits, PrometheusClient
from cotide_operator.usage.sources import SourceDown

ANSWER: Final = Limits(bytes=1 << 20, series=1000)
"""Limits of one query (chosen: a sum has one series)."""
TIMEOUT_SECONDS: Final = 30.0
RESUME_SECONDS: Final = (0.5, 1.0, 2.0)
"""Pauses before further attempts to resume Jobs at the end (chosen: within `UNDO_SECONDS`)."""
FAULTS: Final = 10
"""Consecutive intervals without an answer that end the watch (chosen)."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The watched queries and times.

    Attributes
    ----------
    url : of Prometheus.
    rate_query, latency_query : PromQL of requests/s, which are added up, and of p95 in ms: the worst counts.
    interval_seconds, seconds : of one window, and of the whole.
    """

    url: str
    rate_query: str
    latency_query: str
    interval_seconds: float
    seconds: float


class Alternation:
    """Suspends and resumes batch/v1 Jobs through the official client; without any it does nothing."""

    def __init__(self, api: Any, jobs: Sequence[tuple[str, str]], pauses: Sequence[float] = RESUME_SECONDS) -> None:
        self._api, self._jobs, self._pauses = api, tuple(jobs), tuple(pauses)
        self._lock = threading.Lock()
        """A turn ends before the next one begins: an abandoned turn must not write last."""

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def set(self, *, running: bool) -> None:
        """Let the Jobs run, or suspend them; a refused Job does not hold up the next ones.

        Raises
        ------
        ClusterError
            When a Job was refused.
        """
        from cotide_kube.official import WRITE_SECONDS, ask

        body = {"spec": {"suspend": not running}}
        refused: list[ClusterError] = []
        with self._lock:
            for namespace, name in self._jobs:
                try:
                    ask(self._api.patch_namespaced_job, name, namespace, body, seconds=WRITE_SECONDS)
                except ClusterError as error:
                    refused.append(error)
        if refused:
            raise refused[0]

    def leave(self) -> None:
        """Let the Jobs run permanently: nothing resumes them later, so that a refusal is tried again.

        Raises
        ------
        ClusterError
            When a Job was refused each time.
        """
        for pause in self._pauses:
            try:
                self.set(running=True)
            except ClusterError:
                time.sleep(pause)
            else:
                return
        self.set(running=True)


def mix_of_pods(pods: Sequence[Mapping[str, Any]], kinds: Sequence[JobKind]) -> Mix:
    """Return the running batch and gratis pods among those of a node.

    Raises
    ------
    InputError
        When a pod has an unnamed type: its size and request are unknown.
    """
    known = {kind.name for kind in kinds}
    found: Counter[str] = Counter()
    for pod in pods:
        metadata = pod.get("metadata", {})
        if (metadata.get("labels") or {}).get(CLASS_LABEL) not in (WorkloadClass.BATCH, WorkloadClass.GRATIS):
            continue
        if (pod.get("status") or {}).get("phase") != "Running":
            continue
        name = (metadata.get("annotations") or {}).get("cotide.dev/type", "")
        if name not in known:
            raise InputError(f"pod {metadata.get('name')} has type {name!r}; name it with --kind", field="--kind")
        found[name] += 1
    return tuple(sorted(found.items()))


def read_kind(text: str) -> JobKind:
    """Return the kind of ``NAME:BYTES:MILLICORES``.

    Raises
    ------
    InputError
        When it is none.
    """
    name, _, rest = text.partition(":")
    size, _, millicores = rest.partition(":")
    try:
        kind = JobKind(name, resource_amount("bytes", size), int(millicores))
    except (InputError, ValueError) as error:
        raise InputError(f"{text!r} is not NAME:BYTES:MILLICORES such as sort:2Gi:500", field="--kind") from error
    if not name or kind.millicores <= 0 or kind.input_bytes < 0:
        raise InputError(f"{text!r} needs a name, a size >= 0 and millicores > 0", field="--kind")
    return kind


async def watch(
    journal: Journal,
    what: Watch,
    mix_now: Callable[[], Mix],
    alternation: Alternation,
    progress: Callable[[str, float], object],
) -> str:
    """Watch until the time is over; return a note on skipped intervals, or an empty string."""
    draw = np.random.default_rng(journal.plan.seed + len(journal.windows))
    settings = PrometheusSourceSettings(url=what.url)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    begin, left_out, faults, first = time.monotonic(), Counter[str](), 0, True
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            client, number = PrometheusClient(session, settings), 0
            while time.monotonic() - begin + what.interval_seconds <= what.seconds:
                if alternation:
                    first = bool(draw.integers(2)) if number % 2 == 0 else not first
                    await asyncio.to_thread(alternation.set, running=first)
                number += 1
                before = await asyncio.to_thread(mix_now)
                await asyncio.sleep(what.interval_seconds)
                progress(
                    f"{len(journal.windows)} windows; left out: {sum(left_out.values())}",
                    min(1.0, (time.monotonic() - begin) / what.seconds),
                )
                if await asyncio.to_thread(mix_now) != before:
                    left_out["jobs changed"] += 1
                    continue
                try:
                    rate = sum(await _values(client, what.rate_query))
                    worst = max(await _values(client, what.latency_query), default=math.nan)
                except SourceDown as error:
                    faults += 1
                    left_out["no answer"] += 1
                    if faults == FAULTS:
                        raise ClusterError(f"Prometheus: {error}") from error
                    continue
                faults = 0
                if not (rate > 0 and math.isfinite(worst) and worst > 0):
                    left_out["no requests"] += 1
                    continue
                # Two digits: windows of about the same rate are repetitions of one cell.
                cell = Cell(float(f"{rate:.1e}"), before)
                journal.add(Window(cell, worst, rate, 0, what.interval_seconds, at_seconds=time.time()))
    finally:
        if alternation:
            await asyncio.to_thread(alternation.leave)
    return ", ".join(f"{count} intervals left out: {why}" for why, count in sorted(left_out.items()))


async def _values(client: PrometheusClient, query: str) -> list[float]:
    """Return the finite values of an instant query."""
    answer = await client.answer("/api/v1/query", {"query": query}, ANSWER)
    if answer.get("status") != "success":
        raise InputError(f"Prometheus refuses {query!r}: {answer.get('error', 'no reason is given')}")
    try:
        data = answer["data"]
        series = [data["result"]] if data["resultType"] == "scalar" else [one["value"] for one in data["result"]]
        found = [float(value) for _, value in series]
    except (KeyError, TypeError, ValueError) as error:
        raise SourceDown("the answer is not what Prometheus sends") from error
    return [value for value in found if math.isfinite(value)]
