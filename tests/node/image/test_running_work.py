"""Work that was there before an operator: the image's operator takes it up, and starts nothing twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

from containers import batch_pod, job, shell
from control_plane import ControlPlane
from manifests import workload_manifest
from overlays import DEPLOYMENT, NAME, NAMES, Overlay, overlay_of

from cotide_kube.client import KubeClient

FIRST, JOBS = 60, 100
"""Jobs before the operator is away, and in all: the others come while its image changes."""
SHORT, LONG = "sleep 1", "sleep 120"
LASTING = 4
"""Jobs that run on over most of what happens to the operator."""
SECONDS = 300.0
"""For the hundred Jobs, of which kubelets start about one a second here; chosen."""


async def succeeded(overlay: Overlay) -> int:
    found = await overlay.client.list(overlay.cluster.jobs)
    return sum(one.get("status", {}).get("phase") == "Succeeded" for one in found)


async def until_succeeded(overlay: Overlay, most: int) -> None:
    async def enough() -> bool:
        return await succeeded(overlay) >= most

    await overlay.cluster.until(f"{most} Jobs have succeeded", enough, SECONDS)


async def uids(overlay: Overlay) -> dict[str, str]:
    """The pods that there are, with what the runtime calls their containers."""
    return {
        pod["metadata"]["name"]: f"{pod['metadata']['uid']} {status[0].get('containerID')}"
        for pod in await overlay.client.list(overlay.cluster.pods)
        if (status := pod["status"].get("containerStatuses"))
        and ("running" in status[0]["state"] or "terminated" in status[0]["state"])
    }


async def services(overlay: Overlay) -> None:
    """Two pods that kube-scheduler placed, and a batch pod of nobody's; the first are a Workload's from now on."""
    for name in ("web-a", "web-b"):
        pod = batch_pod(name, shell("sleep 3600"))
        pod["metadata"]["labels"] = {"app": "web"}
        del pod["spec"]["schedulerName"]
        await overlay.client.create(overlay.cluster.pods, pod)
    await overlay.client.create(overlay.cluster.pods, batch_pod("alone", shell("sleep 3600")))
    service = workload_manifest("web", namespace="default", selector={"matchLabels": {"app": "web"}})
    await overlay.client.create(overlay.cluster.path("workloads", "cotide.dev/v1alpha1"), service)

    async def runs() -> bool:
        return {"web-a", "web-b", "alone"} <= (await uids(overlay)).keys()

    await overlay.cluster.until("the services run", runs)


async def starts(overlay: Overlay) -> Counter[str]:
    """How often kubelets say that they started a container of each pod."""
    found: Counter[str] = Counter()
    for event in await overlay.client.list(overlay.cluster.path("events")):
        if event["reason"] == "Started" and event["involvedObject"]["kind"] == "Pod":
            found[event["involvedObject"]["name"]] += event.get("count") or 1
    return found


def faults(jobs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the status of a Job says of any pod of its that was not the first one."""
    fields = ("failures", "evictions", "retriedIndexes")
    recorded = {one["metadata"]["name"]: {field: one["status"].get(field) for field in fields} for one in jobs}
    return {name: said for name, said in recorded.items() if any(said.values())}


async def test_a_hundred_jobs_survive_a_kill_an_absence_and_another_image_and_each_is_started_once(
    installed: ControlPlane, client: KubeClient
) -> None:
    async with overlay_of("kind", installed, client) as overlay:
        await services(overlay)
        for number in range(FIRST):
            script = LONG if number < LASTING else SHORT
            await client.create(overlay.cluster.jobs, job(f"count-{number}", shell(script)))
        await until_succeeded(overlay, 10)
        # Killed at once, as by a lost node: what it was about to do is nobody's.
        (killed,) = await overlay.pods()
        before = await uids(overlay)
        overlay.kubectl("delete", "pod", killed["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
        await overlay.until_replaced({killed["metadata"]["uid"]})
        await until_succeeded(overlay, 20)
        # Away for as long as it takes what runs to end, unwatched.
        overlay.kubectl("scale", f"deployment/{NAME}", "--replicas=0")

        async def short_ones_ended() -> bool:
            running = [
                pod["metadata"]["name"]
                for pod in await client.list(overlay.cluster.pods, {"labelSelector": "cotide.dev/job"})
                if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed")
            ]
            return not await overlay.pods() and all(int(name.split("-")[1]) < LASTING for name in running)

        await overlay.cluster.until("nothing short runs, and no operator", short_ones_ended)
        overlay.kubectl("scale", f"deployment/{NAME}", "--replicas=1")
        await overlay.until_ready("an operator is there again")
        await until_succeeded(overlay, FIRST - LASTING)
        # Another image, as at an upgrade, with work under way.
        for number in range(FIRST, JOBS):
            await client.create(overlay.cluster.jobs, job(f"count-{number}", shell(SHORT)))
        older = {pod["metadata"]["uid"] for pod in await overlay.pods()}
        images = [one["image"] for one in (await client.get(DEPLOYMENT))["spec"]["template"]["spec"]["containers"]]
        (other,) = [name for name in NAMES if not name.endswith(images[0].removeprefix("docker.io/library/"))]
        overlay.kubectl("set", "image", f"deployment/{NAME}", f"operator={other}")
        await overlay.until_replaced(older)
        await until_succeeded(overlay, JOBS)
        assert "Traceback" not in await overlay.logs()

        jobs = await client.list(overlay.cluster.jobs)
        pods = await client.list(overlay.cluster.pods, {"labelSelector": "cotide.dev/job"})
        assert faults(jobs) == {}
        assert sorted(pod["metadata"]["name"] for pod in pods) == sorted(f"count-{number}-0" for number in range(JOBS))
        assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods} == {0}
        started = await starts(overlay)
        assert {name: times for name, times in started.items() if times != 1} == {}
        assert len([name for name in started if name.startswith("count-")]) == JOBS
        after = await uids(overlay)
        assert {name: after.get(name) for name in before} == before
        service = await client.get(overlay.cluster.path("workloads", "cotide.dev/v1alpha1") + "/web")
        assert service["status"]["ready"] == "2/2"
        for name in ("web-a", "web-b", "alone"):
            await client.delete(f"{overlay.cluster.pods}/{name}", grace_seconds=0)
