"""Gangs of Kubernetes 1.36: pods with ``spec.schedulingGroup``, and PodGroups of ``scheduling.k8s.io/v1alpha2``."""

from __future__ import annotations

from typing import Any

import aiohttp
from manifests import our_pod_manifest
from operator_world import ALONE, QUICK_QUEUE
from real_cluster import RealCluster
from real_gangs import SIZE, moves_whole, start_whole, until_told
from rights import Used

QUICK = ALONE + QUICK_QUEUE
MEMBER = {"schedulerName": "cotide", "schedulingGroup": {"podGroupName": "train"}}


async def make_group(cluster: RealCluster, policy: dict[str, Any], name: str = "train") -> None:
    body = {"kind": "PodGroup", "metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}
    await cluster.client.create(cluster.path("podgroups", "scheduling.k8s.io/v1alpha2"), body)


async def make_members(cluster: RealCluster, *names: str, **parts: Any) -> None:
    for name in names:
        body = our_pod_manifest(name, "1", "64Mi", cls="batch", spec=MEMBER, **parts)
        await cluster.client.create(cluster.pods, body)


async def until_placed(cluster: RealCluster, *names: str) -> None:
    async def so() -> bool:
        return (await cluster.placed()).keys() == set(names)

    await cluster.until(f"{', '.join(names)} are on nodes", so)


async def until_said(cluster: RealCluster, status: str, name: str = "train") -> dict[str, Any]:
    """Wait for what a group says of its scheduling, and return it."""
    path = f"{cluster.path('podgroups', 'scheduling.k8s.io/v1alpha2')}/{name}"

    async def said() -> dict[str, Any] | None:
        conditions = ((await cluster.client.get(path)).get("status") or {}).get("conditions") or []
        found = [
            condition
            for condition in conditions
            if condition["type"] == "PodGroupScheduled" and condition["status"] == status
        ]
        return found[0] if found else None

    found: dict[str, Any] = await cluster.until(f"PodGroupScheduled of {name} is {status}", said)
    return found


async def shown(cluster: RealCluster) -> dict[str, str]:
    """Return what ``kubectl get podgroups`` shows as the status of each."""
    path = cluster.path("podgroups", "scheduling.k8s.io/v1alpha2")
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    who = cluster.plane.admin
    async with aiohttp.ClientSession() as session:
        answer = await session.get(who.server + path, headers={"Accept": table}, ssl=who.ssl_context() or True)
        read = await answer.json()
    column = [one["name"] for one in read["columnDefinitions"]].index("Status")
    return {row["cells"][0]: row["cells"][column] for row in read["rows"]}


async def test_a_pod_group_of_the_server_says_how_large_its_gang_is_and_whether_it_is_one(cluster: RealCluster) -> None:
    used = Used(cluster)
    async with cluster.nodes(2, "--cpu", "4", "--name-prefix", "group-"), cluster.operator(QUICK):
        await make_group(cluster, {"gang": {"minCount": SIZE}})
        await start_whole(cluster, spec=MEMBER)
        await moves_whole(cluster)
        await make_group(cluster, {"basic": {}}, "no-gang")
        single = {"schedulerName": "cotide", "schedulingGroup": {"podGroupName": "no-gang"}}
        await cluster.client.create(cluster.pods, our_pod_manifest("alone", "1", "64Mi", cls="batch", spec=single))
        await until_placed(cluster, "alone", *(f"member-{number}" for number in range(SIZE)))
        await until_said(cluster, "True")
        await until_said(cluster, "True", "no-gang")
    assert ("scheduling.k8s.io", "podgroups", "watch", "") in used.rights()
    assert ("scheduling.k8s.io", "podgroups/status", "patch", "") in used.rights()
    assert used.missed() == set()


async def test_members_wait_for_their_group_and_stay_when_one_does_not_come_back_in_time(cluster: RealCluster) -> None:
    names = [f"member-{number}" for number in range(SIZE)]
    patience = {"annotations": {"cotide.dev/gang-timeout-seconds": "2"}}
    async with cluster.nodes(1, "--cpu", "4", "--name-prefix", "room-"), cluster.operator(QUICK):
        await make_members(cluster, *names, **patience)
        await until_told(cluster, "in a gang policy of a PodGroup train")
        assert await cluster.placed() == {}
        await make_group(cluster, {"gang": {"minCount": SIZE}})
        await until_placed(cluster, *names)

        await cluster.client.delete(f"{cluster.pods}/member-0", grace_seconds=0)
        await cluster.client.create(cluster.pods, our_pod_manifest("blocker", "2", "64Mi", cls="batch"))
        await until_placed(cluster, "member-1", "member-2", "blocker")
        await make_members(cluster, "member-3", **patience)
        await until_placed(cluster, "member-1", "member-2", "blocker")  # the time-out is one for starting


async def test_an_indexed_job_of_the_server_starts_whole_and_a_pod_that_failed_comes_back(cluster: RealCluster) -> None:
    jobs = cluster.path("jobs", "batch/v1")
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    pod = {"schedulerName": "cotide", "restartPolicy": "Never", "containers": [container]}
    spec = {"completionMode": "Indexed", "completions": SIZE, "parallelism": SIZE, "template": {"spec": pod}}

    async def members() -> dict[str, dict[str, Any]]:
        """Living pods of the Job by index."""
        return {
            one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: one
            for one in await cluster.client.list(cluster.pods, {"labelSelector": "job-name=train"})
            if one["status"].get("phase") in ("Pending", "Running")
        }

    async with cluster.nodes(1, "--cpu", "4", "--name-prefix", "job-"), cluster.operator(QUICK):
        blocker = our_pod_manifest("blocker", "2", "64Mi", cls="batch")
        await cluster.client.create(cluster.pods, blocker)
        await until_placed(cluster, "blocker")
        await cluster.client.create(jobs, {"metadata": {"name": "train"}, "spec": spec})
        await until_told(cluster, "waits for room for all at once")
        assert (await cluster.placed()).keys() == {"blocker"}, "two of three would fit"
        assert all("schedulingGroup" in member["spec"] for member in (await members()).values())
        await cluster.client.delete(f"{cluster.pods}/blocker", grace_seconds=0)

        async def running() -> bool:
            phases = [member["status"].get("phase") for member in (await members()).values()]
            return phases == ["Running"] * SIZE

        await cluster.until("all of the Job runs", running)
        before = await members()
        for index, phase in (("0", "Succeeded"), ("1", "Failed")):
            here = f"{cluster.pods}/{before[index]['metadata']['name']}/status"
            await cluster.client.patch(here, {"status": {"phase": phase}})

        async def replaced() -> bool:
            now = (await members()).get("1")
            return (
                now is not None
                and now["metadata"]["uid"] != before["1"]["metadata"]["uid"]
                and (now["status"].get("phase") == "Running")
            )

        await cluster.until("another runs in the place of the one that failed", replaced)


async def test_a_group_says_why_it_finds_no_room_and_then_that_it_is_scheduled(cluster: RealCluster) -> None:
    names = [f"member-{number}" for number in range(SIZE)]
    async with cluster.nodes(1, "--cpu", "4", "--name-prefix", "said-"):
        async with cluster.operator(QUICK):
            await cluster.client.create(cluster.pods, our_pod_manifest("blocker", "2", "64Mi", cls="batch"))
            await until_placed(cluster, "blocker")
            await make_group(cluster, {"gang": {"minCount": SIZE}})
            await make_members(cluster, *names[:-1])
            await until_told(cluster, f"2 of {SIZE} are present and can start")
            assert await shown(cluster) == {"train": "Pending"}
            await make_members(cluster, names[-1])
            said = await until_said(cluster, "False")
            assert said["reason"] == "Unschedulable"
            assert f"/train: 2 of {SIZE} can start, waits for room for all at once" in said["message"]
            assert await shown(cluster) == {"train": "Unschedulable"}
        # Nobody tells of what happens meanwhile: the next leader does.
        async with cluster.operator(QUICK):
            await cluster.client.delete(f"{cluster.pods}/blocker", grace_seconds=0)
            await until_placed(cluster, *names)
            said = await until_said(cluster, "True")
            assert (said["reason"], said["message"]) == ("Scheduled", "3 pods that must run together have a node")
            assert await shown(cluster) == {"train": "Scheduled"}
