"""What consolidation sees of a node that it has written to, while the cache is behind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hand_clock import HandClock
from manifests import node_manifest, pod_object

from cotide_core.consolidation.removal.watching import Mark
from cotide_kube.answers import Answer
from cotide_kube.objects import NodeObject, PodDisruptionBudgetObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.consolidation import drain_client
from cotide_operator.consolidation.carrier import DRAINING, FREED, NodeNow
from cotide_operator.consolidation.drain_client import DrainClient
from cotide_operator.consolidation.node_record import RECORD, NodeRecord, record_of


class Server:
    """Keeps a node; shows it to the cache when the test lets it."""

    def __init__(self) -> None:
        self.node = node_manifest("a", "4", memory="8Gi")
        self.node["metadata"] |= {"uid": "a", "annotations": {}, "resourceVersion": "99"}
        self.node["spec"] = {}
        self.cache = ObjectCache()
        self.show()

    async def patch(self, path: str, body: Any) -> dict[str, Any]:
        annotations = self.node["metadata"]["annotations"] | body["metadata"]["annotations"]
        self.node["metadata"]["annotations"] = {name: text for name, text in annotations.items() if text is not None}
        self.node["spec"]["unschedulable"] = body.get("spec", self.node["spec"])["unschedulable"] or False
        self.changed()
        return self.node

    def changed(self) -> None:
        self.node["metadata"]["resourceVersion"] = str(int(self.node["metadata"]["resourceVersion"]) + 1)

    async def evict(self, namespace: str, name: str, uid: str) -> Answer:
        return Answer(201)

    def show(self) -> None:
        self.cache.apply("nodes", "MODIFIED", msgspec.convert(self.node, NodeObject))


async def test_a_node_is_as_it_was_written_until_the_cache_shows_that_and_then_as_others_make_it() -> None:
    server: Any = Server()
    server.cache.apply("pods", "ADDED", pod_object("p", namespace="d", spec={"nodeName": "a"}))
    hands = DrainClient(server, server.cache, HandClock(1_000_000_000.0), lambda *_: None)
    await hands.mark("a", DRAINING, cordoned=True)
    assert await hands.node("a") == NodeNow(True, DRAINING)
    assert await hands.evict("d/p", "u-p") == 201
    assert await hands.node("a") == NodeNow(True, DRAINING)
    server.show()
    assert await hands.node("a") == NodeNow(True, DRAINING)
    server.node["spec"]["unschedulable"] = False  # by a person
    server.changed()
    server.show()
    assert await hands.node("a") == NodeNow(False, DRAINING)


async def test_what_somebody_made_of_a_node_while_the_watch_had_a_gap_counts_though_ours_was_never_shown() -> None:
    server: Any = Server()
    hands = DrainClient(server, server.cache, HandClock(1_000_000_000.0), lambda *_: None)
    await hands.mark("a", DRAINING, cordoned=True)
    server.show()
    await hands.mark("a", FREED, cordoned=True)
    # By `cotide consolidate --undo`.
    server.node["metadata"]["annotations"], server.node["spec"]["unschedulable"] = {}, False
    server.changed()
    server.show()
    assert await hands.node("a") == NodeNow(False, "")
    assert hands.standings() == {}


async def test_nothing_is_kept_of_a_node_that_went_before_it_showed_what_was_written() -> None:
    server: Any = Server()
    hands = DrainClient(server, server.cache, HandClock(1_000_000_000.0), lambda *_: None)
    await hands.mark("a", FREED, cordoned=True)
    server.show()
    assert set(hands.standings()) == {"a"}
    server.cache.apply("nodes", "DELETED", server.cache.nodes["a"])
    assert not hands._written
    assert not hands._read


async def test_a_record_is_read_once_for_each_change_and_pods_are_counted_where_a_mark_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records stay on nodes: of 5,000 with 50,000 pods each of some looks a second took 0.4 s of the loop."""
    server: Any = Server()
    server.cache.apply("pods", "ADDED", pod_object("p", namespace="d", spec={"nodeName": "a"}))
    hands = DrainClient(server, server.cache, HandClock(1_000_000_000.0), lambda *_: None)
    await hands.index()
    await hands.mark("a", FREED, cordoned=True)
    assert hands.standings()["a"].pods == 1
    await hands.mark("a", None, cordoned=False)
    server.show()
    read: list[str] = []

    def noted(node: NodeObject) -> NodeRecord | None:
        read.append(node.metadata.name)
        return record_of(node)

    monkeypatch.setattr(drain_client, "record_of", noted)
    counted: list[str] = []
    monkeypatch.setattr(hands, "load", counted.append)
    assert [hands.standings()["a"].mark for _ in range(3)] == [Mark.NONE] * 3
    assert (read, counted) == (["a"], [])
    server.node["metadata"]["annotations"][RECORD] = '{"demanded": true}'
    server.changed()
    server.show()
    assert hands.standings()["a"].demanded


async def test_of_several_pods_the_first_that_a_budget_keeps_is_named() -> None:
    server: Any = Server()
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in ("p", "q"):
        pod = pod_object(name, namespace="d", labels={"app": "x"}, spec={"nodeName": "a"}, status=ready)
        server.cache.apply("pods", "ADDED", pod)
    hands = DrainClient(server, server.cache, HandClock(0.0), lambda *_: None)
    keys = ("d/p", "d/q", "d/gone")
    assert await hands.kept(keys) == ""
    for allowed, said in ((1, "disruption budget d/b allows no further eviction now"), (2, "")):
        body = {
            "metadata": {"name": "b", "namespace": "d"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": {"disruptionsAllowed": allowed},
        }
        budget = msgspec.convert(body, PodDisruptionBudgetObject)
        server.cache.apply("poddisruptionbudgets", "MODIFIED", budget)
        assert await hands.kept(keys) == said
