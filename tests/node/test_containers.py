"""What real kubelets do with what Cotide binds: containers run, fail, are killed, resized, and refused."""

from __future__ import annotations

from typing import Any

import pytest
from containers import batch_pod, job, shell
from real_cluster import ALONE, RealCluster
from real_nodes import NodeCluster

QUICK = ALONE + "queue: {backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}\n"


async def pod_of(cluster: RealCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = await cluster.client.get(f"{cluster.pods}/{name}")
    return found


async def until_phase(cluster: RealCluster, name: str, *phases: str) -> dict[str, Any]:
    async def reached() -> dict[str, Any] | None:
        found = await pod_of(cluster, name)
        return found if found["status"].get("phase") in phases else None

    found: dict[str, Any] = await cluster.until(f"{name} is {' or '.join(phases)}", reached)
    return found


async def test_a_hundred_jobs_of_real_containers_succeed(cluster: RealCluster) -> None:
    async with cluster.operator(QUICK):
        for number in range(100):
            body = job(f"count-{number}", shell("echo done", requests={"cpu": "100m", "memory": "16Mi"}))
            await cluster.client.create(cluster.jobs, body)

        async def all_succeeded() -> bool:
            phases = [one.get("status", {}).get("phase") for one in await cluster.client.list(cluster.jobs)]
            return phases == ["Succeeded"] * 100

        await cluster.until("a hundred Jobs have succeeded", all_succeeded, seconds=240)


async def test_a_job_whose_container_fails_says_so_and_keeps_its_exit_code(cluster: RealCluster) -> None:
    async with cluster.operator(QUICK):
        await cluster.client.create(cluster.jobs, job("broken", shell("exit 3"), backoffLimit=1))

        async def failed() -> bool:
            return await cluster.phase("broken") == "Failed"

        await cluster.until("the Job has failed", failed)
        pods = await cluster.client.list(cluster.pods)
        codes = [pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for pod in pods]
        assert codes == [3, 3]  # the first try and the one that the limit allows


async def test_a_container_above_its_memory_limit_is_killed_and_its_job_fails(cluster: RealCluster) -> None:
    greedy = shell("dd if=/dev/zero of=/dev/null bs=200M count=1; exit $?")
    greedy["resources"] = {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "32Mi"}}
    async with cluster.operator(QUICK):
        await cluster.client.create(cluster.jobs, job("greedy", greedy, backoffLimit=0))

        async def failed() -> bool:
            return await cluster.phase("greedy") == "Failed"

        await cluster.until("the Job has failed", failed)
        (pod,) = await cluster.client.list(cluster.pods)
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


async def test_init_and_sidecar_containers_count_and_run_in_order(cluster: RealCluster) -> None:
    spec = {
        "initContainers": [
            shell("test ! -e /shared/first && echo 1 > /shared/first", name="first", volumeMounts=[SHARED]),
            shell("trap 'exit 0' TERM; touch /shared/side; while :; do sleep 1; done", name="side",
                  restartPolicy="Always", volumeMounts=[SHARED]),
        ],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    }  # fmt: skip
    script = "test -e /shared/first && for i in 1 2 3 4 5; do test -e /shared/side && exit 0; sleep 1; done; exit 9"
    main = shell(script, volumeMounts=[SHARED])
    async with cluster.operator(QUICK):
        await cluster.client.create(cluster.pods, batch_pod("steps", main, **spec))
        assert (await until_phase(cluster, "steps", "Succeeded", "Failed"))["status"]["phase"] == "Succeeded"


SHARED = {"name": "shared", "mountPath": "/shared"}


async def test_a_gated_pod_waits_until_its_gate_is_taken_away(cluster: RealCluster) -> None:
    async with cluster.operator(QUICK):
        gated = batch_pod("gated", shell("exit 0"), schedulingGates=[{"name": "example.org/wait"}])
        await cluster.client.create(cluster.pods, gated)
        await cluster.client.create(cluster.pods, batch_pod("open", shell("exit 0")))
        await until_phase(cluster, "open", "Succeeded")
        assert "nodeName" not in (await pod_of(cluster, "gated"))["spec"]
        patch = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.org/wait"}]}}
        await cluster.client.patch(f"{cluster.pods}/gated", patch, "strategic")
        await until_phase(cluster, "gated", "Succeeded")


