"""Objects that one account may write in its own namespace, and everything else goes on, before and after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from operator_world import ALONE, World
from servers import Server

from cotide_kube.client import KubeClient

JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
DEEP = b'{"a":' * 2000 + b"1" + b"}" * 2000


@pytest.fixture
async def own(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        yield World(server, client)


def pill(name: str, *, annotations: dict[str, str] | None = None, memory: str = "1Mi", scheduler: str = "cotide"):
    container = {"name": "c", "image": "x", "resources": {"requests": {"memory": memory}}}
    metadata = {"name": name, "annotations": annotations or {}}
    spec = {"schedulerName": scheduler, "containers": [container, {**container, "name": "d"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_bad_objects_stop_nobody_and_say_so_themselves(own: World) -> None:
    await own.nodes(1, cpu="8")
    deep_job = (
        b'{"apiVersion":"cotide.dev/v1alpha1","kind":"Job","metadata":{"name":"deep"},"spec":{"template":{"spec":'
        b'{"containers":[{"name":"c","image":"i","x":' + DEEP + b"}]}}}}"
    )
    async with own.operator(ALONE) as operator:
        await own.client.request("POST", JOBS, deep_job)
        note = '{"v":1,"uid":"u","x":' + "[" * 10_000
        for body in (
            pill("foreign", annotations={"cotide.dev/decision": note}, scheduler="other"),
            pill("huge", memory="8Ei"),
            pill("sized", annotations={"cotide.dev/input-size": "1e30", "cotide.dev/requested-seconds": "1e12"}),
            pill("typed", annotations={"cotide.dev/type": "t" * 100_000}),
        ):
            await own.client.create(PODS, body)
        await own.pods(2, prefix="good")
        await own.until_placed(4)
        assert set(await own.placed()) == {"good0", "good1", "sized", "typed"}
        await own.until("the Job is quarantined", lambda: operator.cache.quarantine.get("jobs", "default/deep"))

        async def is_said() -> bool:
            events = await own.client.list("/api/v1/namespaces/default/events")
            return any(
                (event["reason"], event["involvedObject"]["name"]) == ("Misconfigured", "deep") for event in events
            )

        await own.until("an event says so", is_said)

        async def conditioned() -> bool:
            body = await own.client.request("GET", f"{JOBS}/deep")
            return b'"reason":"Misconfigured"' in body and b"64 levels" in body

        await own.until("a condition says so", conditioned)
        await own.until("kopf has started", lambda: operator._kopf.ready)
    async with own.operator(ALONE) as operator:  # the next replica lists the same objects
        await own.pods(1, prefix="later")
        await own.until_placed(5)
        await own.until("kopf has started", lambda: operator._kopf.ready)
        replaced = deep_job.replace(DEEP, b"1")
        await own.client.delete(f"{JOBS}/deep")
        await own.client.request("POST", JOBS, replaced)
        await own.until_placed(6)  # the corrected Job's pod
        assert operator.cache.quarantine.get("jobs", "default/deep") is None
