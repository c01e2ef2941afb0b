"""Resizes of a running pod, right and wrong, and what a server answers; the same on the emulator and a real server."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

Json = dict[str, Any]
POD: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {
        "initContainers": [
            {"name": "first", "image": "i:1", "resources": {"requests": {"cpu": "1"}}},
            {"name": "side", "image": "i:1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
        ],
        "containers": [
            {
                "name": "c",
                "image": "i:1",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
            },
            {"name": "d", "image": "i:1"},
        ],
    },
}
RUNNING: Final[Json] = {
    "phase": "Running",
    "containerStatuses": [
        {"name": name, "image": "i:1", "imageID": "", "ready": True, "restartCount": 0, "resources": {},
         "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        for name in ("c", "d")
    ],
}  # fmt: skip


def container(name: str, **resources: Json) -> Json:
    return {"spec": {"containers": [{"name": name, "resources": resources}]}}


CASES: Final[dict[str, Json]] = {
    "more cpu": container("c", requests={"cpu": "1500m"}),
    "less memory": container("c", requests={"memory": "512Mi"}),
    "beyond the limit": container("c", requests={"cpu": "3"}),
    "limit and request": container("c", requests={"cpu": "3"}, limits={"cpu": "3"}),
    "a request taken away": container("c", requests={"memory": None}),
    "a limit taken away": container("c", limits={"cpu": None}),
    "another resource": container("c", requests={"ephemeral-storage": "1Gi"}),
    "a sidecar": {"spec": {"initContainers": [{"name": "side", "resources": {"requests": {"cpu": "200m"}}}]}},
    "an init container": {"spec": {"initContainers": [{"name": "first", "resources": {"requests": {"cpu": "2"}}}]}},
    "a new container": {"spec": {"containers": [{"name": "new", "image": "i:1"}]}},
    "no quantity": container("c", requests={"cpu": "-1"}),
    "an image and a label": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "other:2"}]},
    },
    "a request where there was none": container("d", requests={"cpu": "100m"}),
    "nothing": {"spec": {}},
}


async def answers(client: KubeClient, namespace: str) -> dict[str, tuple[int, str]]:
    """Return each case's status and message, or the resources and the generation's step that it led to."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    given = {}
    for number, (case, body) in enumerate(CASES.items()):
        name = f"p{number}"
        pod = copy.deepcopy(POD)
        pod["metadata"]["name"] = name
        made = await client.create(pods, pod)
        await client.patch(f"{pods}/{name}/status", {"status": RUNNING}, "strategic")
        given[case] = await _answer(client, f"{pods}/{name}", body, made)
    return given


async def _answer(client: KubeClient, path: str, body: Json, made: Json) -> tuple[int, str]:
    name = path.rpartition("/")[2]
    try:
        after = await client.patch(f"{path}/resize", body, "strategic")
    except ApiError as error:
        return error.status, str(error).replace(name, "p")
    spec = after["spec"]
    shown = [[one["image"], one.get("resources")] for one in (*spec["initContainers"], *spec["containers"])]
    step = after["metadata"].get("generation", 0) - made["metadata"].get("generation", 0)
    return 200, f"{json.dumps(shown, sort_keys=True)} {after['metadata'].get('labels')} +{step}"


async def unsupported(client: KubeClient, namespace: str) -> str:
    """Return what is said to a resize of a pod whose kubelet does not tell what its containers hold."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = copy.deepcopy(POD)
    pod["metadata"]["name"] = "old"
    await client.create(pods, pod)
    status = copy.deepcopy(RUNNING)
    for one in status["containerStatuses"]:
        del one["resources"]
    await client.patch(f"{pods}/old/status", {"status": status}, "strategic")
    try:
        await client.patch(f"{pods}/old/resize", CASES["more cpu"], "strategic")
    except ApiError as error:
        return str(error)
    return "taken"
