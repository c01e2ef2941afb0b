"""Puts together who tells of decisions: notes on pods, events, alarms, metrics.

Called by `assembly`, once. Holds no state of its own.
"""

from __future__ import annotations

from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_kube.client import KubeClient
from cotide_operator.alarm_watch import AlarmWatch
from cotide_operator.annotator import Annotator
from cotide_operator.board import Board
from cotide_operator.calibration import Calibration
from cotide_operator.clock import Clock
from cotide_operator.intake import Intake
from cotide_operator.low_lane import LowLane
from cotide_operator.mirror import Mirror
from cotide_operator.nominator import Nominator
from cotide_operator.outcomes import Outcomes
from cotide_operator.plan_words import PlanWords
from cotide_operator.recorder import Recorder
from cotide_operator.telemetry import Telemetry


def make_outcomes(
    config: SchedulerConfig,
    slot_seconds: float,
    *,
    client: KubeClient,
    lane: LowLane,
    clock: Clock,
    mirror: Mirror,
    intake: Intake,
    board: Board,
    recorder: Recorder,
    nominator: Nominator,
    calibration: Calibration,
    telemetry: Telemetry,
) -> Outcomes:
    """Return the outcomes of one operator; ``slot_seconds`` is of its clock."""
    pods, jobs = intake.pods, mirror.jobs
    return Outcomes(
        board=board,
        annotator=Annotator(
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
        alarms=AlarmWatch(
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
        plan_words=PlanWords(clock.to_wall),
    )
