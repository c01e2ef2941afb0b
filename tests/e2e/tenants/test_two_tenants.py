"""Nothing that one tenant may write changes another's readings, statuses or events, and no name comes across."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web
from manifests import our_pod_manifest
from operator_world import ALONE, World

from cotide_core.limits import MAX_SECONDS
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.timestamps import parse_timestamp

MINE, THEIRS = "team-a", "team-b"
RATE, LATENCY = 700.0, 3.0
Object = dict[str, Any]


@asynccontextmanager
async def prometheus() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve what is measured of B; whatever else is asked for is answered with lies about B.

    Yields its url and the queries that it was asked.
    """
    asked: list[str] = []

    async def query(request: web.Request) -> web.Response:
        text = parse_qs(await request.text()).get("query", [request.query.get("query", "")])[0]
        asked.append(text)
        value = LATENCY if "latency" in text else RATE
        if f'namespace="{THEIRS}"' not in text:
            value = 1e9 if "latency" in text else 0.0
        if text.startswith("timestamp("):
            value = time.time()
        labels = [{"namespace": THEIRS, "pod": f"web-{index}"} for index in range(2)]
        result = [{"metric": label, "value": [time.time(), str(value)]} for label in labels]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    app = web.Application()
    app.router.add_route("*", "/api/v1/query", query)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


def container(cpu: str = "100m", **requests: str) -> Object:
    return {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, **requests}}}


def pod(name: str, cpu: str = "100m", **metadata: Any) -> Object:
    """A pod of ours that a quota takes: it names what it uses."""
    return our_pod_manifest(name, spec={"containers": [container(cpu)]}, **metadata)


