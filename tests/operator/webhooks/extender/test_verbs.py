"""Questions as kube-scheduler sends them: what is answered, told, left alone, and refused as unreadable."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from manifests import node_object, pod_manifest

from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError
from cotide_core.events import (
    BindRefused,
    Event,
    NodeUpserted,
    NodeUsageSampled,
    PodAssumed,
    ServiceSampled,
)
from cotide_core.instructions import Bind
from cotide_core.limits import MAX_NODES_ASKED
from cotide_core.state.cluster_state import ClusterState
from cotide_kube.answers import Answer
from cotide_kube.objects import PodObject
from cotide_operator.cache.decision_store import Decision
from cotide_operator.cache.object_cache import KINDS, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.webhooks.extender import cluster_follower, verbs, wire
from cotide_operator.webhooks.extender.cluster_follower import ClusterFollower
from cotide_operator.webhooks.extender.verbs import Decided, Verbs

ASSISTED = "cotide-assisted"


def pod(name: str = "p", scheduler: str = ASSISTED, uid: str = "", cls: str = "batch") -> dict[str, Any]:
    """A pod that kube-scheduler binds, of three cpus."""
    return pod_manifest(name, "3", cls=cls, namespace="d", uid=uid or f"u-{name}", spec={"schedulerName": scheduler})


class Scene:
    """A follower of two nodes, and what it tells."""

    def __init__(self, *pods: dict[str, Any], answer: Answer | None = None, knows_clients: bool = True) -> None:
        self.cache = ObjectCache()
        for name in ("a", "b"):
            self.cache.apply("nodes", "ADDED", node_object(name, "4"))
        for kind in KINDS:
            self.cache.mark_synced(kind)
        self.decided: list[Decided] = []
        self.bound: list[Bind] = []
        self._answer = answer or Answer(201)
        follower = ClusterFollower(SchedulerConfig(), self.cache, ScaledClock(), ("cotide",), 30.0)
        follower.begin()
        for one in pods:
            self.see(one)
        view = TenantView(self.cache)
        self.verbs = Verbs(follower, [ASSISTED], view, self.decided.append, self._bind, knows_clients=knows_clients)

    def see(self, body: dict[str, Any]) -> None:
        self.cache.apply("pods", "ADDED", msgspec.convert(body, PodObject))

    async def _bind(self, bind: Bind) -> Answer:
        self.bound.append(bind)
        return self._answer

    async def filter(self, body: dict[str, Any], *names: str) -> dict[str, Any]:
        reply = await self.verbs.filter(json.dumps({"Pod": body, "Nodes": None, "NodeNames": names}).encode())
        found: dict[str, Any] = json.loads(reply.body)
        return found


async def test_a_choice_is_told_as_an_assumption_and_as_a_decision() -> None:
    scene = Scene(pod())
    answer = await scene.filter(pod(), "a", "b")
    [name] = answer["NodeNames"]
    assumed, decision = scene.decided
    assert assumed == PodAssumed("d/p", "u-p", name, assumed.at_seconds)  # type: ignore[union-attr]  # it is one
    assert isinstance(decision, Decision)
    assert (decision.node, decision.reason) == (name, "Scheduled")


async def test_who_is_asked_about_again_is_let_go_of_first() -> None:
    scene = Scene(pod())
    await scene.filter(pod(), "a")
    scene.decided.clear()
    assert (await scene.filter(pod(), "a"))["NodeNames"] == ["a"]  # three of four cores: it is not in its own way
    assert isinstance(scene.decided[0], BindRefused)


async def test_a_refusal_names_each_node_and_is_told_once_as_a_decision() -> None:
    scene = Scene(pod("p"), pod("q"))
    await scene.filter(pod("p"), "a")
    scene.decided.clear()
    answer = await scene.filter(pod("q"), "a")
    assert answer == {"NodeNames": [], "FailedNodes": {"a": "Insufficient cpu"}}
    [decision] = scene.decided
    assert isinstance(decision, Decision)
    assert decision.node is None
    assert decision.message.endswith("1 Insufficient cpu")


async def test_pods_of_other_schedulers_are_left_alone_by_every_verb() -> None:
    scene, body = Scene(), pod(scheduler="default-scheduler")
    asked = json.dumps({"Pod": body, "NodeNames": ["a", "x"]}).encode()
    assert (await scene.verbs.filter(asked)).outcome == "left alone"
    scored = await scene.verbs.prioritize(asked)
    assert json.loads(scored.body) == [{"Host": "a", "Score": 0}, {"Host": "x", "Score": 0}]
    victims = {"a": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}
    left = await scene.verbs.preempt(json.dumps({"Pod": body, "NodeNameToMetaVictims": victims}).encode())
    assert json.loads(left.body) == {"NodeNameToMetaVictims": victims}
    assert scene.decided == []


async def test_a_pod_that_the_watch_never_tells_of_is_answered_and_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verbs, "UNSEEN_SECONDS", 0.0)
    scene = Scene()
    for _ in range(3):  # else the second would find no room: an invented pod could fill the cluster
        assert (await scene.filter(pod("invented"), "a"))["NodeNames"] == ["a"]
    assert scene.decided == []


async def test_a_binding_carries_the_choice_and_one_that_is_refused_gives_its_place_back() -> None:
    scene = Scene(pod(), answer=Answer(409, "Conflict", "taken"))
    [name] = (await scene.filter(pod(), "a", "b"))["NodeNames"]
    body = {"PodName": "p", "PodNamespace": "d", "PodUID": "u-p", "Node": name}
    reply = await scene.verbs.bind(json.dumps(body).encode())
    assert "409 Conflict" in json.loads(reply.body)["Error"]
    assert scene.bound[0].reason == "qpsm: no online service is put at risk there"
    assert isinstance(scene.decided[-1], BindRefused)


async def test_a_pod_of_cotides_own_is_not_bound_for_others() -> None:
    scene = Scene(pod("own", scheduler="cotide"))
    body = {"PodName": "own", "PodNamespace": "d", "PodUID": "u-own", "Node": "a"}
    reply = await scene.verbs.bind(json.dumps(body).encode())
    assert "Cotide's own" in json.loads(reply.body)["Error"]
    assert scene.bound == []


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "NodeArgs: can't be read"),
        (b'{"Pod":{"metadata":{"name":"p","namespace":"d","uid":"u"}},"Nodes":{"items":[]}}', "nodeCacheCapable: true"),
        (b'{"Pod":{"metadata":{"name":"p","namespace":"d"}},"NodeNames":[]}', "Pod.metadata.uid: must have 1 to 253"),
        (b'{"Pod":{"metadata":{"name":"p","namespace":"d","uid":"u"}},"NodeNames":[7]}', "NodeArgs: can't be read"),
        (b'{"Pod":{"metadata":{"name":"p","namespace":"d","uid":"\xff"}},"NodeNames":[]}', "Pod: can't be read"),
    ],
)
async def test_what_cant_be_read_is_one_sentence_that_names_the_field(body: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        await Scene().verbs.filter(body)


def test_more_nodes_than_any_cluster_has_are_not_looked_at() -> None:
    args = wire.NodeArgs(msgspec.Raw(b"{}"), ["n"] * (MAX_NODES_ASKED + 1))
    with pytest.raises(InputError, match="names 20001 nodes; the limit is 20000"):
        wire.node_names(args)
    with pytest.raises(InputError, match="at most 253 characters"):
        wire.node_names(wire.NodeArgs(msgspec.Raw(b"{}"), ["n" * 254]))


@pytest.mark.parametrize("at_first", [True, False])
def test_an_event_that_trips_the_state_costs_none_behind_it(monkeypatch: pytest.MonkeyPatch, at_first: bool) -> None:
    cache = ObjectCache()
    follower = ClusterFollower(SchedulerConfig(), cache, ScaledClock(), ("cotide",), 30.0)
    apply = ClusterState.apply

    def trips(state: ClusterState, event: Event) -> None:
        if isinstance(event, NodeUpserted) and event.node.name == "bad":
            raise OverflowError("too large for a column")
        apply(state, event)

    monkeypatch.setattr(ClusterState, "apply", trips)
    if not at_first:
        follower.begin()
    for name in ("a", "bad", "c"):
        cache.apply("nodes", "ADDED", node_object(name, "4"))
    if at_first:
        follower.begin()
    follower.catch_up()
    assert set(follower.advisor.state.columns.row_of) == {"a", "c"}


def test_pods_that_came_and_went_leave_nothing_behind() -> None:
    cache = ObjectCache()
    follower = ClusterFollower(SchedulerConfig(), cache, ScaledClock(), ("cotide",), 30.0)
    follower.begin()
    for number in range(3):
        own = msgspec.convert(pod(f"p{number}", scheduler="cotide"), PodObject)
        for change in ("ADDED", "DELETED"):
            cache.apply("pods", change, own)
            follower.catch_up()
    assert follower._source is not None
    assert follower._source.take_arrivals() == []


def test_while_nobody_can_ask_no_more_waits_than_the_cluster_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a certificate nobody can, and there may be none for days."""
    monkeypatch.setattr(cluster_follower, "PENDING_BEFORE", 20, raising=False)
    scene = Scene()
    follower = ClusterFollower(SchedulerConfig(), scene.cache, ScaledClock(), ("cotide",), 30.0)
    scene.see(pod())
    for number in range(500):
        scene.cache.apply("nodes", "MODIFIED", node_object("a", "4"))
        for node in ("a", "b", "gone"):
            follower.emit(NodeUsageSampled(node, float(number), 1000.0 + number, 2.0**30))
        follower.emit(ServiceSampled(f"d/gone-{number}", 1.0, None))
    assert len(follower._noted) == 0
    assert len(follower._pending) <= 40
    follower.begin()
    used, fresh = follower.advisor.state.host_load.used(500.0, 60.0)
    rows = [follower.advisor.state.columns.row_of[name] for name in ("a", "b")]
    assert used[0, rows].tolist() == [1499.0, 1499.0], "the last of each node is not lost"
    assert fresh[rows].all()


