"""Builds the reporters of decisions: notes on pods, events, alarms, metrics.

`assembly` calls it once. It holds no state of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_kube.client import KubeClient
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.config.object_names import DEFAULT_SCHEDULER_NAME
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.decision_reporter import DecisionReporter, Sinks
from cotide_operator.reporting.event_recorder import EventRecorder
from cotide_operator.reporting.kueue_reporter import KueueReporter
from cotide_operator.reporting.overload_reporter import OverloadReporter
from cotide_operator.reporting.pod_annotator import PodAnnotator
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher
from cotide_operator.scheduling.nominator import Nominator
from cotide_operator.translation.event_source import EventSource


@dataclass(frozen=True, slots=True)
class ReportingDependencies:
    """The operator's objects that the reporters use."""

    client: KubeClient
    dispatcher: ApiDispatcher
    clock: Clock
    cache: ObjectCache
    event_source: EventSource
    decisions: DecisionStore
    forecast_scores: ForecastScores
    metrics: Metrics
    scheduler_names: tuple[str, ...] = (DEFAULT_SCHEDULER_NAME,)

    def profile_of(self, key: str) -> str:
        """Return the scheduler's name under which a pod is placed or evicted.

        It is the pod's own name, or our first one when the pod has none of ours or is gone.
        """
        pod = self.cache.pods.get(key)
        if pod is not None and pod.spec.scheduler_name in self.scheduler_names:
            return pod.spec.scheduler_name
        return self.scheduler_names[0]


@dataclass(frozen=True, slots=True)
class Reporting:
    """The parts that other modules use, too."""

    recorder: EventRecorder
    nominator: Nominator
    outcomes: DecisionReporter


def make_reporting(config: SchedulerConfig, slot_seconds: float, of: ReportingDependencies) -> Reporting:
    """Return the reporting of one operator; ``slot_seconds`` is of its clock."""
    recorder = EventRecorder(of.client, of.dispatcher, of.metrics, of.profile_of)
    nominator = Nominator(of.client, of.dispatcher, of.cache, of.decisions)
    KueueReporter(of.client, of.dispatcher, recorder, of.cache, of.decisions, of.clock)  # subscribes itself

    def class_of(key: str) -> str | None:
        pod = of.event_source.pods.get(key)
        return pod.workload_class.value if pod is not None else None

    sinks = Sinks(
        of.decisions,
        PodAnnotator(of.client, of.dispatcher, of.cache, of.decisions, of.metrics, class_of=class_of),
        recorder,
        of.forecast_scores,
        of.metrics,
        nominator,
        OverloadReporter(
            of.client,
            of.dispatcher,
            of.clock,
            recorder,
            of.metrics,
            config.hierarchical or HierarchicalConfig(),
            slot_seconds,
            of.cache.nodes,
        ),
    )
    return Reporting(
        recorder,
        nominator,
        DecisionReporter(sinks, of.cache, of.event_source.pods.get, of.clock, config.policy, of.profile_of),
    )
