"""Queues of Kueue, and Jobs of ours in them, for the tests beside a running Kueue.

Kinds without a namespace carry the test's in their names, so that tests do not share quotas.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, Final

from manifests import job_manifest, template
from real_cluster import RealCluster

from cotide_kube.answers import ApiError

GROUP: Final = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
GATE: Final = "kueue.x-k8s.io/admission"
LONG: Final = "100000"
"""Seconds of work that no test waits for."""
Json = dict[str, Any]


class Quotas:
    """Queues in one test's namespace."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self._queues: list[str] = []

    async def add(self, queue: str, cohort: str, cpus: int) -> None:
        """Make a queue with so many cpus of its own, which borrows and lends within its cohort."""
        client, own = self.cluster.client, self._own
        with contextlib.suppress(ApiError):  # the flavour is there: any node will do for it
            await client.create(f"{GROUP}/resourceflavors", _kind("ResourceFlavor", "any-node", {}))
        amounts = [{"name": "cpu", "nominalQuota": str(cpus)}, {"name": "memory", "nominalQuota": "64Gi"}]
        flavors = [{"name": "any-node", "resources": amounts}]
        spec = {
            "namespaceSelector": {},
            "cohortName": own(cohort),
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
        }
        await client.create(f"{GROUP}/clusterqueues", _kind("ClusterQueue", own(queue), spec))
        local = _kind("LocalQueue", queue, {"clusterQueue": own(queue)})
        await client.create(self.cluster.path("localqueues", "kueue.x-k8s.io/v1beta2"), local)
        self._queues.append(queue)

    async def rank(self, name: str, value: int) -> dict[str, str]:
        """Make a priority of Kueue's; return the label of the pods that have it."""
        one = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": value}
        await self.cluster.client.create(
            f"{GROUP}/workloadpriorityclasses", one | {"metadata": {"name": self._own(name)}}
        )
        return {"kueue.x-k8s.io/priority-class": self._own(name)}

    async def remove(self) -> None:
        """Delete the Jobs, their pods and the queues: neither operator nor nodes are there any more to end them."""
        client = self.cluster.client
        for job in await client.list(self.cluster.jobs):
            await client.delete(f"{self.cluster.jobs}/{job['metadata']['name']}")
        await self.cluster.remove_pods()
        for queue in self._queues:
            await client.delete(f"{GROUP}/clusterqueues/{self._own(queue)}")

    def _own(self, name: str) -> str:
        return f"{self.cluster.namespace}-{name}"

    async def job(self, name: str, queue: str, pods: int, *, seconds: str = LONG, **spec: Any) -> None:
        """Make a Job of pods of one cpu each, which all run at once unless ``spec`` says otherwise."""
        marks = {"sim.cotide.dev/lone-seconds": seconds, **spec.pop("annotations", {})}
        body = template("1", "64Mi", annotations=marks)
        body["metadata"]["labels"] = spec.pop("labels", {})
        one = job_manifest(name, **{"completions": pods, "parallelism": pods, "template": body, **spec})
        one["metadata"]["labels"] = {QUEUE: queue}
        await self.cluster.client.create(self.cluster.jobs, one)

    async def pods(self, job: str) -> list[Json]:
        """Return a Job's pods that are not on their way out."""
        found = await self.cluster.client.list(self.cluster.pods, {"labelSelector": f"cotide.dev/job={job}"})
        return [one for one in found if not one["metadata"].get("deletionTimestamp")]

    async def running(self, job: str) -> int:
        """Return how many of its pods hold a node."""
        ended = ("Succeeded", "Failed")
        pods = await self.pods(job)
        return sum(bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ended for pod in pods)

    async def gated(self, job: str) -> int:
        """Return how many of its pods Kueue holds back."""
        gates = [pod["spec"].get("schedulingGates") or () for pod in await self.pods(job)]
        return sum({"name": GATE} in gate for gate in gates)

    async def until(self, job: str, *, running: int, gated: int) -> None:
        """Wait until so many pods of a Job are on nodes, and so many behind the gate."""

        async def so() -> bool:
            return (await self.running(job), await self.gated(job)) == (running, gated)

        await self.cluster.until(f"{running} pods of {job} run and {gated} are gated", so)

    async def used(self, queue: str) -> tuple[str, str]:
        """Return how many cpus Kueue counts as used in a queue, and how many of these are borrowed."""
        status = (await self.cluster.client.get(f"{GROUP}/clusterqueues/{self._own(queue)}")).get("status", {})
        for flavor in status.get("flavorsUsage") or ():
            for one in flavor["resources"]:
                if one["name"] == "cpu":
                    return str(one.get("total", "0")), str(one.get("borrowed", "0"))
        return "0", "0"

    async def until_used(self, **cpus: tuple[int, int]) -> None:
        """Wait until Kueue itself counts so many cpus as used and as borrowed, by queue (``red_a`` is red-a)."""
        wanted = {queue.replace("_", "-"): tuple(map(str, one)) for queue, one in cpus.items()}

        async def so() -> bool:
            return {queue: await self.used(queue) for queue in wanted} == wanted

        await self.cluster.until(f"Kueue counts {wanted}", so)

    async def status(self, job: str) -> Json:
        found: Json = (await self.cluster.client.get(f"{self.cluster.jobs}/{job}")).get("status", {})
        return found

    async def workloads(self) -> list[Json]:
        return await self.cluster.client.list(self.cluster.path("workloads", "kueue.x-k8s.io/v1beta2"))

    def refused_bindings(self) -> list[str]:
        """Return the bindings in the test's namespace that the server refused, as that of a gated pod is."""
        asked = [json.loads(line) for line in self.cluster.plane.audit_log.read_text(encoding="utf-8").splitlines()]
        about = {"namespace": self.cluster.namespace, "subresource": "binding"}.items()
        ours = [one for one in asked if about <= one.get("objectRef", {}).items()]
        return [our["objectRef"]["name"] for our in ours if our["responseStatus"]["code"] >= 400]

    async def told(self, reason: str) -> list[str]:
        """Return the messages of Cotide's events about Kueue's Workloads."""
        events = await self.cluster.client.list(self.cluster.path("events"))
        about = [
            event for event in events if event["involvedObject"].get("apiVersion", "").startswith("kueue.x-k8s.io/")
        ]
        return [one["message"] for one in about if one["reason"] == reason]


def _kind(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
