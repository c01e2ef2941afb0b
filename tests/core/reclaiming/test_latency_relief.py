"""A service over its limit is relieved of batch work where the model says that this helps, and is worth what is lost.

The law of these tests: p = rate / 1000 x the sum of the weights of the jobs on the node, .1 a quiet one and .8 a loud
one. Jobs are placed while the service has no requests; then 1,000 a second come, and its limit of 10 ms breaks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_objects import pod, running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    Node,
    NodeUpserted,
    PodDeleted,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCompletion, HeuristicQos
from cotide_core.forecasts import CompletionForecaster, MixBatch, QosAnswers, QosForecaster
from cotide_core.instructions import Bind, Evict, EvictCause
from cotide_core.kernels.array_types import Floats
from cotide_core.reclaiming.latency_relief import WORTH

NODE = NodeUpserted(Node("n", (("cotide.dev/reclaimed-cpu", 8000), ("cpu", 8000), ("memory", 2**35), ("pods", 110))))
KNOBS = HierarchicalConfig(overload_observation_seconds=15.0, overload_pause_seconds=30.0)
WEIGHTS = {"quiet": 0.1, "loud": 0.8}
BROKEN, HELD = 12.0, 9.0
GRATIS = WorkloadClass.GRATIS


class Law(HeuristicQos):
    """The law above; ``alone`` is what the service risks without any job."""

    alone = 0.0

    def violation_probability(self, mixes: MixBatch) -> Floats:
        weights = mixes.counts @ np.array([WEIGHTS.get(name, 0.0) for name in mixes.types])
        return np.minimum(1.0, self.alone + mixes.requests_per_second / 1000 * weights)

    def answer(self, mixes: MixBatch) -> QosAnswers:
        return QosAnswers.within(self.violation_probability(mixes))


class Models:
    def __init__(self, alone: float) -> None:
        self.law = Law()
        self.law.alone = alone

    def qos(self, model_id: str) -> QosForecaster:
        return self.law

    def completion(self, model_id: str) -> CompletionForecaster:
        return HeuristicCompletion()


class Scene:
    """A service on one node, and jobs of one cpu that the engine puts beside it while nobody asks for anything."""

    def __init__(self, policy: str = "predictive", alone: float = 0.0) -> None:
        config = SchedulerConfig(policy=policy, hierarchical=KNOBS, qos_risk_threshold=0.1)
        self.scheduler = Scheduler(config, Models(alone))
        web = running_pod("web", "n", cls=WorkloadClass.ONLINE, workload="d/web", ours=False)
        self.handle(0.0, NODE, WorkloadUpserted(Workload("d/web", 10.0)), PodUpserted(web))
        self.handle(0.0, ServiceSampled("d/web", 0.0, HELD))

    def starts(self, name: str, at: float, seconds: float, kind: str = "quiet", **fields: Any) -> Scene:
        """Let a job start that is predicted to take so long."""
        cls = fields.pop("cls", WorkloadClass.BATCH)
        waiting = pod(name, cls=cls, type=kind, requested_seconds=seconds, **fields)
        (bind,) = [one for one in self.scheduler.handle([PodUpserted(waiting)], at) if isinstance(one, Bind)]
        self.handle(at, PodUpserted(waiting._replace(node=bind.node, phase=PodPhase.RUNNING, started_seconds=at)))
        return self

    def handle(self, now: float, *events: Event) -> list[str]:
        out = [one for one in self.scheduler.handle(events, now) if isinstance(one, Evict)]
        assert all(one.cause is EvictCause.LATENCY for one in out)
        self.reasons = [one.reason for one in out]
        return [one.key[2:] for one in out]

    def measured(self, now: float, milliseconds: float) -> list[str]:
        return self.handle(now, ServiceSampled("d/web", 1000.0, milliseconds))

    def broken_from(self, since: float) -> list[str]:
        """Let the limit break, for as long as is watched."""
        assert self.measured(since, BROKEN) == []
        assert self.measured(since + 14.0, BROKEN) == []
        return self.measured(since + 15.0, BROKEN)


def test_the_pod_that_causes_it_goes_and_the_cheaper_one_that_does_not_stays() -> None:
    """Both would last for 85 s more, 170 core seconds' worth. Without the loud one, 115 core seconds done, p falls from
    .9 to .1, and 151 of them are avoided; without the quiet one, 95 done, 19; without both 170, for 210."""
    scene = Scene().starts("loud", 0.0, 200.0, "loud").starts("quiet", 20.0, 180.0)
    assert scene.broken_from(100.0) == ["loud"]
    assert (
        "d/web was measured at 12 ms on n, its limit is 10 ms; without this pod 11 % of that risk" in scene.reasons[0]
    )


def test_a_node_whose_service_breaks_by_itself_is_left_alone() -> None:
    """Alone it risks .95 already: without the one job 95 of 100 breaks would stay."""
    scene = Scene()
    scene.starts("job", 0.0, 60.0)
    law = scene.scheduler.qos_forecaster
    assert isinstance(law, Law)
    law.alone = 0.9
    assert scene.broken_from(40.0) == []


@pytest.mark.parametrize(("ran", "goes"), [(66.0, True), (67.0, False)])
def test_a_pod_goes_only_for_more_seconds_over_the_limit_than_it_loses_work(ran: float, *, goes: bool) -> None:
    """Of 100 s; the break goes with it. Its work is ``ran`` core seconds then, and it would last for 100 - ran more,
    each worth two: 68 for 66, and 66 for 67."""
    assert WORTH == 2.0
    scene = Scene().starts("job", 0.0, 100.0)
    assert scene.broken_from(ran - 15.0) == (["job"] if goes else [])


def test_what_helps_together_only_goes_together() -> None:
    """Five quiet ones: p .5. Each alone leaves 4/5 of it, all leave nothing."""
    scene = Scene()
    for name in "abcde":
        scene.starts(name, 90.0, 1000.0)
    assert sorted(scene.broken_from(100.0)) == ["a", "b", "c", "d", "e"]


def test_gratis_goes_before_batch_where_it_helps_at_all_however_long_it_ran() -> None:
    scene = Scene().starts("free", 0.0, 1000.0, cls=GRATIS).starts("paid", 90.0, 1000.0, "loud")
    assert scene.broken_from(100.0) == ["free"]


def test_the_next_round_comes_after_a_pause_and_another_measurement() -> None:
    scene = Scene().starts("free", 0.0, 1000.0, cls=GRATIS).starts("paid", 90.0, 1000.0, "loud")
    assert scene.broken_from(100.0) == ["free"]
    assert scene.measured(130.0, BROKEN) == []  # still on its way out
    scene.handle(131.0, PodDeleted("d/free", "u-free"))
    assert scene.measured(140.0, BROKEN) == []  # 30 s have not passed
    assert scene.handle(146.0) == []  # nothing was measured since
    assert scene.measured(147.0, BROKEN) == ["paid"]


def test_a_limit_that_holds_again_ends_the_episode() -> None:
    scene = Scene().starts("job", 0.0, 1000.0)
    scene.measured(110.0, BROKEN)
    assert scene.measured(120.0, HELD) == []
    assert scene.measured(126.0, BROKEN) == []
    assert scene.measured(140.0, BROKEN) == []
    assert scene.measured(141.0, BROKEN) == ["job"]


def test_who_must_not_be_disrupted_stays() -> None:
    scene = Scene().starts("must", 0.0, 1000.0, "loud", do_not_disrupt=True).starts("may", 90.0, 1000.0, "loud")
    assert scene.broken_from(100.0) == ["may"]


@pytest.mark.parametrize("policy", ["qpsm", "hierarchical"])
def test_other_policies_leave_it_be(policy: str) -> None:
    assert Scene(policy).starts("job", 0.0, 1000.0).broken_from(10.0) == []


def test_a_service_alone_on_its_node_is_left_alone() -> None:
    assert Scene().broken_from(10.0) == []


def test_an_old_measurement_moves_nobody() -> None:
    scene = Scene().starts("job", 0.0, 1000.0)
    scene.measured(10.0, BROKEN)
    assert scene.handle(10.0 + KNOBS.usage_stale_seconds + 1.0) == []
