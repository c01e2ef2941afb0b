"""Pods of Workloads that a kubelet can't start wait for ever: the Workload says which, where and why."""

from __future__ import annotations

from typing import Any

from controllers_world import PODS, TEMPLATE, WORKLOADS, World, condition, workload, world

SELECTED = {"matchLabels": {"app": "web"}}


async def waits(one: World, name: str, node: str, reason: str, message: str = "") -> None:
    """Bind a pod; its kubelet says what its container waits for."""
    found = await one.client.get(f"{PODS}/{name}")
    if not found["spec"].get("nodeName"):
        assert (await one.client.bind("default", name, found["metadata"]["uid"], node)).ok
    state = {"waiting": {"reason": reason, "message": message}}
    await one.set_status(name, phase="Pending", containerStatuses=[{"name": "work", "state": state}])


async def until_started(one: World, status: str, reason: str) -> str:
    def holds(found: dict[str, Any]) -> bool:
        started = condition(found, "PodsStarted")
        return (started.get("status"), started.get("reason")) == (status, reason)

    return str(condition(await one.until_status(f"{WORKLOADS}/web", holds), "PodsStarted")["message"])


async def test_its_own_pods_are_named_until_they_run_and_none_is_deleted() -> None:
    async with world() as one:
        await one.client.create(WORKLOADS, workload(template=TEMPLATE, replicas=2))
        before = await one.until_pods("web-0", "web-1")
        await one.run_pod("web-0")
        await waits(one, "web-1", "node-b", "ErrImagePull", "not found")
        assert await until_started(one, "False", "CannotStart") == (
            "1 pod can't be started: web-1 on node-b: ErrImagePull: not found"
        )
        status = (await one.client.get(f"{WORKLOADS}/web"))["status"]
        assert (status["ready"], condition(status, "Ready")["status"]) == ("1/2", "False")
        await one.run_pod_status("web-1")
        await until_started(one, "True", "Started")
        uids = {name: pod["metadata"]["uid"] for name, pod in (await one.pods()).items()}
        assert uids == {name: pod["metadata"]["uid"] for name, pod in before.items()}


async def test_so_are_the_pods_that_it_selects() -> None:
    async with world() as one:
        for name in ("web-x", "web-y"):
            body = {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": TEMPLATE["spec"]}
            await one.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body})
            await waits(one, name, "node-a", "CreateContainerConfigError", 'secret "late" not found')
        await one.client.create(WORKLOADS, workload(selector=SELECTED))
        message = await until_started(one, "False", "CannotStart")
        assert message.startswith("2 pods can't be started: web-x on node-a: CreateContainerConfigError: secret")


async def test_one_whose_containers_are_long_created_is_named_too() -> None:
    async with world() as one:
        await one.kill()
        one.start(speed=300.0)  # a minute in 0.2 s
        await one.client.create(WORKLOADS, workload(template=TEMPLATE))
        await one.until_pods("web-0")
        await waits(one, "web-0", "node-a", "ContainerCreating")
        assert await until_started(one, "False", "NotStarted") == (
            "1 pod not started yet: web-0 on node-a: containers are being created"
        )


async def test_a_workload_without_pods_waits_for_none() -> None:
    async with world() as one:
        await one.client.create(WORKLOADS, workload(template=TEMPLATE))
        await one.until_pods("web-0")
        await waits(one, "web-0", "node-a", "ErrImagePull")
        await until_started(one, "False", "CannotStart")
        await one.client.patch(f"{WORKLOADS}/web", {"spec": {"replicas": 0}})
        await one.client.delete(f"{PODS}/web-0", grace_seconds=0)
        await until_started(one, "True", "Started")
