"""Policy hierarchical, live: who goes, who stays, and what outlives a restart.

In the first test evicted pods end as on a kubelet; in the others they stay on their way out until the test takes them
away (without a kubelet, or by an image that does not listen), which holds a preemption open while a test looks at it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from servers import ENDS, STUBBORN, Server

from cotide_core.events import NodeUsageSampled
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import parse_settings
from cotide_operator.explain.class_rule import ClassContext
from cotide_operator.explain.explanation import explain_pod
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import FleetSettings
from cotide_sim.kubelets.node_objects import NodeShape

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
LONG_SECONDS = 100.0
"""Jobs of fewer seconds end within a test."""
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SETTINGS = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
policy: hierarchical
leaderElection: {enabled: false}
queue: {backoffInitialSeconds: 0.05, backoffMaxSeconds: 0.2, unschedulableFlushSeconds: 0.3}
hierarchical: {evictionRetrySeconds: 0.1, evictionTimeoutSeconds: 60}
overload: {observationSeconds: 0, pauseSeconds: 0, flapEpisodes: 1}
# Plain requests: this is about who is placed and who goes, whatever the requests are called.
reclaimed: {publish: false}
"""


class World:
    """A server, a client for the test, and operators that come and go."""

    def __init__(self, server: Server, client: KubeClient) -> None:
        self.server = server
        self.client = client
        self.until = server.until
        self.asked: list[str] = []
        """Pods whose eviction was posted, by any operator, in order."""

    async def node(self, name: str, cpu: str = "4") -> None:
        await self.server.join(self.client, name, cpu=cpu)
        await self.server.until_open(self.client)

    async def pod(self, name: str, cls: str, cpu: str, on: str = "", **annotations: str) -> None:
        """A pod that waits for us, or that runs on a node already."""
        names = {
            "cost": "controller.kubernetes.io/pod-deletion-cost",
            "never": "karpenter.sh/do-not-disrupt",
            "seconds": "sim.cotide.dev/lone-seconds",
            "rates": "sim.cotide.dev/rates",
        }
        metadata = {
            "name": name,
            "labels": {"cotide.dev/class": cls, "app": name},
            "annotations": {names[key]: value for key, value in annotations.items()},
        }
        container = {"name": "c", "image": STUBBORN, "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "cotide", "containers": [container], "nodeName": on or None}
        await self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        if on:
            ready = [{"type": "Ready", "status": "True"}]
            await self.server.becomes(self.client, f"{PODS}/{name}", "Running", conditions=ready)

    async def job(self, name: str, cls: str, cpu: str, completions: int, seconds: str) -> None:
        image = ENDS if float(seconds) < LONG_SECONDS else "x"
        container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
        template = {
            "metadata": {"annotations": {"sim.cotide.dev/lone-seconds": seconds}},
            "spec": {"containers": [container]},
        }
        spec = {"class": cls, "completions": completions, "parallelism": completions, "template": template}
        body = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        await self.client.create(JOBS, body)

    async def look(self, name: str) -> dict[str, Any]:
        return await self.client.get(f"{PODS}/{name}")

    async def gone(self, name: str) -> None:
        """What a kubelet does when a pod has ended, if it was not faster."""
        with contextlib.suppress(ApiError):
            await self.client.delete(f"{PODS}/{name}", grace_seconds=0)

    async def placed(self) -> dict[str, str]:
        pods = await self.client.list(PODS)
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    async def leaving(self) -> set[str]:
        pods = await self.client.list(PODS)
        return {pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp")}

    async def said(self, name: str) -> dict[str, str]:
        """Messages by reason of the events about an object."""
        events = [
            *await self.client.list("/api/v1/namespaces/default/events"),
        ]
        return {event["reason"]: event["message"] for event in events if event["involvedObject"]["name"] == name}

    async def until_on(self, name: str, node: str) -> None:
        async def there() -> bool:
            return (await self.placed()).get(name) == node

        await self.until(f"{name} is on {node}", there)

    async def until_said(self, name: str, reason: str) -> str:
        async def is_said() -> bool:
            return reason in await self.said(name)

        await self.until(f"{name} has an event {reason}", is_said)
        return (await self.said(name))[reason]

    @contextlib.asynccontextmanager
    async def operator(self, *, crash: bool = False) -> AsyncIterator[Operator]:
        """Run an operator; ``crash`` ends it without any of its good manners."""
        settings = parse_settings(SETTINGS)
        operator = Operator(settings, Options(metrics_port=0, install_crds=True), self.server.credentials)
        evict = operator.client.evict

        async def spied(namespace: str, name: str, *rest: Any) -> Any:
            self.asked.append(name)
            return await evict(namespace, name, *rest)

        operator.client.evict = spied  # type: ignore[method-assign]  # a spy; everything else is the real thing
        stop = asyncio.Event()
        task = asyncio.create_task(operator.run(stop))
        try:
            await self.until("the operator decides", lambda: not operator._missing() or task.done())
            yield operator
        finally:
            if crash:
                operator.binder.drain = _at_once  # type: ignore[method-assign]  # nobody waits for what is under way
                task.cancel()
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _at_once() -> None:
    return


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        yield World(server, client)


def count(operator: Operator, name: str, **labels: str) -> float | None:
    return operator.metrics.registry.get_sample_value(name, labels)


async def test_batch_preempts_gratis_jobs_whose_pods_come_back_and_are_counted(world: World) -> None:
    shape = NodeShape(millicores=4000)
    fleet = FleetSettings(interference=GeneratedInterference(), count=1, shape=shape, speed=20.0)
    async with world.server.kubelets(world.client, fleet), world.operator() as operator:
        await world.server.until_open(world.client)
        await world.pod("web", "online", "1", rates="10")
        await world.until_on("web", "fake-0")
        await world.job("filler", "gratis", "1500m", completions=2, seconds="2000")

        async def both_run() -> bool:
            return len(await world.placed()) == 3

        await world.until("web and the filler's pods are on the node", both_run)
        before = {name for name in await world.placed() if name != "web"}
        await world.job("report", "batch", "2", completions=1, seconds="20")

        async def done() -> bool:
            status = (await world.client.get(f"{JOBS}/report")).get("status", {})
            return status.get("phase") == "Succeeded"

        await world.until("the batch job is done", done)

        async def back() -> bool:
            status = (await world.client.get(f"{JOBS}/filler"))["status"]
            return status["evictions"] == 2 and status["failures"] == 0 and status["active"] == 2

        # 4 cpu - 1 of web - 2 of the report leave 1: both fillers of 1.5 had to go, and come back afterwards.
        await world.until("both evictions are counted and the pods run again", back)
        assert sorted(world.asked) == sorted(before)
        assert count(operator, "cotide_evictions_total", **{"class": "gratis", "reason": "Preempted"}) == 2
        event = await world.until_said("filler", "Preempted")
        assert "Preempted by pod default/report-0 on node fake-0: makes room for batch pod default/report-0" in event
        assert (await world.placed())["web"] == "fake-0"


async def test_owners_wishes_decide_who_goes_and_the_pod_says_where_room_is_made(world: World) -> None:
    await world.node("n0")
    await world.pod("never", "gratis", "1", on="n0", never="true", cost="-100")
    await world.pod("dear", "gratis", "1", on="n0", cost="10")
    await world.pod("middling", "gratis", "1", on="n0", cost="5")
    await world.pod("cheap", "gratis", "1", on="n0")
    async with world.operator():
        await world.pod("x", "batch", "2")

        async def two_leave() -> bool:
            return await world.leaving() == {"cheap", "middling"}

        await world.until("the two cheapest leave", two_leave)
        assert (await world.look("cheap"))["metadata"]["deletionGracePeriodSeconds"] == 30, "their own grace period"
        message = await world.until_said("x", "FailedScheduling")
        words = "0/1 nodes are available: 1 Insufficient cpu. preemption: 2 gratis pods leave n0 for it"
        assert message == words

        async def nominated() -> bool:
            pod = await world.look("x")
            facts = dict(explain_pod(pod, ClassContext(), 0.0).facts)
            conditions = {one["type"]: one["message"] for one in pod["status"].get("conditions", ())}
            return (
                pod["status"].get("nominatedNodeName") == "n0"
                and facts.get("Nominated") == "n0: default/cheap, default/middling leave to make room"
                and conditions.get("PodScheduled") == words
            )

        await world.until("the pod, its condition and its explanation say so", nominated)
        await world.until_said("cheap", "Preempted")
        await world.gone("cheap")
        await world.gone("middling")
        await world.until_on("x", "n0")
    assert sorted(world.asked) == ["cheap", "middling"]


async def budget(world: World, name: str, app: str, least: int) -> None:
    spec = {"selector": {"matchLabels": {"app": app}}, "minAvailable": least}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
    await world.client.create(BUDGETS, body)


async def test_a_budget_is_respected_another_victim_found_and_nobody_goes_in_vain(world: World) -> None:
    await world.node("n0")
    await world.pod("kept", "gratis", "2", on="n0", cost="-5")
    await world.pod("free", "gratis", "2", on="n0", cost="5")
    await budget(world, "keep", "kept", 1)
    async with world.operator():
        # 4 cpu are needed, of which the budget holds 2: the engine knows, and asks no pod.
        await world.pod("large", "batch", "4")
        await world.until_said("large", "FailedScheduling")
        assert world.asked == []
        assert await world.leaving() == set()
        # 2 cpu: the cheaper one is kept, so the other one goes.
        await world.pod("small", "batch", "2")
        await world.until("the free one was asked", lambda: world.asked == ["free"])
        await world.gone("free")
        await world.until_on("small", "n0")
    assert world.asked == ["free"]


async def test_a_refusal_that_only_the_server_knows_of_opens_the_search_again(world: World) -> None:
    await world.node("n0")
    await world.pod("first", "gratis", "2", on="n0")
    await world.pod("second", "gratis", "2", on="n0", cost="5")
    world.server.strike(status=429, method="POST", path="/first/eviction$", count=1)
    async with world.operator() as operator:
        await world.pod("x", "batch", "2")
        await world.until("both were asked", lambda: world.asked == ["first", "second"])
        await world.gone("second")
        await world.until_on("x", "n0")
        assert count(operator, "cotide_evictions_refused_total", reason="TooManyRequests") == 1
    assert world.asked == ["first", "second"]


async def test_a_restart_mid_preemption_keeps_the_space_and_asks_nobody_twice(world: World) -> None:
    await world.node("n0")
    await world.pod("g0", "gratis", "2", on="n0")
    await world.pod("g1", "gratis", "2", on="n0")
    async with world.operator(crash=True):
        await world.pod("x", "batch", "4")
        await world.until("both were asked to leave", lambda: sorted(world.asked) == ["g0", "g1"])

        async def both_leave() -> bool:
            return await world.leaving() == {"g0", "g1"}

        await world.until("both leave", both_leave)
    # While nobody decides, one of them is gone, and somebody else comes for the space.
    await world.gone("g0")
    await world.pod("thief", "gratis", "2")
    await world.pod("batch-thief", "batch", "2")
    async with world.operator() as operator:
        await world.until("all three were looked at", lambda: len(operator.decisions) == 3)
        assert await world.placed() == {"g1": "n0"}
        await world.gone("g1")
        await world.until_on("x", "n0")
    assert sorted(world.asked) == ["g0", "g1"]
    assert await world.placed() == {"x": "n0"}


async def test_a_crash_between_claim_and_eviction_empties_the_same_node_afterwards(world: World) -> None:
    await world.node("n0")
    await world.node("n1")
    await world.pod("g0", "gratis", "4", on="n0")
    await world.pod("g1", "gratis", "4", on="n1", cost="5")
    fault = world.server.strike(status=0, delay_seconds=30.0, method="POST", path="/eviction$")
    async with world.operator(crash=True):
        await world.pod("x", "batch", "4")

        async def claimed() -> bool:
            return fault.met == 1 and (await world.look("x"))["status"].get("nominatedNodeName") == "n0"

        await world.until("the claim is written, the eviction under way", claimed)
    assert await world.leaving() == set()
    # Meanwhile the other node would be the cheaper one.
    await world.client.patch(
        f"{PODS}/g1", {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}}
    )
    async with world.operator():
        await world.until("the victim of the first plan was asked again", lambda: world.asked == ["g0", "g0"])
        await world.gone("g0")
        await world.until_on("x", "n0")
    assert "g1" not in world.asked


async def test_the_monitor_relieves_a_node_of_gratis_never_of_online_and_says_so(world: World) -> None:
    await world.node("n0")
    await world.pod("web", "online", "1", on="n0")
    async with world.operator() as operator:
        await world.job("filler", "gratis", "1", completions=1, seconds="2000")
        await world.until_on("filler-0", "n0")

        def measure(millicores: float) -> None:
            operator.loop.emit(NodeUsageSampled("n0", operator.clock.now(), millicores, 0.0))

        measure(3500.0)
        # 3.5 used + 1 held > 4.
        await world.until("the gratis pod was asked to leave", lambda: world.asked == ["filler-0"])
        event = await world.until_said("filler", "Evicted")
        assert event.startswith(
            "pod filler-0: Evicted from node n0: n0 is overloaded (cpu at 112 % of what is allocatable)"
        )
        assert count(operator, "cotide_evictions_total", **{"class": "gratis", "reason": "NodeOverloaded"}) == 1
        assert count(operator, "cotide_overload_slots_total") == 1
        assert count(operator, "cotide_cordoned_nodes") == 1
        cordon = await world.until_said("n0", "OverloadCordon")
        assert cordon.startswith("Overloaded 1 times within 30m")
        await world.gone("filler-0")
        measure(5000.0)  # the service alone is too much: nobody is left to go, and it stays
        await world.pod("late", "batch", "1")
        message = await world.until_said("late", "FailedScheduling")
        assert message == "0/1 nodes are available: 1 cordoned after 1 overloads"

        async def counted() -> bool:
            status = (await world.client.get(f"{JOBS}/filler"))["status"]
            reasons = [one.get("reason") for one in status["conditions"] if one["type"] == "Scheduled"]
            return status["evictions"] == 1 and reasons == ["InsufficientSlack"]

        await world.until("the Job counts its eviction and says what it lacks", counted)

        async def noted() -> bool:
            annotations = (await world.client.get("/api/v1/nodes/n0"))["metadata"].get("annotations", {})
            return "cotide.dev/cordoned-until" in annotations

        await world.until("the cordon is noted on the node", noted)
    async with world.operator() as operator:  # which a restart does not open
        await world.until("the pods that wait hear of it", lambda: _said(operator, "default/late", "1 cordoned"))
        assert count(operator, "cotide_cordoned_nodes") == 1
    assert world.asked == ["filler-0"]
    assert await world.placed() == {"web": "n0"}


def _said(operator: Operator, key: str, words: str) -> bool:
    decision = operator.decisions.get(key)
    return decision is not None and words in decision.message
