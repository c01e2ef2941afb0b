"""The usage feed: measured request rates and latencies become `ServiceSampled` events.

It runs next to the loop and reads a source at its interval. Fresh values go to the loop, to the forecast scores and (as
`ServiceReadings`) to the Workload controller; the usage of pods goes to `host_load`. Invariants: a value that is
missing, stale, NaN, infinite, negative or too large is dropped and counted, and never becomes a zero. A value from a
Workload's query counts for its own pods only. When the rate of a service stops coming, its highest recent rate counts
until the rate comes again. A reading or an answer that makes a part raise is skipped and ends nothing else. A source
that is down costs one log line when it goes down and one when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, NodeContended, Pod, ServiceSampled
from cotide_core.phases.progress import Usage
from cotide_kube.turns import in_turns
from cotide_operator.clock import Clock
from cotide_operator.config.settings import MetricsSourceSettings
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.decaying_peak import RecentPeak
from cotide_operator.usage.measurement_faults import MeasurementFaults, described
from cotide_operator.usage.service_readings import QueryFault, ServiceReading
from cotide_operator.usage.sources import NodeReading, Reading, Source, SourceDown, UsageReading

_LOG = logging.getLogger(__name__)

REFUSALS_LOGGED: Final = 10
"""Log lines about queries in one reading; chosen: tenants write queries, and must not fill the log."""


@dataclass(slots=True)
class _Latest:
    """The last usable values of one pod, each with the monotonic second of its arrival."""

    pod: Pod
    """The pod as the engine knew it; a new translation, as for a new engine, makes another object."""
    peak: RecentPeak
    requests_per_second: float | None = None
    latency_p95_milliseconds: float | None = None
    rate_until: float = 0.0
    latency_until: float = 0.0
    silent: bool = False
    """Whether the rate stopped coming."""

    @property
    def fresh_until(self) -> float:
        """Return the monotonic second at which both values become stale."""
        return max(self.rate_until, self.latency_until)

    @property
    def rate(self) -> float | None:
        """The rate for the engine: the last rate, or the recent peak once the rate stopped coming."""
        return self.peak.highest if self.silent else self.requests_per_second


class UsageSink(Protocol):
    """A consumer of the usage of pods."""

    async def take(self, readings: list[UsageReading]) -> None:
        """Take in one reading of the source, which is empty while the source is down."""
        ...

    def usage_of(self, pod_key: str) -> Usage | None:
        """Return the last fresh reading of a pod, by the operator's clock; None when there is none."""
        ...


