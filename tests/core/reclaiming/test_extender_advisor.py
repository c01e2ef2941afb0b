"""What kube-scheduler is answered about nodes, and what is assumed of it until the watch tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import engine_objects
import numpy as np
import pytest
from engine_objects import node_upserted
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    BindRefused,
    Namespace,
    NamespaceUpserted,
    Pod,
    PodAssumed,
    PodDeleted,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Taint,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.forecasts import MixBatch, QosAnswers
from cotide_core.instructions import Bind, WaitReason
from cotide_core.policies import build_policy
from cotide_core.reclaiming.extender_advisor import CORDONED, UNKNOWN_NODE, ExtenderAdvisor
from cotide_core.state.cluster_state import ClusterState

BATCH, GRATIS, ONLINE = WorkloadClass.BATCH, WorkloadClass.GRATIS, WorkloadClass.ONLINE
GIB = 2**30


@dataclass
class Counting:
    """Breaks a limit with p = .3 for each job beside a service; counts how often it is asked."""

    calls: int = 0
    rows: list[int] = field(default_factory=list)

    @property
    def model_id(self) -> str:
        return "counting"

    def answer(self, mixes: MixBatch) -> QosAnswers:
        self.calls += 1
        self.rows.append(len(mixes))
        return QosAnswers.within(np.minimum(1.0, 0.3 * mixes.counts.sum(axis=1)))


def pod(name: str, cls: WorkloadClass = BATCH, cpu: int = 1000, **fields: Any) -> Pod:
    """A pod that kube-scheduler binds: it is not ours, unless a test says so."""
    return engine_objects.pod(name, cpu, cls, **{"ours": False, **fields})


def advisor(*events: Any, policy: str = "qpsm", threshold: float = 0.5, qos: Any = None) -> ExtenderAdvisor:
    config = SchedulerConfig(policy=policy, qos_risk_threshold=threshold)
    made = ExtenderAdvisor(config, build_policy(config), qos or Counting(), ClusterState(), timeout_seconds=30.0)
    made.take(events)
    return made


def service(on: str) -> tuple[Any, ...]:
    web = pod("web", ONLINE, 100, workload="d/web", node=on, phase=PodPhase.RUNNING)
    return WorkloadUpserted(Workload("d/web")), PodUpserted(web), ServiceSampled("d/web", 100.0)


def test_a_batch_pod_gets_the_one_node_that_the_engine_would_choose() -> None:
    asked = advisor(node_upserted("a", 4000), node_upserted("b", 4000), *service("a"), PodUpserted(pod("job")))
    answer = asked.filter(pod("job"), ["a", "b"], 1.0)
    assert answer.nodes == ("b",)  # without a service, hence before one with
    assert answer.refused == {}
    assert answer.reason == "qpsm: no online service is put at risk there"


def test_only_nodes_that_were_asked_about_are_named() -> None:
    asked = advisor(node_upserted("a", 4000), node_upserted("b", 4000), node_upserted("c", 4000))
    assert asked.filter(pod("job"), ["b"], 1.0).nodes == ("b",)


def test_a_node_where_a_limit_would_break_is_refused_with_the_service_and_the_risk() -> None:
    held = pod("held", node="a", phase=PodPhase.RUNNING, cpu=100)
    asked = advisor(node_upserted("a", 4000), *service("a"), PodUpserted(held))
    answer = asked.filter(pod("job"), ["a"], 1.0)  # two jobs: p = .6 above .5
    assert answer.nodes == ()
    assert answer.refused == {"a": "node(s) would break the latency limit of d/web (p=0.60)"}
    assert answer.forecast.qos_violation_probability == pytest.approx(0.6)
    assert [(verdict.nodes, verdict.reason, verdict.service) for verdict in answer.verdicts] == [
        (1, "QosAtRisk", "d/web")
    ]


def test_what_kube_scheduler_looked_at_is_not_looked_at_again() -> None:
    tainted = node_upserted("a", 4000, taints=(Taint("gpu", "", "NoSchedule"),), unschedulable=True)
    demanding = pod("job", node_selector=(("disk", "ssd"),), unsupported=("spec.volumes",))
    assert advisor(tainted).filter(demanding, ["a"], 1.0).nodes == ("a",)


def test_a_node_that_is_not_known_yet_or_is_too_small_or_cordoned_is_refused_with_its_reason() -> None:
    asked = advisor(node_upserted("small", 500), node_upserted("cordoned", 4000, cordoned_until_seconds=100.0))
    assert asked.filter(pod("job"), ["small", "new", "cordoned"], 1.0).refused == {
        "small": "Insufficient cpu",
        "new": UNKNOWN_NODE,
        "cordoned": CORDONED,
    }
    kinds = {
        verdict.message: verdict.reason
        for verdict in asked.filter(pod("job"), ["small", "new", "cordoned"], 1.0).verdicts
    }
    # As the engine says of the nodes that it looks at itself: a cordon after overloads is a lack of slack.
    assert kinds == {
        "Insufficient cpu": WaitReason.INSUFFICIENT_SLACK,
        UNKNOWN_NODE: WaitReason.NO_MATCHING_NODE,
        CORDONED: WaitReason.INSUFFICIENT_SLACK,
    }
    assert asked.filter(pod("job"), ["cordoned"], 101.0).nodes == ("cordoned",)


def test_an_online_pod_gets_every_node_that_has_room_and_kube_scheduler_chooses() -> None:
    asked = advisor(node_upserted("a", 4000), node_upserted("b", 4000), node_upserted("small", 500))
    answer = asked.filter(pod("web", ONLINE), ["b", "small", "a"], 1.0)
    assert answer.nodes == ("b", "a")
    assert answer.refused == {"small": "Insufficient cpu"}
    assert answer.reason == ""


def test_a_latency_risk_lowers_the_score_of_a_node_for_an_online_pod_and_refuses_none() -> None:
    """One job on b is p = .3, two on c .6, three on d .9; .5 is accepted."""
    there = [
        PodUpserted(pod(f"{name}{n}", BATCH, 100, node=name, phase=PodPhase.RUNNING))
        for name, count in (("b", 1), ("c", 2), ("d", 3))
        for n in range(count)
    ]
    web, names = pod("web", ONLINE, 100, workload="d/web"), ["a", "b", "c", "d"]
    for policy in ("qpsm", "random-guarded"):
        nodes = [node_upserted(name, 4000) for name in names]
        asked = advisor(*nodes, WorkloadUpserted(Workload("d/web")), *there, PodUpserted(web), policy=policy)
        assert asked.filter(web, names, 1.0).nodes == ("a", "b", "c", "d")
        free, passing, risky, riskier = asked.scores(web, names, 1.0)
        assert min(free, passing) >= 5 > risky > riskier
        assert asked.preempt(web, {"d": ["u-d0"]}, 1.0) == ["d"]


def test_one_request_is_one_call_of_the_model_however_many_nodes_it_names() -> None:
    names = [f"n{index}" for index in range(100)]
    services = [event for name in names for event in online_on(name)]
    model = Counting()
    asked = advisor(
        *[node_upserted(name, 4000) for name in names], WorkloadUpserted(Workload("d/web")), *services, qos=model
    )
    assert asked.filter(pod("job"), names, 1.0).nodes
    assert model.calls == 1
    web = pod("more", ONLINE, 100, workload="d/web")
    asked.take([PodUpserted(web)])
    assert asked.filter(web, names, 1.0).nodes
    assert model.calls == 1, "no risk refuses an online pod"
    assert asked.scores(web, names, 1.0)
    assert model.calls == 2


def online_on(name: str) -> tuple[Any, ...]:
    web = pod(f"web-{name}", ONLINE, 100, workload="d/web", node=name, phase=PodPhase.RUNNING)
    return PodUpserted(web), ServiceSampled(web.key, 10.0)


def test_a_namespace_above_its_limit_gets_no_node() -> None:
    held = pod("held", node="a", phase=PodPhase.RUNNING)
    asked = advisor(
        node_upserted("a", 4000), NamespaceUpserted(Namespace("d", batch_millicores=1500)), PodUpserted(held)
    )
    answer = asked.filter(pod("job"), ["a"], 1.0)
    assert answer.nodes == ()
    assert "max-batch-cpu" in answer.refused["a"]


def test_a_burst_does_not_overfill_a_node_before_the_watch_tells() -> None:
    burst = [pod(f"job-{index}") for index in range(6)]
    asked = advisor(node_upserted("a", 4000), *map(PodUpserted, burst))  # room for four of them
    placed = []
    for one in burst:
        answer = asked.filter(one, ["a"], 1.0)
        placed.append(answer.nodes)
        if answer.nodes:
            assert asked.assume(one, answer.nodes[0], 1.0) == PodAssumed(one.key, one.uid, "a", 1.0)
    assert placed == [("a",)] * 4 + [()] * 2
    assert asked.assumed == 4


def test_an_assumption_ends_when_the_watch_tells_another_answer_comes_or_time_is_up() -> None:
    one, two, three = pod("one"), pod("two"), pod("three")
    asked = advisor(node_upserted("a", 4000), node_upserted("b", 4000), *map(PodUpserted, (one, two, three)))
    for index, each in enumerate((one, two, three)):
        asked.assume(each, "a", float(index))
    asked.take([PodUpserted(one._replace(node="b"))])  # somebody chose otherwise: the watch is right
    assert asked.assumed == 2
    assert asked.release(two.key, "asked again") == BindRefused(two.key, two.uid, "a", 0, "asked again", retry=False)
    assert asked.expire(31.9) == []
    assert [gone.key for gone in asked.expire(32.0)] == [three.key]
    free = asked.state.columns.free[0].tolist()
    assert (free[asked.state.columns.row_of["a"]], free[asked.state.columns.row_of["b"]]) == (4000, 3000)


def test_a_pod_that_is_bound_or_gone_is_not_assumed() -> None:
    bound = pod("bound", node="a")
    asked = advisor(node_upserted("a", 4000), PodUpserted(bound))
    assert asked.assume(bound, "a", 1.0) is None
    assert asked.assume(pod("never-seen"), "a", 1.0) is None
    waiting = pod("waiting")
    asked.take([PodUpserted(waiting)])
    asked.assume(waiting, "a", 1.0)
    asked.take([PodDeleted(waiting.key, waiting.uid)])
    assert asked.assumed == 0


def test_nobody_online_is_preempted_for_batch_and_nobody_who_must_not_be_disrupted() -> None:
    asked = advisor(
        *[node_upserted(name, 4000) for name in "abc"],
        PodUpserted(pod("web", ONLINE, node="a")),
        PodUpserted(pod("kept", GRATIS, node="b", do_not_disrupt=True)),
        PodUpserted(pod("free", GRATIS, node="c")),
    )
    victims = {"a": ["u-web"], "b": ["u-kept"], "c": ["u-free"], "unknown": []}
    assert asked.preempt(pod("job"), victims, 1.0) == ["c"]
    assert asked.preempt(pod("urgent", ONLINE), victims, 1.0) == ["a", "c"]


def test_a_pod_is_preempted_once_its_protection_is_over() -> None:
    day = pod("day", GRATIS, node="a", protected_seconds=86400.0, started_seconds=0.0)
    asked = advisor(node_upserted("a", 4000), PodUpserted(day))
    assert asked.preempt(pod("job"), {"a": ["u-day"]}, 86399.0) == []
    assert asked.preempt(pod("job"), {"a": ["u-day"]}, 86400.0) == ["a"]


def test_nobody_is_preempted_where_the_limit_would_break_afterwards() -> None:
    held = [PodUpserted(pod(f"held-{index}", GRATIS, 100, node="a", phase=PodPhase.RUNNING)) for index in range(2)]
    asked = advisor(node_upserted("a", 4000), *service("a"), *held)
    assert asked.preempt(pod("job"), {"a": ["u-held-0"]}, 1.0) == []


def test_scores_go_from_0_to_10_and_follow_risk_and_rank() -> None:
    held = pod("held", node="b", phase=PodPhase.RUNNING)
    asked = advisor(node_upserted("a", 4000), node_upserted("b", 4000), PodUpserted(held), *service("a"))
    assert asked.scores(pod("job"), ["a", "b", "unknown"], 1.0)[1] == 10
    assert all(0 <= score <= 10 for score in asked.scores(pod("job"), ["a", "b", "unknown"], 1.0))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([BATCH, GRATIS]), st.integers(100, 3000)), min_size=1, max_size=25))
def test_whatever_comes_no_node_is_filled_above_what_it_offers(asked_for: list[tuple[WorkloadClass, int]]) -> None:
    asked = advisor(*[node_upserted(f"n{index}", 4000) for index in range(3)], policy="qpsm")
    for index, (cls, cpu) in enumerate(asked_for):
        one = pod(f"p{index}", cls, cpu)
        asked.take([PodUpserted(one)])
        answer = asked.filter(one, ["n0", "n1", "n2"], float(index) / 100)
        if answer.nodes:
            asked.assume(one, answer.nodes[0], float(index) / 100)
    assert (asked.state.columns.free[0, :3] >= 0).all()


@pytest.mark.parametrize("policy", ["qpsm", "fifo", "hierarchical", "predictive", "easy"])
def test_every_policy_answers(policy: str) -> None:
    asked = advisor(node_upserted("a", 4000), node_upserted("b", 4000), policy=policy)
    assert asked.filter(pod("job"), ["a", "b"], 1.0).nodes[0] in ("a", "b")


def test_the_engine_counts_what_kube_scheduler_was_answered_and_a_refusal_ends_it() -> None:
    engine = Scheduler(SchedulerConfig(policy="fifo"), HeuristicCatalogue())
    assisted, ours = pod("assisted", cpu=3500), pod("ours", ours=True)
    assumption = PodAssumed(assisted.key, assisted.uid, "a", 1.0)
    assert engine.handle([node_upserted("a", 4000), PodUpserted(assisted), assumption], 1.0) == []
    [waits] = engine.handle([PodUpserted(ours)], 2.0)  # 500m are left
    assert "Insufficient cpu" in waits.message  # type: ignore[union-attr]  # it is a Wait
    gone = BindRefused(assisted.key, assisted.uid, "a", 0, "not bound in time", retry=False)
    [bound] = [one for at in (3.0, 13.0) for one in engine.handle([gone], at)]
    assert isinstance(bound, Bind)
    assert bound.node == "a"
