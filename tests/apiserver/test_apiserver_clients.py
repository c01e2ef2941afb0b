"""The clients that people use, unmodified, against the embedded API server: the official client, kopf, kubectl."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kopf
import kubernetes
import pytest
from manifests import container, pod_manifest
from official_calls import official_api

from cotide_sim.apiserver.testing import ThreadedServer, server_in_thread

DEADLINE_SECONDS = 20.0

GADGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.example.dev"},
    "spec": {
        "group": "example.dev",
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"], "categories": ["toys"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"size": {"type": "integer", "description": "How large it is."}},
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def pod(name: str) -> dict[str, Any]:
    """A pod with the parts that clients print and change."""
    one = container(name="main", image="example/image:1", env=[{"name": "A", "value": "1"}])
    return pod_manifest(name, labels={"app": "web"}, spec={"containers": [one]})


def until(condition: Callable[[], Any]) -> Any:
    """Return the first true value of a condition; fail when it takes too long."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("the condition did not come true in time")


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    with server_in_thread() as running:
        yield running


@pytest.fixture
def api(server: ThreadedServer) -> Iterator[Any]:
    with official_api(server.url) as client:
        yield client


def test_official_client_works_typed(server: ThreadedServer, api: Any) -> None:
    core = kubernetes.client.CoreV1Api(api)
    made = core.create_namespaced_pod("default", pod("a"))
    assert made.status.phase == "Pending"
    body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
    core.create_namespaced_pod_binding("a", "default", body, _preload_content=False)
    assert core.read_namespaced_pod("a", "default").spec.node_name == "n1"
    core.patch_namespaced_pod_status("a", "default", {"status": {"phase": "Running"}})
    core.patch_namespaced_pod("a", "default", [{"op": "add", "path": "/metadata/labels/x", "value": "y"}])
    listed = core.list_pod_for_all_namespaces(field_selector="spec.nodeName=n1,status.phase=Running", limit=1)
    assert [item.metadata.labels for item in listed.items] == [{"app": "web", "x": "y"}]
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.create_namespaced_pod("default", pod("a"))
    assert (refused.value.status, json.loads(refused.value.body)["reason"]) == (409, "AlreadyExists")
    core.create_namespaced_event(
        "default", {"metadata": {"name": "e"}, "involvedObject": {"name": "a", "kind": "Pod"}, "reason": "Scheduled"}
    )
    found = core.list_namespaced_event("default", field_selector="involvedObject.name=a")
    assert [event.reason for event in found.items] == ["Scheduled"]


def test_official_client_watches(server: ThreadedServer, api: Any) -> None:
    core = kubernetes.client.CoreV1Api(api)
    version = core.list_namespaced_pod("default").metadata.resource_version
    core.create_namespaced_pod("default", pod("a"))
    core.delete_namespaced_pod("a", "default")
    stream = kubernetes.watch.Watch().stream(
        core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=1
    )
    assert [event["type"] for event in stream] == ["ADDED", "MODIFIED", "DELETED"]


def test_official_client_finds_and_drives_custom_kinds(server: ThreadedServer, api: Any) -> None:
    extensions = kubernetes.client.ApiextensionsV1Api(api)
    extensions.create_custom_resource_definition(GADGETS)
    custom = kubernetes.client.CustomObjectsApi(api)
    path = ("example.dev", "v1", "default", "gadgets")
    made = custom.create_namespaced_custom_object(
        *path,
        {"apiVersion": "example.dev/v1", "kind": "Gadget", "metadata": {"generateName": "g-"}, "spec": {"size": 1}},
    )
    name = made["metadata"]["name"]
    custom.patch_namespaced_custom_object_status(*path, name, {"status": {"done": True}})
    shown = custom.get_namespaced_custom_object(*path, name)
    assert (shown["spec"], shown["status"]) == ({"size": 1}, {"done": True})
    with pytest.raises(kubernetes.client.ApiException) as refused:
        custom.patch_namespaced_custom_object(*path, name, {"spec": {"size": "big"}})
    assert refused.value.status == 422
    assert "spec.size" in refused.value.body
    dynamic = kubernetes.dynamic.DynamicClient(api)
    gadgets = dynamic.resources.get(api_version="example.dev/v1", kind="Gadget")
    assert [item.metadata.name for item in gadgets.get(namespace="default").items] == [name]


