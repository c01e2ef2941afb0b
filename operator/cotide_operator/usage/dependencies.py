"""The parts of the operator that the measurements use, as one value.

Made by `assembly`, read by `metrics_feed` and `host_load.factory`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_kube.client import KubeClient
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.config.settings import Settings
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed.node_outlook import Outlooks
from cotide_operator.scheduling.scheduling_loop import SchedulingLoop
from cotide_operator.translation.event_source import EventSource


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The given parts; see the module of each."""

    settings: Settings
    client: KubeClient
    cache: ObjectCache
    event_source: EventSource
    clock: Clock
    loop: SchedulingLoop
    forecast_scores: ForecastScores
    metrics: Metrics
    outlooks: Outlooks
