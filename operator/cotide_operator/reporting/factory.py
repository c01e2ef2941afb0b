"""Puts together who tells of decisions: notes on pods, events, alarms, metrics.

Called by `assembly`, once. Holds no state of its own.
"""

from __future__ import annotations

from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_kube.client import KubeClient
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.decision_reporter import DecisionReporter
from cotide_operator.reporting.event_recorder import EventRecorder
from cotide_operator.reporting.overload_reporter import OverloadReporter
from cotide_operator.reporting.plan_messages import PlanMessages
from cotide_operator.reporting.pod_annotator import PodAnnotator
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher
from cotide_operator.scheduling.nominator import Nominator
from cotide_operator.translation.event_source import EventSource


def make_outcomes(
    config: SchedulerConfig,
    slot_seconds: float,
    *,
    client: KubeClient,
    lane: ApiDispatcher,
    clock: Clock,
    mirror: ObjectCache,
    intake: EventSource,
    board: DecisionStore,
    recorder: EventRecorder,
    nominator: Nominator,
    calibration: ForecastScores,
    telemetry: Metrics,
) -> DecisionReporter:
    """Return the outcomes of one operator; ``slot_seconds`` is of its clock.

    So many arguments, because it stands for the constructors of six parts, and each is a part that one of them needs.
    """
    pods, jobs = intake.pods, mirror.jobs
    return DecisionReporter(
        board=board,
        annotator=PodAnnotator(
            client,
            lane,
            mirror,
            board,
            telemetry,
            class_of=lambda key: pods[key].workload_class.value if key in pods else None,
        ),
        recorder=recorder,
        calibration=calibration,
        telemetry=telemetry,
        nominator=nominator,
        alarms=OverloadReporter(
            client,
            lane,
            clock,
            recorder,
            telemetry,
            config.hierarchical or HierarchicalConfig(),
            slot_seconds,
            mirror.nodes,
        ),
        pod_of=pods.get,
        job_uid_of=lambda key: jobs[key].metadata.uid if key in jobs else None,
        policy=config.policy,
        plan_words=PlanMessages(clock.to_wall),
        view=TenantView(mirror),
        set_aside=lambda key, error: mirror.set_aside("pods", key, "reporting", error),
    )