class UsageFeed:
    """Reads a source until cancelled.

    Parameters
    ----------
    source : Source
    settings : MetricsSourceSettings
        Interval and staleness, in wall seconds.
    pod_of : callable
        A pod as the engine knows it, by key; only its online pods with a Workload are sampled.
    tell : callable
        Puts an event into the loop's next cycle.
    usage : UsageSink, optional
        Called after each reading, with an empty one when the source is down.
    """

    def __init__(
        self,
        source: Source,
        settings: MetricsSourceSettings,
        *,
        clock: Clock,
        pod_of: Callable[[str], Pod | None],
        emit: Callable[[Event], None],
        forecast_scores: ForecastScores,
        metrics: Metrics,
        usage: UsageSink | None = None,
    ) -> None:
        self._source = source
        self._settings = settings
        self._clock = clock
        self._pod_of = pod_of
        self._emit = emit
        self._forecast_scores = forecast_scores
        self._metrics = metrics
        self._left_out = MeasurementFaults(metrics)
        self._usage = usage
        self._latest: dict[str, dict[str, _Latest]] = {}
        """By Workload and pod."""
        self.faults: Mapping[str, QueryFault] | None = None
        self._fought_for: set[str] = set()
        """Nodes with a last event that reports contention."""
        self._up: bool | None = None
        self._refused: dict[str, str] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            started = time.monotonic()
            await self.read_once()
            await asyncio.sleep(max(0.0, self._settings.interval_seconds - (time.monotonic() - started)))

    async def read_once(self) -> None:
        """Read the source once and distribute the usable values."""
        try:
            measured = await self._source.read()
        except SourceDown as error:
            await self._nothing(str(error))
            return
        except Exception as error:  # noqa: BLE001 - an answer that trips us is no answer; the next one may be better
            self._left_out.leave_out("source", type(self._source).__name__, error)
            await self._nothing(f"its answer can't be parsed: {described(error)}")
            return
        self._state(up=True)
        self._emit_refusals(self._source.refused)
        self.faults = measured.faults
        # In parts: fifty thousand values would hold up decisions for a third of a second.
        await in_turns(self._take_guarded, measured.services)
        self._emit_contention(measured.nodes)
        self._assume_peaks()
        await self._hand_over(measured.usage)
        horizon = time.monotonic() - 10 * self._settings.stale_after_seconds
        for workload, pods in list(self._latest.items()):
            for key in [key for key, latest in pods.items() if latest.fresh_until < horizon]:
                del pods[key]
            if not pods:
                del self._latest[workload]

    def get(self, workload_key: str) -> ServiceReading | None:
        """Return the latest of a Workload from its pods' fresh samples; None when there is none."""
        now = time.monotonic()
        pods = self._latest.get(workload_key, {}).values()
        rates = [
            pod.requests_per_second for pod in pods if pod.requests_per_second is not None and pod.rate_until >= now
        ]
        latencies = [
            pod.latency_p95_milliseconds
            for pod in pods
            if pod.latency_p95_milliseconds is not None and pod.latency_until >= now
        ]
        violations = self._forecast_scores.violations.get(workload_key, 0)
        if not (rates or latencies or violations):
            return None
        return ServiceReading(
            requests_per_second=sum(rates) if rates else None,
            latency_p95_milliseconds=max(latencies) if latencies else None,
            violations=violations,
        )

    def usage_of(self, pod_key: str) -> Usage | None:
        """Return the last fresh reading of a pod, by the operator's clock; None when there is none."""
        return self._usage.usage_of(pod_key) if self._usage is not None else None

    async def _nothing(self, why: str) -> None:
        """Continue without an answer."""
        self._state(up=False, why=why)
        self._assume_peaks()
        await self._hand_over([])

    async def _hand_over(self, readings: list[UsageReading]) -> None:
        if self._usage is None:
            return
        try:
            await self._usage.take(readings)
        except Exception as error:  # noqa: BLE001 - host load falls back to requests; rates and latencies go on
            self._left_out.leave_out("usage", f"{len(readings)} readings", error)

    def _take_guarded(self, reading: Reading) -> None:
        try:
            self._take(reading)
        except Exception as error:  # noqa: BLE001 - one reading that trips us must not spoil those of all others
            self._left_out.leave_out("service reading", str(reading.pod), error)

    def _take(self, reading: Reading) -> None:
        pod = self._pod_of(reading.pod)
        if pod is None or pod.workload is None or pod.workload_class is not WorkloadClass.ONLINE:
            return
        if reading.workload is not None and reading.workload != pod.workload:
            return  # another Workload's query named this pod
        given = (reading.requests_per_second, reading.latency_p95_milliseconds)
        # A value that is no longer scraped does not affect the other one.
        rate_left = self._left(reading.rate_wall_seconds) if given[0] is not None else None
        latency_left = self._left(reading.latency_wall_seconds) if given[1] is not None else None
        if rate_left is None and latency_left is None:
            self._metrics.samples.labels("invalid" if given == (None, None) else "stale").inc()
            return
        if (rate_left is None, latency_left is None) != (given[0] is None, given[1] is None):
            self._metrics.samples.labels("stale").inc()
        self._metrics.samples.labels("taken").inc()
        pods = self._latest.setdefault(pod.workload, {})
        latest = pods.get(reading.pod)
        if latest is None or latest.pod.uid != pod.uid:  # a new pod of the same name inherits nothing
            latest = pods[reading.pod] = _Latest(pod, RecentPeak(self._settings.recent_peak_seconds))
        now = time.monotonic()
        before = (latest.pod, latest.rate, latest.latency_p95_milliseconds)
        latest.pod = pod
        if reading.requests_per_second is not None and rate_left is not None:
            latest.requests_per_second = reading.requests_per_second
            latest.peak.add(reading.requests_per_second, self._clock.now())
            latest.rate_until, latest.silent = now + rate_left, False
        latest.latency_p95_milliseconds = None if latency_left is None else reading.latency_p95_milliseconds
        latest.latency_until = now + (latency_left or 0.0)
        if latest.latency_p95_milliseconds is not None:
            self._forecast_scores.sampled(pod, latest.latency_p95_milliseconds, self._clock.now())
        # The engine needs a rate; a latency alone goes out with the last known rate.
        is_news = before[0] is not pod or (latest.rate, latest.latency_p95_milliseconds) != before[1:]
        if latest.rate is not None and is_news:
            self._emit(ServiceSampled(pod.key, latest.rate, latest.latency_p95_milliseconds))

    def _left(self, wall_seconds: float) -> float | None:
        """Return how many seconds a value of this time stays fresh; None when it is stale."""
        left = self._settings.stale_after_seconds - max(0.0, time.time() - wall_seconds)
        return None if left < 0.0 else left

    def _emit_contention(self, readings: Sequence[NodeReading]) -> None:
        """Emit events for nodes with cpu contention, and one event when it ends: most nodes are always quiet."""
        oldest = time.time() - self._settings.stale_after_seconds
        for reading in readings:
            is_quiet = not reading.waiting_share and not reading.throttled
            if reading.wall_seconds < oldest or (is_quiet and reading.node not in self._fought_for):
                continue
            at = self._clock.from_wall(reading.wall_seconds)
            self._emit(NodeContended(reading.node, at, reading.waiting_share, reading.throttled))
            (self._fought_for.discard if is_quiet else self._fought_for.add)(reading.node)

    def _assume_peaks(self) -> None:
        """Emit the recent peak of each service when its rate has just stopped coming.

        The last rate is good for a moment, but rates rise and fall within hours. A feed that stops at night must not
        let batch work pile up next to the services of the morning.
        """
        now = time.monotonic()
        for workload, pods in self._latest.items():
            for key, latest in pods.items():
                if latest.silent or latest.rate_until >= now or latest.requests_per_second is None:
                    continue
                latest.silent = True
                try:
                    self._assume_peak(workload, key, latest.peak.highest, latest.requests_per_second)
                except Exception as error:  # noqa: BLE001 - one pod that trips us must not stop all others
                    self._left_out.leave_out("recent peak", key, error)

    def _assume_peak(self, workload: str, key: str, peak: float, rate: float) -> None:
        pod = self._pod_of(key)
        if pod is not None and pod.workload == workload and peak > rate:
            self._metrics.samples.labels("assumed").inc()
            self._emit(ServiceSampled(key, peak))

    def _state(self, *, up: bool, why: str = "") -> None:
        self._metrics.source_up.set(1 if up else 0)
        if up != self._up:
            if up:
                _LOG.info("the metrics source answers")
            else:
                _LOG.warning(
                    "the metrics source is down, rates that stop coming count with their recent peaks: %s", why
                )
        self._up = up

    def _emit_refusals(self, refused: dict[str, str]) -> None:
        news = [(what, why) for what, why in refused.items() if self._refused.get(what) != why]
        for what, why in news[:REFUSALS_LOGGED]:
            _LOG.warning("the metrics source gives nothing for %s: %s", what, why)
        if len(news) > REFUSALS_LOGGED:
            _LOG.warning("the metrics source gives nothing for %d more queries", len(news) - REFUSALS_LOGGED)
        self._refused = dict(refused)
