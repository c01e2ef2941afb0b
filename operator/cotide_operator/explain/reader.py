"""Reads from the API server what an explanation needs, and nothing else.

Called by ``cotide explain``; gives what it read to `explain`. Invariant: only GETs; what may not be read or is not
there beside the object asked for is left out of the explanation, never a reason to fail.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.apis.names import JOB_LABEL
from cotide_operator.apis.types import API_VERSION, WORKLOAD_LABEL, LabelSelector
from cotide_operator.explain.class_rule import ClassContext
from cotide_operator.explain.explanation import Explanation, explain_job, explain_pod, telling_node
from cotide_operator.explain.reclaimed import reclaimed_requests

Object = dict[str, Any]

_OPTIONAL: Final = frozenset({403, 404})
_OURS: Final = {"Job": "jobs", "Workload": "workloads"}


async def read_pod(client: KubeClient, namespace: str, name: str) -> Explanation:
    """Explain one pod; raises `ClusterError` when there is none of that name."""
    pod = await _must_have(client, f"/api/v1/namespaces/{namespace}/pods/{name}", f"pod {namespace}/{name}")
    named = (pod.get("spec") or {}).get("priorityClassName")
    node, beside = await _node(client, pod)
    around = ClassContext(
        owner=await _owner(client, pod),
        namespace=await _may_have(client, f"/api/v1/namespaces/{namespace}"),
        priority_class=await _may_have(client, f"/apis/scheduling.k8s.io/v1/priorityclasses/{named}")
        if named
        else None,
        events=await _events(client, namespace, [pod]),
        node=node,
        beside=beside,
    )
    return explain_pod(pod, around, time.time())


async def read_job(client: KubeClient, namespace: str, name: str) -> Explanation:
    """Explain one Job of ours; raises `ClusterError` when there is none of that name."""
    path = f"/apis/{API_VERSION}/namespaces/{namespace}/jobs/{name}"
    job = await _must_have(client, path, f"jobs.cotide.dev {namespace}/{name}")
    selector = {"labelSelector": f"{JOB_LABEL}={name}"}
    pods = [
        pod
        for pod in await client.list(f"/api/v1/namespaces/{namespace}/pods", selector)
        if any(owner.get("uid") == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences") or ())
    ]
    # Waiting and running pods first: they are what the question is about.
    pods.sort(key=lambda pod: ((pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"), _age(pod)))
    return explain_job(job, pods, await _events(client, namespace, [job, *pods]), time.time())


def _age(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]


async def _must_have(client: KubeClient, path: str, what: str) -> Object:
    try:
        return await client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        raise ClusterError(f"there is no {what} (is the name right, and the namespace?)") from error


async def _may_have(client: KubeClient, path: str) -> Object | None:
    try:
        return await client.get(path)
    except ApiError as error:
        if error.status in _OPTIONAL:
            return None
        raise


async def _owner(client: KubeClient, pod: Object) -> Object | None:
    """Return the Job or Workload of ours that owns or selects a pod."""
    metadata = pod["metadata"]
    namespace = metadata["namespace"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("apiVersion") == API_VERSION and owner.get("kind") in _OURS:
            path = f"/apis/{API_VERSION}/namespaces/{namespace}/{_OURS[owner['kind']]}/{owner['name']}"
            return await _may_have(client, path)
    adopted_by = (metadata.get("labels") or {}).get(WORKLOAD_LABEL)
    if adopted_by is None:
        return None
    workload = await _may_have(client, f"/apis/{API_VERSION}/namespaces/{namespace}/workloads/{adopted_by}")
    selector = ((workload or {}).get("spec") or {}).get("selector")
    if workload is None or not selector:
        return None
    selects = LabelSelector.model_validate(selector).matches(metadata.get("labels") or {})
    return workload if selects else None


async def _node(client: KubeClient, pod: Object) -> tuple[Object | None, list[Object] | None]:
    """Return the node that tells most about a pod with reclaimed requests, and the pods there."""
    name = telling_node(pod) if any(reclaimed_requests(pod)) else None
    if name is None:
        return None, None
    node = await _may_have(client, f"/api/v1/nodes/{name}")
    try:
        return node, await client.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"})
    except ApiError as error:
        if error.status in _OPTIONAL:
            return node, None
        raise


async def _events(client: KubeClient, namespace: str, objects: Sequence[Object]) -> list[Object]:
    """Return the events about some objects."""
    params = {}
    if len(objects) == 1:
        params["fieldSelector"] = f"involvedObject.uid={objects[0]['metadata']['uid']}"
    try:
        events = await client.list(f"/api/v1/namespaces/{namespace}/events", params)
    except ApiError as error:
        if error.status in _OPTIONAL:
            return []
        raise
    uids = {item["metadata"]["uid"] for item in objects}
    return [event for event in events if (event.get("involvedObject") or {}).get("uid") in uids]
