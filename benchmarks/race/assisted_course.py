"""The demo's plan as plain pods on a real API server, with constraints in the mix.

Used by `bench_assisted_plan`. Every pod is created by the course, and only its ``schedulerName`` differs between
racers. Of the jobs with several pods every second has them apart (required anti-affinity by host), the pods of every
third job use a claim that is bound to a volume of one zone, and the pods of each service are spread over the zones.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from race_course import spread

from cotide_kube.client import KubeClient
from cotide_operator.apis.types import INPUT_SIZE_ANNOTATION, TYPE_ANNOTATION, WORKLOAD_LABEL
from cotide_sim.demo.manifests import NAMESPACE, job_manifest, service_manifest
from cotide_sim.workloads.plan import Plan, PlannedJob, PlannedService

ZONES: Final = ("a", "b", "c")
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
WORKLOADS: Final = f"/apis/cotide.dev/v1alpha1/namespaces/{NAMESPACE}/workloads"
APART: Final = "apart"
"""Label: the job whose pods keep apart."""
Json = dict[str, Any]


async def prepare(client: KubeClient, nodes: int) -> None:
    """Make the namespace, open the nodes, give them zones, and bind a claim to a volume of each zone."""
    await client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    # The controller that makes this account does not run here, and no pod is admitted without it.
    await client.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    while len(found := await client.list("/api/v1/nodes")) < nodes:
        await asyncio.sleep(0.1)
    for index, node in enumerate(found):
        name = node["metadata"]["name"]
        labels = {ZONE: ZONES[index % len(ZONES)], HOST: name}
        # Admission taints each new node as not ready; the controller that would take it away does not run.
        await client.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}, "spec": {"taints": None}})
    for zone in ZONES:
        await _volume(client, zone)


async def _volume(client: KubeClient, zone: str) -> None:
    claim = f"data-{zone}"
    size = {"storage": "1Gi"}
    wanted = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": claim,
        "resources": {"requests": size},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    bound = {"name": claim, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    made = await client.create(path, {"metadata": bound, "spec": wanted})
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    volume: Json = {
        "metadata": {"name": claim},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "csi": {"driver": "race.example.com", "volumeHandle": claim},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "claimRef": {"namespace": NAMESPACE, "name": claim, "uid": made["metadata"]["uid"]},
        },
    }
    await client.create("/api/v1/persistentvolumes", volume)
    await client.patch(f"/api/v1/persistentvolumes/{claim}/status", {"status": {"phase": "Bound"}})
    status = {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": size}
    await client.patch(f"{path}/{claim}/status", {"status": status})


def job_pods(job: PlannedJob, number: int, scheduler: str) -> list[Json]:
    """Return the pods of a planned job, the ``number``-th of the plan."""
    template = job_manifest(job)["spec"]["template"]
    annotations = {
        **template["metadata"]["annotations"],
        TYPE_ANNOTATION: job.type,
        INPUT_SIZE_ANNOTATION: str(job.input_bytes),
    }
    labels = {"cotide.dev/class": job.workload_class.value, "job": job.name}
    spec: Json = {**template["spec"], "schedulerName": scheduler}
    if job.completions > 1 and number % 2 == 0:
        labels[APART] = job.name
        selector = {"matchLabels": {APART: job.name}}
        term = {"labelSelector": selector, "topologyKey": HOST}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if number % 3 == 0:
        claim = {"claimName": f"data-{ZONES[number // 3 % len(ZONES)]}"}
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    name = f"{scheduler[:4].strip('-')}-{job.name}"
    return [_pod(f"{name}-{index}", labels, annotations, spec) for index in range(job.completions)]


def service_pods(service: PlannedService, origin_seconds: float, scheduler: str) -> list[Json]:
    """Return the pods of a planned service; what they serve starts at a simulated second."""
    template = service_manifest(service, origin_seconds)["spec"]["template"]
    labels = {"app": service.name, "cotide.dev/class": "online", WORKLOAD_LABEL: service.name}
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": service.name}},
    }
    spec = {**template["spec"], "schedulerName": scheduler, "topologySpreadConstraints": [constraint]}
    annotations = template["metadata"]["annotations"]
    return [_pod(f"{service.name}-{index}", labels, annotations, spec) for index in range(service.replicas)]


def _pod(name: str, labels: dict[str, str], annotations: dict[str, str], spec: Json) -> Json:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def start_services(client: KubeClient, plan: Plan, origin_seconds: float, scheduler: str) -> list[str]:
    """Create the services' pods and the Workloads that promise their latency; return the pods' names."""
    made = []
    for service in plan.services:
        spec = {
            "selector": {"matchLabels": {"app": service.name}},
            "qos": {"latencyP95Milliseconds": service.limit_milliseconds},
        }
        workload = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", "metadata": {"name": service.name}}
        await client.create(WORKLOADS, {**workload, "spec": spec})
        made += service_pods(service, origin_seconds, scheduler)
    await spread(lambda one=one: client.create(PODS, one) for one in made)  # type: ignore[misc]  # the default binds one
    return [one["metadata"]["name"] for one in made]


async def clear(client: KubeClient) -> None:
    """Delete what an act made, and wait until it is gone."""
    await client.request("DELETE", WORKLOADS)
    await client.request("DELETE", PODS, {"gracePeriodSeconds": 0})
    while (await client.get(PODS, {"limit": "1"}))["items"]:
        await asyncio.sleep(0.2)


def faults_of(pods: list[Json], zones: dict[str, str]) -> list[str]:
    """Return which constraints the pods break that are on nodes now and have not ended."""
    found, apart = [], set()
    for pod in pods:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if not node or pod["status"].get("phase") in ("Succeeded", "Failed"):
            continue
        job = pod["metadata"]["labels"].get(APART)
        if job is not None and (job, node) in apart:
            found.append(f"two pods of {job} on {node}")
        apart.add((job, node))
        for volume in pod["spec"].get("volumes") or ():
            claim = volume.get("persistentVolumeClaim")
            if claim is not None and claim["claimName"] != f"data-{zones[node]}":
                found.append(f"{name} on {node}, without {claim['claimName']}")
    return found