async def test_a_pod_that_nobody_told_of_with_a_number_that_no_api_server_lets_pass_is_malformed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever reaches the port may send it."""
    monkeypatch.setattr(verbs, "UNSEEN_SECONDS", 0.0)
    body = pod("invented")
    body["spec"]["topologySpreadConstraints"] = [{"maxSkew": 2**70, "topologyKey": "zone"}]
    with pytest.raises(InputError, match=r"Pod: can't be read: .*topologySpreadConstraints\[0\]\.maxSkew"):
        await Scene().filter(body, "a")


async def test_a_pod_that_nobody_told_of_and_that_trips_us_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read, and what it means could not be found: no such pod is known, so that the translation trips."""

    def trips(*_: Any) -> None:
        raise OverflowError("too large to convert")

    monkeypatch.setattr(verbs, "UNSEEN_SECONDS", 0.0)
    monkeypatch.setattr(cluster_follower, "translate_pod", trips)
    with pytest.raises(InputError, match=r"Pod: .*can't be judged: too large to convert"):
        await Scene().filter(pod("invented"), "a")


NOT_WAITING: list[dict[str, Any]] = [
    {"spec": {"schedulingGates": [{"name": "x.y/never"}]}},
    {"spec": {"nodeName": "b"}},
    {"status": {"phase": "Succeeded"}},
    {"status": {"phase": "Failed"}},
    {"deletionTimestamp": "2026-01-01T00:00:00Z"},
]


@pytest.mark.parametrize("how", NOT_WAITING, ids=["gated", "bound", "succeeded", "failed", "ending"])
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_a_pod_that_does_not_wait_for_a_node_reserves_nothing(verb: str, how: dict[str, Any]) -> None:
    spec = {"schedulerName": ASSISTED, **how.get("spec", {})}
    fields = {name: value for name, value in how.items() if name != "spec"}
    body = pod_manifest("p", "3", cls="batch", namespace="d", uid="u-p", spec=spec, **fields)
    scene = Scene(body)
    await getattr(scene.verbs, verb)(json.dumps({"Pod": body, "NodeNames": ["a", "b"]}).encode())
    assert scene.decided == []
    assert scene.verbs._follower.advisor.assumed == 0


@pytest.mark.parametrize("knows_clients", [False, True])
async def test_a_score_reserves_room_only_where_clients_show_a_certificate(*, knows_clients: bool) -> None:
    scene = Scene(pod(), knows_clients=knows_clients)
    reply = await scene.verbs.prioritize(json.dumps({"Pod": pod(), "NodeNames": ["a", "b"]}).encode())
    assert len(json.loads(reply.body)) == 2
    assert len(scene.decided) == knows_clients
