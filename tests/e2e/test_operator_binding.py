"""The whole operator over real HTTP, with faults: nothing bound twice, nothing lost.

Each test runs the operator in its own event loop. What the server accepted is recorded by counting the bindings per
pod, so that "bound twice" would be seen even where the server refused the second one.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from operator_world import ALONE, PODS, QUICK_QUEUE, World, watch_bindings
from servers import Server

from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.reflector import Reflector
from cotide_lab.commands.ledger_replay import replay
from cotide_operator.assembly import Operator


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        yield World(server, client)


async def test_pods_are_bound_until_nodes_are_full_and_the_others_say_why(world: World) -> None:
    await world.nodes(2, cpu="2")
    async with world.operator() as operator:
        await world.pods(5)
        await world.until_placed(4)  # 2 nodes x 2 cpu / 1 cpu
        await world.until("the fifth waits", lambda: len(operator.decisions) == 5)

        async def noted() -> bool:
            pods = await world.client.list(PODS)
            waiting = next(pod for pod in pods if not pod["spec"].get("nodeName"))
            conditions = {one["type"]: one for one in waiting["status"].get("conditions", [])}
            said = conditions.get("PodScheduled", {})
            words = "0/2 nodes are available: 2 Insufficient cpu"
            return (said.get("status"), said.get("message")) == ("False", words)

        await world.until("the waiting pod says why", noted)

        async def labelled() -> bool:
            labels = [pod["metadata"].get("labels", {}) for pod in await world.client.list(PODS)]
            return all(label.get("cotide.dev/class") == "online" for label in labels)

        await world.until("each pod carries its class", labelled)

        async def is_said() -> bool:
            events = await world.client.list("/api/v1/namespaces/default/events")
            ours = (event for event in events if event["involvedObject"]["kind"] == "Pod" and from_us(event))
            return Counter(event["reason"] for event in ours) == {"Scheduled": 4, "FailedScheduling": 1}

        await world.until("each decision has its event", is_said)
        # A place becomes free: the waiting pod takes it.
        (first, *_) = await world.placed()
        await world.client.delete(f"{PODS}/{first}", grace_seconds=0)
        await world.until_placed(4)


def from_us(event: dict[str, Any]) -> bool:
    """Kubelets tell of pods, too."""
    return bool(event["source"]["component"] != "kubelet")


async def test_an_unsupported_constraint_keeps_a_pod_pending_and_names_the_field(world: World) -> None:
    await world.nodes(1)
    async with world.operator():
        await world.pods(1, resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])

        async def is_said() -> bool:
            events = await world.client.list("/api/v1/namespaces/default/events")
            return any("spec.resourceClaims" in event["message"] for event in events)

        await world.until("an event names the field", is_said)
        assert await world.placed() == {}


@pytest.mark.parametrize("status", [429, 500, 503, 409])
async def test_a_refused_binding_is_tried_again_and_no_pod_is_lost(world: World, status: int) -> None:
    await world.nodes(4)
    # Longer than the client's own five tries: 7 refusals in a row reach the engine.
    world.server.strike(status=status, method="POST", path="/binding$", count=7)
    async with world.operator(f"{ALONE}{QUICK_QUEUE}") as operator:
        await world.pods(3)
        await world.until_placed(3)
        await world.until("all is told", lambda: all(decision.node for decision in operator.decisions))
    assert len(await world.placed()) == 3


async def test_an_answer_that_is_lost_does_not_bind_twice(world: World) -> None:
    await world.nodes(4)
    async with world.operator() as operator:
        # The binding is carried out, but its answer comes after the client gave up on it.
        operator.client._transport._timeout = aiohttp.ClientTimeout(total=0.3)
        world.server.strike(delay_seconds=0.6, method="POST", path="/binding$", count=2)
        await world.pods(2)
        await world.until_placed(2)
        before = await world.placed()
        await world.until(
            "all is told",
            lambda: len(operator.decisions) == 2 and all(decision.node for decision in operator.decisions),
        )
    assert await world.placed() == before
    assert {decision.key.partition("/")[2]: decision.node for decision in operator.decisions} == before


async def test_pods_that_another_binder_took_are_left_where_they_are(world: World) -> None:
    await world.nodes(2)
    async with world.operator() as operator:
        # It strikes the first binding that comes: ours must not be asked for before the operator's is held.
        delay = world.server.strike(delay_seconds=5.0, method="POST", path="/p0/binding$", count=1)
        await world.pods(1)
        await world.until("the binding is under way", lambda: delay.met)
        answer = await world.client.bind("default", "p0", "", "n1")
        assert answer.ok
        state = operator.loop.scheduler.state
        await world.until(
            "the pod holds its place", lambda: (found := state.record("default/p0")) and found.node == "n1"
        )
        await world.until("the binder is done", lambda: not operator.binder.busy)
    assert await world.placed() == {"p0": "n1"}


async def test_a_pod_deleted_while_it_is_being_bound_is_forgotten(world: World) -> None:
    await world.nodes(1, cpu="1")
    async with world.operator() as operator:
        world.server.strike(delay_seconds=1.5, method="POST", path="/p0/binding$", count=1)
        await world.pods(1)
        await world.until("the binding is under way", lambda: operator.binder.busy)
        await world.client.delete(f"{PODS}/p0", grace_seconds=0)
        # The only cpu must be free again for another pod of the same size.
        await world.pods(1, prefix="q")
        await world.until_placed(1)
        await world.until("the gone pod left the decision store", lambda: operator.decisions.get("default/p0") is None)
    assert await world.placed() == {"q0": "n0"}


async def test_a_pod_replaced_under_its_name_is_another_pod(world: World) -> None:
    await world.nodes(1)
    async with world.operator() as operator:
        await world.pods(1)
        await world.until_placed(1)
        first = operator.event_source.pods["default/p0"].uid
        await world.client.delete(f"{PODS}/p0", grace_seconds=0)
        await world.pods(1)
        await world.until("the new one is bound", lambda: _bound_anew(operator, first))
    assert await world.placed() == {"p0": "n0"}


def _bound_anew(operator: Operator, first: str) -> bool:
    decision = operator.decisions.get("default/p0")
    return decision is not None and decision.uid != first and decision.node == "n0"


async def test_a_node_deleted_mid_decision_gets_no_pod(world: World) -> None:
    await world.nodes(1)
    async with world.operator() as operator:
        # While the binder's only worker waits for the first binding, the node of the others goes.
        world.server.strike(delay_seconds=0.5, method="POST", path="/binding$", count=1)
        await world.pods(3)
        await world.until("bindings are under way", lambda: operator.binder.backlog >= 1)
        await world.client.delete("/api/v1/nodes/n0")
        await world.until("the node is gone here too", lambda: "n0" not in operator.cache.nodes)
        taken = set(await world.placed())
        await world.server.join(world.client, "other")
        await world.until_placed(3)
    nodes = await world.placed()
    assert {nodes[name] for name in nodes if name not in taken} <= {"other", "n0"}
    assert len(nodes) == 3


async def test_dropped_watches_lose_nothing(world: World) -> None:
    await world.nodes(4)
    async with world.operator() as operator:
        for index in range(6):
            await world.pods(1, prefix=f"w{index}-")
            world.server.drop_watches(abruptly=index % 2 == 0)
        await world.until_placed(6)
        await world.until(
            "all is told",
            lambda: len(operator.decisions) == 6 and all(decision.node for decision in operator.decisions),
        )


async def test_a_crash_between_decision_and_binding_neither_loses_nor_doubles(world: World) -> None:
    await world.nodes(3, cpu="4")
    world.server.strike(delay_seconds=0.2, method="POST", path="/binding$", count=4)
    await world.pods(10)
    async with world.operator(crash=True, begun=lambda one: one.binder.busy):
        pass
    before = await world.placed()
    async with world.operator() as again:
        posted = watch_bindings(again)
        await world.until_placed(10)
        await world.until("all is told", lambda: len(again.decisions) + len(before) >= 10)
    after = await world.placed()
    assert len(after) == 10
    assert {name: after[name] for name in before} == before
    loads = Counter(after.values())
    assert max(loads.values()) <= 4  # 4 cpu a node, 1 cpu a pod: the restart saw what the crash had bound
    assert all(count == 1 for count in posted.values())


async def test_what_was_decided_about_running_pods_is_known_after_a_restart(world: World) -> None:
    await world.nodes(2)
    async with world.operator() as operator:
        await world.pods(2)
        await world.until(
            "all is told",
            lambda: len(operator.decisions) == 2 and all(decision.node for decision in operator.decisions),
        )
        before = {decision.key: (decision.node, decision.message, decision.attempts) for decision in operator.decisions}
    async with world.operator() as again:
        assert {
            decision.key: (decision.node, decision.message, decision.attempts) for decision in again.decisions
        } == before


@pytest.mark.parametrize("seed", [1, 2])
async def test_under_random_faults_each_pod_gets_one_node_for_life_and_no_node_too_many(
    world: World, seed: int
) -> None:
    rng = random.Random(seed)
    await world.nodes(5, cpu="8")  # 40 places for 36 pods, four of which are deleted on the way
    history: dict[str, set[str]] = {}
    pods = Reflector(world.client, "/api/v1/pods", PodObject)
    follower = asyncio.create_task(follow(pods, history))
    async with world.operator(f"{ALONE}{QUICK_QUEUE}") as operator:
        for index in range(36):
            await world.pods(1, prefix=f"r{index}-")
            if index % 3 == 0:
                fault = {"status": rng.choice([0, 409, 429, 500, 503]), "delay_seconds": rng.choice([0.0, 0.05, 0.2])}
                world.server.strike(method="POST", path="/binding$", count=rng.randint(1, 4), **fault)
            if index % 7 == 3:
                world.server.drop_watches(abruptly=rng.random() < 0.5)
            if index % 9 == 5:
                await world.client.delete(f"{PODS}/r{index}-0", grace_seconds=0)

        await world.until_placed(32)
        await world.until("all is told", lambda: sum(1 for decision in operator.decisions if decision.node) == 32)
    placed = await world.placed()
    follower.cancel()
    assert len(placed) == 32
    assert max(Counter(placed.values()).values()) <= 8
    assert all(len(nodes) == 1 for nodes in history.values())  # by uid: nobody was ever moved


async def follow(pods: Reflector[PodObject], history: dict[str, set[str]]) -> None:
    """Keep every node that each pod (by uid) was ever seen on."""
    async for change in pods:
        if change.object is not None and change.object.spec.node_name:
            history.setdefault(change.object.metadata.uid, set()).add(change.object.spec.node_name)


async def test_attempts_survive_a_restart(world: World) -> None:
    await world.nodes(1, cpu="1")
    await world.pods(1, cpu="2")
    async with world.operator() as operator:
        await world.until("it was tried", lambda: operator.decisions.get("default/p0") is not None)

        async def noted() -> bool:
            pod = await world.client.get(f"{PODS}/p0")
            return "cotide.dev/decision" in pod["metadata"].get("annotations", {})

        await world.until("the note is on the pod", noted)
    async with world.operator() as again:
        await world.until(
            "it is tried again", lambda: (found := again.decisions.get("default/p0")) and found.attempts >= 2
        )


async def test_an_api_server_that_comes_back_finds_an_operator_that_goes_on(world: World) -> None:
    await world.nodes(2)
    async with world.operator():
        await world.pods(2)
        await world.until_placed(2)
        before = await world.placed()
        await world.server.stop()
        await world.server.start()
        await world.pods(2, prefix="q")
        await world.until_placed(4)
        after = await world.placed()
        assert {name: after[name] for name in before} == before


async def test_nothing_is_decided_before_everything_was_listed(world: World) -> None:
    await world.nodes(1)
    await world.pods(1)
    # A busy machine lists the others slowly.
    late = world.server.strike(delay_seconds=5.0, method="GET", path="/priorityclasses$", count=1)
    operator, stop = world.make(), asyncio.Event()
    task = asyncio.create_task(operator.run(stop))
    await world.until("all but one kind is listed", lambda: operator.cache.missing() == ["priorityclasses"])
    for _ in range(100):
        await asyncio.sleep(0)  # turns enough for a cycle, were one to come
    assert (operator.loop.cycles, late.met) == (0, 1)
    await world.until_placed(1)
    stop.set()
    await task


async def test_a_recorded_run_replays_exactly(world: World, tmp_path: Path) -> None:
    await world.nodes(2, cpu="2")
    async with world.operator(f"{ALONE}policy: random\nseed: 3\nledger: {{directory: {tmp_path}}}\n") as operator:
        await world.pods(5)
        await world.until_placed(4)
        await world.until("the fifth is told to wait", lambda: operator.loop.scheduler.pending()["unschedulable"] == 1)
        cycles = operator.loop.cycles
    assert cycles > 1
    with (tmp_path / "ledger.jsonl").open("rb") as lines:
        result = replay(lines, HeuristicCatalogue())
    assert result.difference is None
    assert result.instructions >= 5  # four bindings and at least one wait


async def test_health_and_metrics_tell_what_happened(world: World) -> None:
    await world.nodes(1)
    async with world.operator() as operator, aiohttp.ClientSession() as session:
        base = f"http://127.0.0.1:{operator.health.port}"
        await world.pods(1)
        await world.until_placed(1)

        async def ready() -> bool:
            async with session.get(f"{base}/readyz") as response:
                return response.status == 200

        await world.until("it is ready", ready)

        async def counted() -> bool:
            async with session.get(f"{base}/metrics") as response:
                text = await response.text()
            return 'cotide_schedule_attempts_total{class="online",policy="qpsm",result="scheduled"} 1.0' in text

        await world.until("the binding is counted", counted)
        async with session.get(f"{base}/debug/board") as response:
            assert response.status == 401
            assert "default/p0" not in await response.text()
        token = await world.server.token(world.client)
        async with session.get(f"{base}/debug/board", headers={"Authorization": f"Bearer {token}"}) as response:
            decisions = await response.json()
        assert [(one["key"], one["node"]) for one in decisions["decisions"]] == [("default/p0", "n0")]
