"""Assembles the metrics source, the usage feed and live host load, and runs them while this replica leads.

Called by `assembly` only. The configuration selects the parts: with or without a source, with or without forecasts of
host load. Without a source, nodes are still followed, so that they offer allocatable - requests rather than nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

import aiohttp

from cotide_core.errors import ClusterError
from cotide_core.phases.progress import Usage
from cotide_operator.clock import Clock
from cotide_operator.config.metric_settings import MetricsSourceSettings
from cotide_operator.host_load.pod_usage import PodUsages
from cotide_operator.task_supervisor import TaskSupervisor
from cotide_operator.translation.pod_phases import phases_of
from cotide_operator.usage.dependencies import Dependencies
from cotide_operator.usage.measurement_faults import MeasurementFaults
from cotide_operator.usage.metrics_api import MetricsApiSource
from cotide_operator.usage.prometheus import PrometheusSource
from cotide_operator.usage.sources import Source, TextSource, UsageReading
from cotide_operator.usage.usage_feed import UsageFeed, UsageSink

_LOG = logging.getLogger(__name__)

SOURCE_TIMEOUT_SECONDS: Final = 10.0
"""Wall seconds for one query or scrape; chosen."""


@contextlib.asynccontextmanager
async def metrics_feed(dependencies: Dependencies, supervisor: TaskSupervisor) -> AsyncIterator[UsageFeed | None]:
    """Run the measuring parts as tasks of the supervisor; yield the feed, or None without a source."""
    settings = dependencies.settings.metrics_source
    if settings is None:
        if dependencies.settings.forecasts_host_load:
            from cotide_operator.host_load.factory import follow_nodes  # heavy: loads the forecasters' kernels

            _LOG.warning("no metricsSource is configured: nodes offer what online pods do not request")
            supervisor.start(follow_nodes(dependencies), "host load")
        yield None
        return
    timeout = aiohttp.ClientTimeout(total=SOURCE_TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        source = _source(dependencies, session, settings)
        sink: UsageSink
        if dependencies.settings.forecasts_host_load:
            from cotide_operator.host_load.factory import start_host_load  # heavy: loads the forecasters' kernels

            sink = start_host_load(dependencies, source, supervisor)
        else:
            usages = PodUsages(dependencies.event_source.pods.get, settings.stale_after_seconds, dependencies.metrics)
            sink = _UsagesOnly(usages, dependencies.clock)
        feed = UsageFeed(
            source,
            settings,
            clock=dependencies.clock,
            pod_of=dependencies.event_source.pods.get,
            emit=dependencies.loop.emit,
            forecast_scores=dependencies.forecast_scores,
            metrics=dependencies.metrics,
            usage=sink,
        )
        reading = supervisor.start(feed.run(), "usage feed")
        try:
            yield feed
        finally:
            # Before its session is closed: a pending reading would report the closing as a fault of the source.
            reading.cancel()
            await asyncio.wait([reading])


class _UsagesOnly:
    """The consumer without forecasts of host load: shows the usage of pods by class, and keeps it for phases."""

    def __init__(self, usages: PodUsages, clock: Clock) -> None:
        self._usages, self._clock = usages, clock

    async def take(self, readings: list[UsageReading]) -> None:
        await self._usages.take(readings, time.time())

    def usage_of(self, pod_key: str) -> Usage | None:
        return self._usages.usage_of(pod_key, time.time(), self._clock.from_wall)


def _needs_usage(dependencies: Dependencies) -> bool:
    """Return whether the usage of pods is needed: to forecast host load, to learn phases, or for a Job with stated
    phases."""
    settings = dependencies.settings
    if settings.forecasts_host_load or settings.phases.learn:
        return True
    return any(phases_of(job) for job in dependencies.cache.jobs.values())


def _source(dependencies: Dependencies, session: aiohttp.ClientSession, settings: MetricsSourceSettings) -> Source:
    if settings.prometheus is not None:
        return PrometheusSource(
            session,
            settings.prometheus,
            dependencies.cache,
            needs_usage=partial(_needs_usage, dependencies),
            stale_seconds=settings.stale_after_seconds,
            faults=MeasurementFaults(dependencies.metrics),
        )
    if settings.scrape is not None:
        return TextSource(session, settings.scrape.url)
    if settings.kubernetes is None:
        raise ClusterError("no metrics source is configured")
    _LOG.info("the Kubernetes metrics API has no request rates and no latencies: only usage is read from it")
    return MetricsApiSource(dependencies.client, dependencies.metrics)
