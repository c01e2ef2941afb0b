"""A Workload's next steps: what is wanted against what is seen."""

from __future__ import annotations

from typing import Any

from child_pod_builders import child_pod

from cotide_operator.apis.types import WorkloadSpec
from cotide_operator.controllers.child_pods import ChildPod, template_hash
from cotide_operator.controllers.workload_reconciler import ReconcilerCache, WorkloadPlan, plan_workload


def spec(replicas: int | None = 3, image: str = "web:1") -> WorkloadSpec:
    body: dict[str, object] = {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}}
    if replicas is not None:
        body["replicas"] = replicas
    return WorkloadSpec.model_validate(body)


def pod(index: int, wanted: WorkloadSpec | None = None, **more: Any) -> ChildPod:
    """A pod that is ready, made from the template of the spec."""
    template = template_hash((wanted or spec()).template or {})
    known = {"phase": "Running", "ready": True, "uid": f"uid-{index}", "template": template}
    return child_pod(index, of="web", **{**known, **more})


def plan(
    pods: list[ChildPod], wanted: WorkloadSpec | None = None, memory: ReconcilerCache | None = None
) -> WorkloadPlan:
    return plan_workload(wanted or spec(), pods, memory or ReconcilerCache(), now_seconds=1000.0)


def test_missing_pods_are_made_by_index() -> None:
    assert plan([]).make == (0, 1, 2)
    assert plan([pod(0), pod(2)]).make == (1,)
    assert plan([pod(0), pod(1), pod(2)]) == WorkloadPlan()


def test_one_replica_is_meant_when_none_is_given_and_none_when_zero_is() -> None:
    assert plan([], spec(None)).make == (0,)
    assert plan([], spec(0)).make == ()


def test_scaling_down_takes_the_last_ones() -> None:
    assert [surplus.name for surplus in plan([pod(0), pod(1), pod(2)], spec(1)).delete] == ["web-1", "web-2"]


def test_a_pod_that_ended_is_deleted_and_only_then_made_again() -> None:
    ended = pod(1, phase="Failed", reason="OutOfcpu", ready=False)
    first = plan([pod(0), ended, pod(2)])
    assert [doomed.name for doomed in first.delete] == ["web-1"]
    assert first.make == ()
    assert plan([pod(0), pod(2)]).make == (1,)


def test_a_pod_on_its_way_out_is_waited_for() -> None:
    assert plan([pod(0), pod(1, deleting=True), pod(2)]) == WorkloadPlan()


def test_an_index_that_no_node_wants_is_tried_ever_more_slowly_until_one_is_ready() -> None:
    memory = ReconcilerCache()
    waits = []
    for life in range(4):
        plan([pod(0, phase="Failed", ready=False, uid=f"life-{life}")], spec(1), memory)
        plan([pod(0, phase="Failed", ready=False, uid=f"life-{life}")], spec(1), memory)
        waits.append(plan([], spec(1), memory).recheck_seconds)
    # The first successor comes at once, then after 1 s, 2 s, 4 s; seeing the same corpse twice counts once.
    assert waits == [None, 1001.0, 1002.0, 1004.0]
    plan([pod(0)], spec(1), memory)
    assert plan([], spec(1), memory).make == (0,)


def test_a_new_template_rolls_through_one_pod_at_a_time_while_the_others_are_ready() -> None:
    new = spec(image="web:2")
    old = [pod(0), pod(1), pod(2)]
    assert [doomed.name for doomed in plan(old, new).delete] == ["web-2"]
    assert plan([pod(0), pod(1), pod(2, new, ready=False)], new).delete == ()
    assert [doomed.name for doomed in plan([pod(0), pod(1), pod(2, new)], new).delete] == ["web-1"]
    assert plan([pod(0, new), pod(1, new), pod(2, new)], new) == WorkloadPlan()


def test_an_outdated_pod_that_is_not_ready_goes_first() -> None:
    assert [doomed.name for doomed in plan([pod(0), pod(1, ready=False), pod(2)], spec(image="web:2")).delete] == [
        "web-1"
    ]


def test_a_workload_that_adopts_makes_nothing() -> None:
    adopting = WorkloadSpec.model_validate({"selector": {"matchLabels": {"app": "web"}}})
    assert plan([], adopting) == WorkloadPlan()