def test_kopf_operator_runs_unmodified(server: ThreadedServer, api: Any) -> None:
    kubernetes.client.ApiextensionsV1Api(api).create_custom_resource_definition(GADGETS)
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=server.url)

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.watching.reconnect_backoff = 0.05

    @kopf.on.create("gadgets.example.dev", registry=registry)
    @kopf.on.update("gadgets.example.dev", registry=registry)
    def reconcile(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        patch.status["seen"] = spec.get("size")

    deleted = threading.Event()

    @kopf.on.delete("gadgets.example.dev", registry=registry)
    def remove(**_: Any) -> None:
        deleted.set()

    stop, ready = threading.Event(), threading.Event()
    operator = threading.Thread(
        target=lambda: asyncio.run(
            kopf.operator(registry=registry, standalone=True, clusterwide=True, stop_flag=stop, ready_flag=ready)
        )
    )
    operator.start()
    try:
        assert ready.wait(DEADLINE_SECONDS)
        custom = kubernetes.client.CustomObjectsApi(api)
        gadgets = ("example.dev", "v1", "default", "gadgets")
        body = {"apiVersion": "example.dev/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": 1}}
        custom.create_namespaced_custom_object(*gadgets, body)

        def seen() -> Any:
            return (custom.get_namespaced_custom_object(*gadgets, "g").get("status") or {}).get("seen")

        until(lambda: seen() == 1)
        # A broken watch and two kinds of refusal must not lose the change.
        server.call(lambda: server.server.drop_watches(abruptly=True))
        custom.patch_namespaced_custom_object(*gadgets, "g", {"spec": {"size": 2}})
        until(lambda: seen() == 2)
        custom.delete_namespaced_custom_object(*gadgets, "g")
        assert deleted.wait(DEADLINE_SECONDS)
        until(lambda: custom.list_namespaced_custom_object(*gadgets)["items"] == [])
    finally:
        stop.set()
        operator.join(DEADLINE_SECONDS)
    assert not operator.is_alive()


class Kubectl:
    """Runs kubectl with a home of its own."""

    def __init__(self, binary: str, home: Path, kubeconfig: Path) -> None:
        self.binary = binary
        self.environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(home), "KUBECONFIG": str(kubeconfig)}

    def run(self, *arguments: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        text = json.dumps(stdin) if stdin is not None else None
        return subprocess.run(
            [self.binary, *arguments],
            input=text,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def __call__(self, *arguments: str, stdin: Any = None) -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def kubectl(server: ThreadedServer, tmp_path: Path) -> Kubectl:
    binary = shutil.which("kubectl")
    if binary is None:
        pytest.skip("there is no kubectl on this machine")
    return Kubectl(binary, tmp_path, server.write_kubeconfig(tmp_path / "kubeconfig"))


@pytest.mark.kubectl
def test_kubectl_applies_labels_describes_and_deletes_pods(kubectl: Kubectl) -> None:
    assert "pod/web created" in kubectl("apply", "-f", "-", stdin=pod("web"))
    assert "pod/web unchanged" in kubectl("apply", "-f", "-", stdin=pod("web"))
    changed = pod("web")
    changed["spec"]["containers"][0]["image"] = "example/image:2"
    assert "pod/web configured" in kubectl("apply", "-f", "-", stdin=changed)
    image = "jsonpath={.spec.containers[0].image} {.spec.containers[0].env[0].value}"
    assert kubectl("get", "pod", "web", "-o", image) == "example/image:2 1"
    kubectl("label", "pod", "web", "tier=front")
    kubectl("annotate", "pod", "web", "note=x")
    heads, row = kubectl("get", "po", "-o", "wide", "-l", "tier=front").splitlines()
    assert heads.split() == [
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "AGE",
        "IP",
        "NODE",
        "NOMINATED",
        "NODE",
        "READINESS",
        "GATES",
    ]
    assert row.split()[:4] == ["web", "0/1", "Pending", "0"]
    described = kubectl("describe", "pod", "web")
    assert "Image:      example/image:2" in described
    assert "note: x" in described
    kubectl("wait", "--for=jsonpath={.status.phase}=Pending", "pod/web", "--timeout=10s")
    assert "pod/web serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=changed)
    assert "deleted" in kubectl("delete", "pod", "web")
    assert kubectl("get", "pods", "-o", "name") == ""


@pytest.mark.kubectl
def test_kubectl_knows_custom_kinds_by_short_name_category_and_explanation(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=GADGETS)
    kubectl("wait", "--for=condition=Established", "crd/gadgets.example.dev", "--timeout=10s")
    gadget = {"apiVersion": "example.dev/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": 3}}
    kubectl("apply", "-f", "-", stdin=gadget)
    assert [line.split() for line in kubectl("get", "gd").splitlines()] == [["NAME", "SIZE"], ["g", "3"]]
    assert "g" in kubectl("get", "toys")
    assert "How large it is." in kubectl("explain", "gadgets.spec.size")
    typo = {**gadget, "spec": {"sise": 3}}
    refused = kubectl.run("apply", "-f", "-", stdin=typo)
    assert refused.returncode == 1
    assert 'unknown field "spec.sise"' in refused.stderr
    wrong = kubectl.run("apply", "-f", "-", stdin={**gadget, "spec": {"size": "big"}})
    assert 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"' in wrong.stderr


@pytest.mark.kubectl
def test_kubectl_says_which_kind_is_not_served(kubectl: Kubectl) -> None:
    unknown = {"apiVersion": "example.dev/v1", "kind": "Gadget", "metadata": {"name": "g"}}
    refused = kubectl.run("apply", "-f", "-", stdin=unknown)
    assert refused.returncode == 1
    assert 'no matches for kind "Gadget" in version "example.dev/v1"' in refused.stderr


@pytest.mark.kubectl
def test_kubectl_typed_commands_work(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "shop")
    assert "Active" in kubectl("get", "ns", "shop")
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    kubectl("create", "configmap", "settings", "--from-literal=a=b", "-n", "shop")
    assert kubectl("get", "cm", "settings", "-n", "shop", "-o", "jsonpath={.data.a}") == "b"
    assert "v1.32" in kubectl("version")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}}
    kubectl("create", "-f", "-", stdin=node)
    kubectl("cordon", "n1")
    assert "SchedulingDisabled" in kubectl("get", "node", "n1")
    kubectl("delete", "namespace", "shop", "--timeout=20s")
    assert kubectl.run("get", "ns", "shop").returncode == 1


