"""Builds live host load from the configuration and starts its tasks.

Called by `metrics_feed`, and imported only where host load is forecast.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cotide_operator.host_load.contenders import DEFAULT as MIXTURE
from cotide_operator.host_load.history import History
from cotide_operator.host_load.history_replay import HistoryReplay
from cotide_operator.host_load.live import Knobs, LiveHostLoad
from cotide_operator.host_load.refits import Refits
from cotide_operator.task_supervisor import TaskSupervisor
from cotide_operator.usage.dependencies import Dependencies
from cotide_operator.usage.measurement_faults import MeasurementFaults
from cotide_operator.usage.prometheus import PrometheusSource
from cotide_operator.usage.sources import Source

_LOG = logging.getLogger(__name__)

WITHOUT_SOURCE_SECONDS: Final = 5.0
"""Wall seconds between two looks at the nodes without measurements (chosen: as a source's default interval)."""

AHEAD_SLOTS: Final = (3, 12, 36)
"""Horizons in addition to the next slot, where jobs are placed by the peak before their end: with slots of five minutes
a quarter of an hour, one hour and three hours (chosen)."""


def start_host_load(dependencies: Dependencies, source: Source, supervisor: TaskSupervisor) -> LiveHostLoad:
    """Start the tasks of live host load; the result consumes the source's readings."""
    measured = dependencies.settings.metrics_source
    if measured is None:
        raise ValueError("a source comes from the section metricsSource")
    live = _live(dependencies, source, measured.stale_after_seconds, measured.interval_seconds)
    pause = dependencies.settings.host_load.refit_seconds / dependencies.clock.speed
    supervisor.start(live.run(), "host load")
    if MIXTURE in (
        dependencies.settings.host_load.predictor,
        dependencies.settings.host_load.challenger,
    ):  # others have no parameters
        supervisor.start(Refits(live.forecasters, live.lock, pause).run(after=live.rebuilt), "host load fits")
    return live


async def follow_nodes(dependencies: Dependencies) -> None:
    """Keep outlooks of all nodes, from requests alone, until cancelled."""
    live = _live(dependencies, None, WITHOUT_SOURCE_SECONDS, WITHOUT_SOURCE_SECONDS)
    faults = MeasurementFaults(dependencies.metrics)
    await dependencies.loop.caught_up()
    while True:
        try:
            await live.take([])
        except Exception as error:  # noqa: BLE001 - outlooks stay as they are; the next look may do better
            faults.leave_out("host load", "the nodes", error)
        await asyncio.sleep(WITHOUT_SOURCE_SECONDS)


def _live(
    dependencies: Dependencies, source: Source | None, stale_wall_seconds: float, interval_wall_seconds: float
) -> LiveHostLoad:
    settings, clock = dependencies.settings, dependencies.clock
    rebuilding = None
    if isinstance(source, PrometheusSource):
        slots = max(1, int(settings.host_load.history_seconds // settings.slot_seconds))
        history = History(source, clock, settings.slot_seconds, settling_wall_seconds=source.settling_seconds)
        rebuilding = HistoryReplay(history, slots)
    elif source is not None:
        _LOG.info("this source keeps no history: load forecasts start from what all nodes have in common")
    return LiveHostLoad(
        Knobs(
            slot_seconds=settings.slot_seconds,
            quantile=settings.host_load.quantile,
            stale_seconds=stale_wall_seconds * max(1.0, clock.speed),  # as in the engine: `settings.engine_config`
            stale_wall_seconds=stale_wall_seconds,
            interval_wall_seconds=interval_wall_seconds,
            capacity_share=settings.hierarchical.capacity_share,
            settling_wall_seconds=0.0 if source is None else source.settling_seconds,
            tells_scores=settings.ledger is not None,
            ahead_slots=AHEAD_SLOTS if dependencies.loop.scheduler.follows_run_time else (),
            predictor=settings.host_load.predictor,
            challenger=settings.host_load.challenger,
        ),
        state=dependencies.loop.scheduler.state,
        pods=dependencies.event_source.pods,
        clock=clock,
        loop=dependencies.loop,
        metrics=dependencies.metrics,
        outlooks=dependencies.outlooks,
        rebuilding=rebuilding,
    )