def ours(kind: str, name: str, **spec: Any) -> Object:
    return {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def template(**annotations: str) -> Object:
    return {
        "metadata": {"labels": {"app": "web"}, "annotations": annotations},
        "spec": {"containers": [container()]},
    }


def path(namespace: str, plural: str) -> str:
    group = "/api/v1" if plural in ("pods", "events") else "/apis/cotide.dev/v1alpha1"
    return f"{group}/namespaces/{namespace}/{plural}"


def service() -> Object:
    return ours("Workload", "web", replicas=2, template=template(), qos={"latencyP95Milliseconds": 10})


def hostile(uids: dict[str, str]) -> list[tuple[str, Object]]:
    """What A writes; `uids` are of B's objects."""
    owner = {"apiVersion": "cotide.dev/v1alpha1", "controller": True, "blockOwnerDeletion": True}
    of_workload = {**owner, "kind": "Workload", "name": "web", "uid": uids["workload"]}
    of_job = {**owner, "kind": "Job", "name": "count", "uid": uids["job"]}
    note = json.dumps({"v": 1, "uid": uids["pod"], "at": 0, "node": "n1", "reason": "Scheduled", "message": "x"})
    lying = {"rpsQuery": "lies", "latencyQuery": "latency_lies", "latencyP95Milliseconds": 0.001}
    reclaimed = pod("reclaims", labels={"cotide.dev/class": "online"})
    reclaimed["spec"]["containers"] = [container(**{"cotide.dev/reclaimed-cpu": "100"})]
    return [
        ("workloads", ours("Workload", "web", selector={"matchLabels": {"app": "web"}}, qos=lying)),
        ("workloads", ours("Workload", "every", selector={"matchExpressions": []}, exclusive=True, qos=lying)),
        ("jobs", ours("Job", "count", **{"class": "batch"}, completions=5, parallelism=5, priority=1000,
                      type="sort", template=template())),
        ("pods", pod("web-0", labels={"app": "web"}, ownerReferences=[of_workload])),
        ("pods", pod("web-1", labels={"app": "web", "cotide.dev/job": "count"}, ownerReferences=[of_job],
                     finalizers=["cotide.dev/job-tracking"])),
        ("pods", pod("large", "64")),
        ("pods", pod("note", annotations={"cotide.dev/decision": note})),
        ("pods", pod("nest", annotations={"cotide.dev/decision": '{"v":1,"uid":"u","x":' + "[" * 10_000})),
        ("pods", pod("huge", annotations={"cotide.dev/input-size": "1e30", "cotide.dev/type": "sort",
                                          "cotide.dev/requested-seconds": "1e12"},
                     labels={"cotide.dev/class": "gratis"})),
        ("pods", pod("endless", "9223372036854775807")),
        ("pods", reclaimed),
        *[("pods", pod(f"many-{index}", labels={"cotide.dev/class": "batch"})) for index in range(10)],
    ]  # fmt: skip


async def written(client: KubeClient, where: str, body: Object) -> bool:
    """Write an object; False where the server refuses it as bad or forbidden."""
    try:
        await client.create(where, body)
    except ApiError as error:
        if error.status not in (400, 403, 413, 422):
            raise
        return False
    return True


async def seen(client: KubeClient, namespace: str) -> Object:
    """All that a reader in a namespace sees, but for what changes with each write of the same."""
    found: Object = {}
    for plural in ("pods", "jobs", "workloads"):
        for one in await client.list(path(namespace, plural)):
            metadata = one["metadata"]
            for field in ("resourceVersion", "managedFields"):
                metadata.pop(field, None)
            found[f"{plural} {metadata['name']}"] = one
    events = await client.list(path(namespace, "events"))
    found["events"] = sorted((event["reason"], event["involvedObject"]["name"], event["message"]) for event in events)
    return found


async def test_nothing_that_a_tenant_may_write_changes_what_another_sees(world: World) -> None:
    await world.nodes(2)
    for namespace in (MINE, THEIRS):
        with contextlib.suppress(ApiError):  # there already, of an earlier test
            await world.client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    await world.server.until_accounts(world.client, MINE, THEIRS)
    queries = "workloadQueries: {rps: rps, latency: latency, free: {'*': enforced}}"
    async with prometheus() as (url, asked):
        text = (
            f"{ALONE}metricsSource: {{prometheus: {{url: '{url}', {queries}}}, intervalSeconds: 0.2,"
            " staleAfterSeconds: 2}\n"
        )
        async with world.operator(text):
            mine = KubeClient(await world.server.tenant(world.client, MINE))
            theirs = KubeClient(await world.server.tenant(world.client, THEIRS))
            async with mine, theirs:
                await theirs.create(path(THEIRS, "workloads"), service())
                job = {"class": "batch", "completions": 2, "parallelism": 2, "type": "sort", "template": template()}
                await theirs.create(path(THEIRS, "jobs"), ours("Job", "count", **job))
                await theirs.create(path(THEIRS, "pods"), pod("large", "64"))
                before = await world.server.until("B has settled", lambda: settled(world, theirs))
                uids = {
                    "workload": before["workloads web"]["metadata"]["uid"],
                    "job": before["jobs count"]["metadata"]["uid"],
                    "pod": before["pods large"]["metadata"]["uid"],
                }
                made = sum([await written(mine, path(MINE, plural), body) for plural, body in hostile(uids)])
                assert made >= 15, "most of it is legal"

                async def looked_at() -> bool:
                    pods = {one["metadata"]["name"]: one for one in await world.client.list(path(MINE, "pods"))}
                    noted = [
                        one for one in pods.values() if "cotide.dev/decision" in one["metadata"].get("annotations", {})
                    ]
                    return pods["many-9"] in noted and pods["large"] in noted

                await world.server.until("A's objects are looked at", looked_at)
                answered = len(asked)
                await world.server.until("and some readings later", lambda: len(asked) > answered + 50)
                assert any("lies" in text for text in asked), "A's own queries were asked, and answered with lies"
                assert await seen(world.client, THEIRS) == before

                reported = await seen(world.client, MINE)
                for one in reported.values():
                    assert THEIRS not in json.dumps(one)


async def test_a_run_time_that_can_not_be_leaves_anothers_waiting_job_its_looks(world: World) -> None:
    """A runs a pod that wants to run for 30,000 years where B's Job waits for the room."""
    await world.nodes(1, cpu="4")
    for namespace in (MINE, THEIRS):
        with contextlib.suppress(ApiError):  # there already, of an earlier test
            await world.client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    await world.server.until_accounts(world.client, MINE, THEIRS)
    async with world.operator():
        mine = KubeClient(await world.server.tenant(world.client, MINE))
        theirs = KubeClient(await world.server.tenant(world.client, THEIRS))
        async with mine, theirs:
            # 3 of 4 cores are A's, and each pod of B wants 2: B's next start is the end of A's pod.
            forever = {"cotide.dev/requested-seconds": "1e12"}
            body = pod("forever", "3", labels={"cotide.dev/class": "batch"}, annotations=forever)
            await mine.create(path(MINE, "pods"), body)

            async def runs() -> bool:
                return bool((await world.client.get(f"{path(MINE, 'pods')}/forever"))["spec"].get("nodeName"))

            await world.server.until("A's pod has the node", runs)
            count = f"{path(THEIRS, 'jobs')}/count"
            wanted = template()
            wanted["spec"]["containers"] = [container("2")]
            job = {"class": "batch", "completions": 2, "parallelism": 1, "type": "sort", "template": wanted}
            await theirs.create(path(THEIRS, "jobs"), ours("Job", "count", **job))

            async def reported() -> float | None:
                start = (await theirs.get(count)).get("status", {}).get("predictedStart")
                return None if start is None else parse_timestamp(start)

            start = await world.server.until("B's Job says when it may start", reported)
            # What is asked for beyond 10^9 seconds counts with them, from when A's pod got its node.
            assert start <= time.time() + MAX_SECONDS
            await theirs.patch(count, {"spec": {"parallelism": 2}})

            async def looked_at() -> bool:
                pods = [one["metadata"]["name"] for one in await theirs.list(path(THEIRS, "pods"))]
                status = (await theirs.get(count))["status"]
                return len(pods) == 2 and status["observedGeneration"] == 2

            await world.server.until("B's Job is looked at again", looked_at)


async def settled(world: World, theirs: KubeClient) -> Object | None:
    """What B sees once all its pods are decided on, noted and measured, twice in a row; None before."""
    first = await seen(world.client, THEIRS)
    pods = [one for key, one in first.items() if key.startswith("pods ")]
    placed = [one for one in pods if one["spec"].get("nodeName")]
    status = (first.get("workloads web") or {}).get("status", {})
    measured = (status.get("rps"), status.get("latencyP95Milliseconds")) == (2 * RATE, LATENCY)
    reasons = [event[0] for event in first["events"]]
    if len(pods) != 5 or len(placed) < 2 or not measured or reasons.count("FailedScheduling") < 1:
        return None
    if reasons.count("Scheduled") != len(placed):
        return None
    await asyncio.sleep(1.5)  # longer than the pauses of the writers: what is still to come has come
    return first if await seen(world.client, THEIRS) == first else None
