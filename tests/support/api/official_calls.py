"""The official client: made, with something done around the requests that are meant, and used to make nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kubernetes

READY = [{"type": "Ready", "status": "True"}]


@contextmanager
def official_api(url: str) -> Iterator[Any]:
    """The official client of a server that asks nobody who he is."""
    configuration = kubernetes.client.Configuration()
    configuration.host = url
    with kubernetes.client.ApiClient(configuration) as api:
        yield api


def make_node(core: Any, name: str, labels: dict[str, str] | None = None) -> None:
    """Make a ready node of one core."""
    core.create_node({"metadata": {"name": name, "labels": labels or {}}})
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": READY}
    core.patch_node_status(name, {"status": status})


def around_scaling(api: Any, does: Callable[[Callable[[], Any]], Any]) -> None:
    """Have something done around each PATCH of a scale subresource, which it is given as a call."""
    original = api.call_api

    def call_api(method: str, *rest: Any, **more: Any) -> Any:
        def send() -> Any:
            return original(method, *rest, **more)

        return does(send) if method == "PATCH" and rest[0].endswith("/scale") else send()

    api.call_api = call_api


def run_pod(core: Any, name: str, node: str, cpu: str, **spec: Any) -> None:
    """Make a pod of an owner that runs on a node."""
    requests = {"cpu": cpu, "memory": "10Mi"}
    app = name.rpartition("-")[0]
    there = {item.metadata.name: item.metadata.uid for item in core.list_namespaced_config_map("default").items}
    # A ConfigMap stands for the controller: a pod whose owner is not there would be collected as garbage.
    uid = there.get(app) or core.create_namespaced_config_map("default", {"metadata": {"name": app}}).metadata.uid
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": app, "uid": uid, "controller": True}
    core.create_namespaced_pod(
        "default",
        {
            "metadata": {"name": name, "labels": {"app": app}, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}], **spec},
        },
    )  # fmt: skip
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    core.create_namespaced_pod_binding(name, "default", body, _preload_content=False)
    ready = [{"type": "Ready", "status": "True"}]
    core.patch_namespaced_pod_status(name, "default", {"status": {"phase": "Running", "conditions": ready}})
