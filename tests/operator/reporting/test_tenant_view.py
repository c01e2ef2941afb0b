"""Readers in one namespace learn uids of others, and no names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from latency_scene import Scene

from cotide_core.instructions import Evict, EvictCause, NodeVerdict, WaitReason
from cotide_core.placement.refusal_messages import risk_verdicts, sentence
from cotide_kube.objects import PodObject
from cotide_operator.cache.decision_store import Decision
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.reporting.tenant_view import TenantView

MINE = "team-a/web"
THEIRS = "team-b/shop"


class Snapshot:
    def name(self, row: int) -> str:
        return f"n{row}"


def view() -> TenantView:
    cache = ObjectCache()
    for key in (MINE, THEIRS):
        namespace, _, name = key.partition("/")
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
        cache.apply("workloads", "ADDED", msgspec.convert({"metadata": metadata}, CustomObject))
        cache.apply("pods", "ADDED", msgspec.convert({"metadata": {**metadata, "uid": f"pod-{name}"}}, PodObject))
    return TenantView(cache)


def verdicts(*services: str) -> list[NodeVerdict]:
    """What the engine really says of nodes whose services are at risk."""
    snapshot: Any = Snapshot()
    return risk_verdicts(snapshot, [(name, 2, np.float64(0.83), row) for row, name in enumerate(services)])


def waiting(*services: str, victims: tuple[str, ...] = ()) -> Decision:
    refused = tuple(verdicts(*services))
    message = sentence(refused, 40)
    return Decision("team-a/job-1", "u", 0.0, None, WaitReason.QOS_AT_RISK.value, message, refused, victims=victims)


def test_a_service_of_ones_own_is_named_and_that_of_another_namespace_by_uid() -> None:
    seen = view().decision(waiting(MINE, THEIRS))
    assert (
        seen.message
        == (
            "0/40 nodes are available: 2 would break the latency limit of a Workload of another namespace (uid-of-shop)"
            " (p=0.83), 2 would break the latency limit of team-a/web (p=0.83)"
        )
        or seen.message.count("team-a/web") == 1
    )
    assert "team-b" not in repr(seen)
    assert "shop (p" not in repr(seen)
    assert [one.nodes for one in seen.refused] == [2, 2]
    assert seen.refused[0].message in seen.message


def test_a_decision_that_names_nobody_else_is_not_touched() -> None:
    decision = waiting(MINE, victims=("team-a/web",))
    assert view().decision(decision) is decision


def test_victims_of_other_namespaces_are_uids() -> None:
    assert view().decision(waiting(victims=(MINE, THEIRS, "team-c/gone"))).victims == (
        MINE,
        "pod-shop",
        "a pod of another namespace",
    )


def test_the_victim_of_another_namespace_learns_the_uid_of_the_pod_that_it_made_room_for() -> None:
    reason = f"makes room for batch pod {MINE}; a gratis pod with 3 core s done"
    foreign = Evict(THEIRS, "v", "n1", reason, EvictCause.PREEMPTED, MINE, "uid-7")
    assert view().eviction(foreign) == (
        "Preempted",
        "Preempted by pod uid-7 on node n1: makes room for batch pod uid-7; a gratis pod with 3 core s done",
    )
    own = Evict("team-a/other", "v", "n1", reason, EvictCause.PREEMPTED, MINE, "uid-7")
    assert (
        view()
        .eviction(own)[1]
        .startswith("Preempted by pod team-a/web on node n1: makes room for batch pod team-a/web;")
    )


def relieved(namespace: str) -> Evict:
    """What the engine really says to a pod that leaves since the p95 of a service rises, and of which service."""
    scene = Scene(relieves_trend=True).starts("loud", 90.0, 400.0, "loud")
    for number, milliseconds in enumerate((6.0, 6.8, 7.6, 8.6, 9.7)):
        scene.measured(91.0 + 10.0 * number, milliseconds)
    (evict,) = scene.evictions
    return replace(evict, key=f"{namespace}/loud")


def test_a_pod_that_leaves_since_the_latency_of_anothers_service_rises_learns_no_name() -> None:
    reason, message = view().eviction(relieved("team-a"))
    assert reason == "Evicted"
    assert message.startswith("Evicted from node n: the p95 of a Workload of another namespace on n rises towards")
    assert "d/web" not in message
    assert view().eviction(relieved("d"))[1].startswith("Evicted from node n: the p95 of d/web on n rises towards")


names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


@given(st.lists(st.tuples(names, names), max_size=6), st.lists(st.tuples(names, names), max_size=4))
def test_no_name_of_another_namespace_comes_through(services, victims) -> None:
    theirs = [(f"z{namespace}", f"q{name}") for namespace, name in services]
    others = tuple(f"z{namespace}/q{name}" for namespace, name in victims)
    seen = view().decision(waiting(*dict.fromkeys(f"{a}/{b}" for a, b in theirs), victims=others))
    for namespace, name in [*theirs, *[tuple(key.split("/")) for key in others]]:
        assert f"{namespace}/{name}" not in repr(seen)
