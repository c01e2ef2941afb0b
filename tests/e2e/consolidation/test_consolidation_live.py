"""Consolidation that goes on by itself, live: nodes are freed, given back to whoever waits, and never forgotten."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from manifests import template, workload_manifest
from operator_world import ALONE, QUICK_QUEUE, World

from cotide_operator.assembly import Operator
from cotide_operator.consolidation.carrier import DRAINING, FREED, MARK
from cotide_operator.consolidation.node_record import RECORD
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import FleetSettings
from cotide_sim.kubelets.node_objects import NodeShape

JOBS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
WORKLOADS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
QUICK: Final = (
    "intervalSeconds: 1, stableSeconds: 1, minimumAgeSeconds: 0, cooldownSeconds: 3600, timeoutSeconds: 60,"
    " spareNodes: 0, packs: false"
)
"""Not packed: pods spread, so that there is something to move."""
SPEED: Final = 4.0


def watching(clock: str, more: str = "", rest: str = "") -> str:
    return f"policy: fifo\n{ALONE}{QUICK_QUEUE}{clock}consolidation: {{enabled: true, {QUICK}{more}}}\n{rest}"


@contextlib.asynccontextmanager
async def nodes(world: World, count: int) -> AsyncIterator[str]:
    """Nodes of four cores; yields the operator's settings of their time."""
    origin, speed = time.time(), world.server.pace(SPEED)
    settings = FleetSettings(
        interference=GeneratedInterference(),
        count=count,
        name_prefix="n",
        shape=NodeShape(millicores=4000, memory_bytes=16 << 30),
        origin_seconds=origin,
        speed=speed,
    )
    async with world.server.kubelets(world.client, settings):
        await world.server.until_open(world.client)
        yield f"simulatedTime: {{originSeconds: {origin!r}, speed: {speed}}}\n"


async def serve(world: World, name: str, replicas: int) -> None:
    """Run a service of pods of one core."""
    body = template("1", "64Mi")
    await world.client.create(WORKLOADS, workload_manifest(name, replicas=replicas, template=body))


async def serve_undisturbed(world: World, clock: str, name: str, replicas: int) -> None:
    """Run a service, and nothing that consolidates until its pods run.

    An empty node would be freed before the first pod comes, be given back, and rest for the cool-down.
    """
    async with world.operator(watching(clock).replace("enabled: true", "enabled: false")):
        await serve(world, name, replicas)
        await until_ready(world, replicas)


async def marks(world: World) -> dict[str, str]:
    """Mark of each node that is cordoned, empty where it carries none."""
    found = await world.client.list("/api/v1/nodes")
    return {
        node["metadata"]["name"]: node["metadata"].get("annotations", {}).get(MARK, "")
        for node in found
        if node["spec"].get("unschedulable")
    }


async def until_marks(world: World, *wanted: str) -> None:
    async def so() -> bool:
        return sorted((await marks(world)).values()) == sorted(wanted)

    await world.until(f"cordoned nodes are {wanted}", so)


async def ready(world: World) -> int:
    pods = await world.client.list("/api/v1/namespaces/default/pods")
    return sum(
        pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp") for pod in pods
    )  # fmt: skip


async def until_ready(world: World, count: int) -> None:
    async def so() -> bool:
        return await ready(world) == count

    await world.until(f"{count} pods run", so)


def figure(operator: Operator, line: str) -> float:
    text = operator.metrics.text().decode()
    return next((float(one.rpartition(" ")[2]) for one in text.splitlines() if one.startswith(line)), 0.0)


async def cordoned(world: World, name: str, mark: str, *, record: bool) -> None:
    annotations = {MARK: mark, **({RECORD: json.dumps({"since": time.time()})} if record else {})}
    body: dict[str, Any] = {"metadata": {"annotations": annotations}, "spec": {"unschedulable": True}}
    await world.client.patch(f"/api/v1/nodes/{name}", body)


async def test_nodes_are_freed_and_given_back_to_pods_that_wait(world: World, tmp_path: Path) -> None:
    async with nodes(world, 4) as clock:
        await serve_undisturbed(world, clock, "web", 6)
        async with world.operator(watching(clock, "", f"ledger: {{directory: {tmp_path}}}\n")):
            # Six pods of one core: three fit on a node of four with its reserve of a tenth.
            await until_marks(world, FREED, FREED)
            await until_ready(world, 6)
            # Sixteen need all four nodes.
            await world.client.patch(f"{WORKLOADS}/web", {"spec": {"replicas": 16}})
            await until_ready(world, 16)
            assert await marks(world) == {}
    records = [json.loads(line) for line in (tmp_path / "consolidation.jsonl").read_text().splitlines()]
    assert {"Freed", "GivenBack"} <= {record.get("did") for record in records}


