"""Containers that a real kubelet can't start: what it says reaches the Job, and nothing is held for ever."""

from __future__ import annotations

import json
import re
from typing import Any

from containers import batch_pod, job, shell
from manifests import workload_manifest
from real_cluster import ALONE, RealCluster
from real_nodes import SHELL, NodeCluster, RealNode

from cotide_core.units import resource_amount
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.controllers.job_reconciler import BACKOFF_BASE_SECONDS
from cotide_operator.controllers.starts.start_times import SLOW_SECONDS

QUICK = ALONE + "queue: {backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}\n"
IMPATIENT = QUICK + "jobs: {startSeconds: 15}\n"
"""Long enough to look at what is said meanwhile."""
NOWHERE = "127.0.0.1:5/absent:1"
"""Nobody listens there: a pull is refused at once."""


async def status_of(cluster: RealCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.client.get(f"{cluster.jobs}/{name}")).get("status", {})
    return found


async def condition(cluster: RealCluster, name: str, kind: str) -> dict[str, Any]:
    conditions = (await status_of(cluster, name)).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind), {})


async def until_phase(cluster: RealCluster, name: str, phase: str) -> None:
    async def reached() -> bool:
        return await cluster.phase(name) == phase

    await cluster.until(f"the Job {name} is {phase}", reached)


async def test_a_command_that_is_not_there_fails_its_pod_and_the_next_one_comes_after_the_back_off(
    cluster: RealCluster,
) -> None:
    absent = {**shell("exit 0"), "command": ["/bin/absent"]}
    async with cluster.operator(QUICK):
        await cluster.client.create(cluster.jobs, job("absent", absent, backoffLimit=1))
        await until_phase(cluster, "absent", "Failed")
        first, second = sorted(await cluster.client.list(cluster.pods), key=lambda pod: str(pod["metadata"]["name"]))
        ends = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in (first, second)]
        assert [(end["reason"], end["exitCode"]) for end in ends] == [("StartError", 128)] * 2
        apart = parse_timestamp(second["metadata"]["creationTimestamp"]) - parse_timestamp(ends[0]["finishedAt"])
        assert apart >= BACKOFF_BASE_SECONDS - 1.0  # both are told in whole seconds
        status = await status_of(cluster, "absent")
        assert (status["failures"], status["evictions"]) == (2, 0)


async def test_an_image_that_can_not_be_pulled_is_said_everywhere_and_keeps_its_node_for_so_long_only(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    node = node_cluster.nodes[0].name
    offered = (await cluster.client.get(f"/api/v1/nodes/{node}"))["status"]["allocatable"]["cpu"]
    large = {"cpu": f"{resource_amount('cpu', offered) - 200}m", "memory": "16Mi"}
    there = {"nodeSelector": {"kubernetes.io/hostname": node}}
    pulled = {**shell("exit 0", requests=large), "image": NOWHERE, "imagePullPolicy": "IfNotPresent"}
    body = job("pulled", pulled, backoffLimit=0)
    body["spec"]["template"]["spec"] |= there
    async with cluster.operator(IMPATIENT):
        await cluster.client.create(cluster.jobs, body)

        async def said() -> bool:
            message = (await condition(cluster, "pulled", "PodsStarted")).get("message", "")
            # A kubelet says the one and the other in turn, and a condition's words are refreshed after ten seconds.
            words = re.match(rf"1 pod can't be started: pulled-0 on {node}: (ErrImagePull|ImagePullBackOff): ", message)
            return words is not None and NOWHERE in message

        await cluster.until("the Job's condition has the kubelet's words", said)
        status = await status_of(cluster, "pulled")
        assert (status["phase"], status["active"], status["failures"]) == ("Running", 1, 0)
        assert (await condition(cluster, "pulled", "Scheduled"))["message"] == "1 pod is on a node"
        pod = await cluster.client.get(f"{cluster.pods}/pulled-0")
        assert json.loads(pod["metadata"]["annotations"]["cotide.dev/decision"])["node"] == node

        async def told() -> bool:
            events = await cluster.client.list(cluster.path("events"))
            reasons = {event["reason"] for event in events if event["involvedObject"]["name"] == "pulled-0"}
            return {"Scheduled", "Failed", "BackOff"} <= reasons

        await cluster.until("its events are there, ours and the kubelet's", told)
        # What it holds is for no other pod, until its time is over.
        await cluster.client.create(cluster.pods, batch_pod("next", shell("exit 0", requests=large), **there))
        await until_phase(cluster, "pulled", "Failed")

        async def done() -> bool:
            return bool((await cluster.client.get(f"{cluster.pods}/next"))["status"].get("phase") == "Succeeded")

        await cluster.until("the next pod had its room", done)
        assert [one["metadata"]["name"] for one in await cluster.client.list(cluster.pods)] == ["next"]
        status = await status_of(cluster, "pulled")
        assert (status["failures"], status["evictions"]) == (1, 0)
        assert (await condition(cluster, "pulled", "PodsStarted"))["status"] == "False"


async def test_a_container_that_lacks_a_secret_starts_once_it_is_there(cluster: RealCluster) -> None:
    wants = {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "late", "key": "word"}}}
    async with cluster.operator(QUICK):
        waits = shell('test "$WORD" = hello && sleep 5', env=[wants])
        await cluster.client.create(cluster.jobs, job("secretive", waits, backoffLimit=0))

        async def started(status: str, words: str) -> bool:
            found = await condition(cluster, "secretive", "PodsStarted")
            return found.get("status") == status and words in found["message"]

        await cluster.until("the Job says what is missing", lambda: started("False", 'secret "late" not found'))
        await cluster.client.create(
            cluster.path("secrets"), {"metadata": {"name": "late"}, "stringData": {"word": "hello"}}
        )
        await cluster.until("it was started after all", lambda: started("True", ""))
        await until_phase(cluster, "secretive", "Succeeded")
        assert (await status_of(cluster, "secretive"))["failures"] == 0