async def test_a_missing_image_keeps_a_pod_waiting_on_its_node_and_no_other_pod(cluster: RealCluster) -> None:
    async with cluster.operator(QUICK):
        missing = {**shell("exit 0"), "image": "cotide.test/missing:1"}
        await cluster.client.create(cluster.pods, batch_pod("missing", missing))
        await cluster.client.create(cluster.pods, batch_pod("other", shell("exit 0")))
        await until_phase(cluster, "other", "Succeeded")

        async def waiting() -> bool:
            status = (await pod_of(cluster, "missing"))["status"].get("containerStatuses")
            return bool(status) and status[0]["state"].get("waiting", {}).get("reason") == "ErrImageNeverPull"

        await cluster.until("the kubelet says that there is no image", waiting)


async def test_a_pod_is_resized_both_ways_without_a_restart_and_too_large_a_wish_is_infeasible(
    cluster: RealCluster,
) -> None:
    async with cluster.operator(QUICK):
        body = batch_pod("grows", shell("sleep 600", requests={"cpu": "100m", "memory": "32Mi"}))
        await cluster.client.create(cluster.pods, body)
        await until_phase(cluster, "grows", "Running")

        async def resize(cpu: str) -> None:
            wish = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
            await cluster.client.patch(f"{cluster.pods}/grows/resize", wish, "strategic")

        async def holds(cpu: str) -> bool:
            (status,) = (await pod_of(cluster, "grows"))["status"]["containerStatuses"]
            return bool(status["resources"]["requests"]["cpu"] == cpu and status["restartCount"] == 0)

        await resize("200m")
        await cluster.until("it holds 200m", lambda: holds("200m"))
        await resize("50m")
        await cluster.until("it holds 50m", lambda: holds("50m"))
        await resize("1000")

        async def infeasible() -> bool:
            conditions = (await pod_of(cluster, "grows"))["status"]["conditions"]
            return any(
                condition["type"] == "PodResizePending" and condition["reason"] == "Infeasible"
                for condition in conditions
            )

        await cluster.until("the kubelet says Infeasible", infeasible)
        # A wish that its node will never grant does not count: a pod that needs the rest of both nodes still fits.
        await cluster.client.create(cluster.pods, batch_pod("beside", shell("exit 0")))
        await until_phase(cluster, "beside", "Succeeded")


@pytest.mark.parametrize("frozen", [False, True])
async def test_a_node_that_stops_gets_no_pods_and_gets_them_again_when_it_is_back(
    cluster: RealCluster, node_cluster: NodeCluster, frozen: bool
) -> None:
    first, second = node_cluster.nodes

    async def tainted() -> bool:
        return bool((await cluster.client.get(f"/api/v1/nodes/{first.name}"))["spec"].get("taints"))

    async with cluster.operator(QUICK):
        if frozen:
            first.freeze_kubelet()
        else:
            first.stop_kubelet()
        try:
            await cluster.until("the node is tainted", tainted)
            for number in range(6):
                await cluster.client.create(cluster.pods, batch_pod(f"p{number}", shell("exit 0")))
            for number in range(6):
                found = await until_phase(cluster, f"p{number}", "Succeeded")
                assert found["spec"]["nodeName"] == second.name
        finally:
            if frozen:
                first.thaw_kubelet()
            else:
                first.start_kubelet()

        async def open_again() -> bool:
            return not await tainted()

        await cluster.until("the node is open again", open_again)
        selector = {"kubernetes.io/hostname": first.name}
        await cluster.client.create(cluster.pods, batch_pod("back", shell("exit 0"), nodeSelector=selector))
        await until_phase(cluster, "back", "Succeeded")