@pytest.mark.kubectl
def test_kubectl_creates_deployments_and_jobs_whose_pods_nobody_makes(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=example/web:1", "--replicas=2", "--port=80")
    made = json.loads(kubectl("get", "deployment", "web", "-o", "json"))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert (made["spec"]["replicas"], container["image"]) == (2, "example/web:1")
    assert container["ports"][0]["containerPort"] == 80
    assert made["spec"]["selector"]["matchLabels"] == made["spec"]["template"]["metadata"]["labels"] == {"app": "web"}
    kubectl("create", "job", "once", "--image=example/job:1", "--", "sh", "-c", "true")
    (container,) = json.loads(kubectl("get", "job", "once", "-o", "json"))["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "-c", "true"]


@pytest.mark.kubectl
def test_kubectl_drain_evicts_pods(kubectl: Kubectl, server: ThreadedServer, api: Any) -> None:
    core = kubernetes.client.CoreV1Api(api)
    core.create_node({"metadata": {"name": "n1"}})
    core.create_namespaced_pod("default", pod("a"))
    core.create_namespaced_pod_binding("a", "default", {"target": {"name": "n1"}}, _preload_content=False)
    drain = threading.Thread(target=lambda: kubectl.run("drain", "n1", "--force", "--timeout=20s"))
    drain.start()
    # The test plays the kubelet: it lets the evicted pod go.
    until(lambda: core.read_namespaced_pod("a", "default").metadata.deletion_timestamp)
    core.delete_namespaced_pod("a", "default", grace_period_seconds=0)
    drain.join(DEADLINE_SECONDS)
    assert core.list_namespaced_pod("default").items == []


@pytest.mark.kubectl
def test_kubectl_watches_as_a_table(kubectl: Kubectl, server: ThreadedServer, api: Any) -> None:
    core = kubernetes.client.CoreV1Api(api)
    core.create_namespaced_pod("default", pod("a"))
    command = [kubectl.binary, "get", "pods", "--watch"]
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().split()[0] == "NAME"
            assert process.stdout.readline().split()[:3] == ["a", "0/1", "Pending"]
            until(lambda: server.call(lambda: len(server.server.cluster.watches)))
            core.patch_namespaced_pod_status("a", "default", {"status": {"phase": "Running"}})
            assert process.stdout.readline().split()[:3] == ["a", "0/1", "Running"]
        finally:
            process.terminate()