def late_image(name: str, script: str) -> dict[str, Any]:
    """A container whose image no node has yet, and that nobody pulls."""
    return {**shell(script, requests={"cpu": "20m", "memory": "16Mi"}), "image": f"docker.io/library/{name}:1"}


def bring(name: str, *nodes: RealNode) -> None:
    for node in nodes:
        node.ctr("images", "tag", "--force", SHELL, f"docker.io/library/{name}:1")


async def test_of_a_job_whose_image_is_not_there_two_pods_try_and_all_run_once_it_is(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    body = job("late", late_image("late", "sleep 5"), completions=6, parallelism=6)
    async with cluster.operator(QUICK):
        await cluster.client.create(cluster.jobs, body)

        async def two_try() -> bool:
            pods = await cluster.client.list(cluster.pods)
            alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            message = (await condition(cluster, "late", "PodsStarted")).get("message", "")
            return len(alive) == 2 and "2 pods can't be started: " in message and "4 more pods" in message

        await cluster.until("two of its pods try", two_try, seconds=SLOW_SECONDS + 60.0)
        bring("late", *node_cluster.nodes)
        await until_phase(cluster, "late", "Succeeded")
        status = await status_of(cluster, "late")
        assert (status["succeeded"], status["failures"], status["evictions"]) == (6, 0, 0)
        assert (await condition(cluster, "late", "PodsStarted"))["status"] == "True"


async def test_the_next_pod_goes_to_another_node_than_the_one_that_could_not_start_the_last(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    lacks, has = node_cluster.nodes
    bring("scarce", has)
    liked = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [lacks.name]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": liked}]}
    body = job("scarce", late_image("scarce", "exit 0"), backoffLimit=1)
    body["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": preferred}
    async with cluster.operator(IMPATIENT):
        await cluster.client.create(cluster.jobs, body)
        await until_phase(cluster, "scarce", "Succeeded")
        status = await status_of(cluster, "scarce")
        assert (status["failures"], status["evictions"]) == (1, 0)
        assert (await cluster.client.get(f"{cluster.pods}/scarce-0-r1"))["spec"]["nodeName"] == has.name
        events = await cluster.client.list(cluster.path("events"))
        given_up = [event["message"] for event in events if event["reason"] == "PodGivenUp"]
        assert len(given_up) == 1
        assert given_up[0].startswith(f"pod scarce-0 on {lacks.name} was not started in time and is deleted: ErrImage")


async def test_a_workload_says_which_of_its_pods_can_not_be_started_and_keeps_them(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    workloads = cluster.path("workloads", "cotide.dev/v1alpha1")
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [late_image("served", "sleep 3600")]}}
    async with cluster.operator(IMPATIENT):
        service = workload_manifest("web", namespace=cluster.namespace, template=template, replicas=2)
        await cluster.client.create(workloads, service)

        async def says(status: str, words: str) -> bool:
            found = (await cluster.client.get(f"{workloads}/web")).get("status", {}).get("conditions", ())
            started = next((one for one in found if one["type"] == "PodsStarted"), {})
            return started.get("status") == status and words in started["message"]

        await cluster.until("both are named", lambda: says("False", "2 pods can't be started: web-0 on "))
        uids = {pod["metadata"]["uid"] for pod in await cluster.client.list(cluster.pods)}
        bring("served", *node_cluster.nodes)
        await cluster.until("both run", lambda: says("True", "pods are started"))
        assert {pod["metadata"]["uid"] for pod in await cluster.client.list(cluster.pods)} == uids