async def test_the_budget_of_an_hour_outlives_a_restart(world: World) -> None:
    async with nodes(world, 3) as clock:
        await serve_undisturbed(world, clock, "a", 3)
        async with world.operator(watching(clock, ", movesPerHour: 1")):
            on = list((await world.placed()).values())
            if len(set(on)) < 2:  # whoever placed them left nothing to move
                return
            await until_marks(world, *[FREED] * (4 - len(set(on))))
            spent = len(set(on)) == 3
        async with world.operator(watching(clock, ", movesPerHour: 1")) as operator:
            await world.until(
                "it looked", lambda: figure(operator, "cotide_consolidation_plan_seconds_count") >= 2
            )  # fmt: skip
            assert figure(operator, "cotide_consolidation_moves_left") == (0 if spent else 1)


async def test_what_a_killed_operator_left_draining_is_open_again_and_what_a_person_did_is_not(world: World) -> None:
    async with nodes(world, 3) as clock:
        await cordoned(world, "n0", DRAINING, record=True)
        await cordoned(world, "n1", FREED, record=False)
        await cordoned(world, "n2", "", record=False)
        async with world.operator(watching(clock, ", stableSeconds: 3000").replace("stableSeconds: 1,", "")):

            async def left() -> bool:
                return await marks(world) == {"n1": FREED, "n2": ""}

            await world.until("n0 is open again", left)


async def test_an_operator_that_does_not_consolidate_gives_back_what_another_held(world: World) -> None:
    async with nodes(world, 2):
        await cordoned(world, "n0", FREED, record=True)
        await cordoned(world, "n1", FREED, record=False)
        async with world.operator():

            async def left() -> bool:
                return await marks(world) == {"n1": FREED}

            await world.until("n0 is open again", left)


async def test_a_stopped_operator_leaves_nothing_draining(world: World) -> None:
    async with nodes(world, 3) as clock:
        await serve_undisturbed(world, clock, "a", 5)
        # No pod is evicted: the drain hangs until it is stopped.
        world.server.strike(status=429, method="POST", path="/eviction$", count=-1)
        async with world.operator(watching(clock)):

            async def draining() -> bool:
                return DRAINING in (await marks(world)).values()

            await world.until("a node is being drained", draining)
        assert DRAINING not in (await marks(world)).values()


async def test_a_gang_moves_as_a_whole_where_that_is_asked_for(world: World) -> None:
    """Two pods of half a core that must run together on n0, and two of one core on n1."""

    async def run(name: str, cpu: str, memory: str, **more: Any) -> None:
        body = template(cpu, memory, annotations={"sim.cotide.dev/lone-seconds": "100000"})
        spec = {"completions": 2, "parallelism": 2, "requestedSeconds": 100_000, "template": body, **more}
        head = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "metadata": {"name": name}}
        await world.client.create(JOBS, head | {"spec": spec})

    async def only(name: str, other: str) -> None:
        for node, closed in ((name, None), (other, True)):
            await world.client.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": closed}})

    async def gang() -> set[str]:
        return {node for name, node in (await world.placed()).items() if name.startswith("train-")}

    async with nodes(world, 2) as clock:
        async with world.operator(watching(clock).replace("enabled: true", "enabled: false")):
            await only("n0", "n1")
            await run("train", "500m", "32Mi", gang={})
            await until_ready(world, 2)
            await only("n1", "n0")
            await run("rest", "1", "64Mi")
            await until_ready(world, 4)
            await world.client.patch("/api/v1/nodes/n0", {"spec": {"unschedulable": None}})
            assert await gang() == {"n0"}
        async with world.operator(watching(clock, ", moveGangs: true, movesAtOnce: 2")):
            await until_marks(world, FREED)
            await until_ready(world, 4)
            assert await gang() == {"n1"}
        job = await world.client.get(f"{JOBS}/train")
    assert job["status"]["phase"] == "Running"
    assert not job["status"].get("failed"), "to be moved is no failure"
