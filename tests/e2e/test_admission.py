"""The admission webhook end to end: the shipped manifests, an operator process, pods made by plain POSTs."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cotide_sim.apiserver.testing import ThreadedServer, server_in_thread

DEADLINE_SECONDS = 30.0
ADMISSION: Final = Path(__file__).resolve().parents[2] / "deploy" / "admission"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CPU, MEMORY = "cotide.dev/reclaimed-cpu", "cotide.dev/reclaimed-memory"
PLAIN = {"requests": {"cpu": "500m", "memory": "1Gi"}}
RECLAIMED = {CPU: "500", MEMORY: "1073741824"}
CONFIGURATION = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
policy: hierarchical
reclaimed: {{publish: true, minimumIntervalSeconds: 0}}
admission: {{enabled: true, port: {port}{more}}}
leaderElection: {{enabled: {elects}, namespace: cotide-system}}
"""


class User:
    """Sends requests to the API server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": kind}, method=method)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:  # noqa: S310 - as above
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def create(self, path: str, body: Any) -> Any:
        status, made = self("POST", path, body)
        assert status == 201, made
        return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False  # not listening yet
    finally:
        connection.close()


def until(what: str, check: Callable[[], Any], log: Path) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := check()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not in time\n{log.read_text()}")
        time.sleep(0.05)
    return found


@contextmanager
def operator(
    server: ThreadedServer, folder: Path, name: str, *, port: int, elects: bool = False, more: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run ``cotide operator`` until it is ready."""
    log, config, health = folder / f"{name}.log", folder / f"{name}.yaml", free_port()
    config.write_text(CONFIGURATION.format(port=port, more=more, elects=str(elects).lower()))
    kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
    command = [sys.executable, "-m", "cotide_cli", "operator", "--config", str(config), "--install-crds"]
    command += ["--kubeconfig", str(kubeconfig), "--metrics-port", str(health)]
    with log.open("wb") as sink, subprocess.Popen(command, stderr=sink) as process:
        try:
            until(f"{name} ready", lambda: ready(health) or process.poll() is not None, log)
            assert process.poll() is None, log.read_text()
            yield process, log
        finally:
            process.kill()


def pod(name: str, **metadata: Any) -> Any:
    container = {"name": "main", "image": "none", "resources": PLAIN}
    return {"metadata": {"name": name, **metadata}, "spec": {"schedulerName": "cotide", "containers": [container]}}


def resources(made: Any) -> Any:
    return made["spec"]["containers"][0]["resources"]


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    with server_in_thread() as handle:
        yield handle


def install(user: User, *ports: int) -> None:
    """Apply deploy/admission, and play the endpoints controller: the operators run on this machine."""
    for space, labels in (("cotide-system", {}), ("asks", {"cotide.dev/reclaim": "enabled"}), ("quiet", {})):
        user.create("/api/v1/namespaces", {"metadata": {"name": space, "labels": labels}})
    user.create(WEBHOOKS, yaml.safe_load((ADMISSION / "webhook.yaml").read_text(encoding="utf-8")))
    service = yaml.safe_load((ADMISSION / "service.yaml").read_text(encoding="utf-8"))
    user.create("/api/v1/namespaces/cotide-system/services", service)
    endpoints = {"metadata": {"name": "cotide-admission"}, "subsets": subsets(*ports)}
    user.create("/api/v1/namespaces/cotide-system/endpoints", endpoints)


def subsets(*ports: int) -> list[Any]:
    return [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "admission", "port": port}]} for port in ports]


def test_a_plain_batch_pod_gets_reclaimed_requests_and_a_node_where_its_namespace_asks_for_it(
    server: ThreadedServer, tmp_path: Path
) -> None:
    user, port = User(server.url), free_port()
    install(user, port)
    offered = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    status = {"capacity": offered, "allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    user.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
    batch, asks, quiet = {"cotide.dev/class": "batch"}, "/api/v1/namespaces/asks/pods", "/api/v1/namespaces/quiet/pods"

    # Before there is an operator, nothing is in the way of anybody.
    assert resources(user.create(asks, pod("early", labels=batch))) == PLAIN

    with operator(server, tmp_path, "one", port=port) as (process, log):
        made = user.create(asks, pod("counted", labels=batch))
        assert resources(made) == {"requests": RECLAIMED, "limits": RECLAIMED}
        assert json.loads(made["metadata"]["annotations"]["cotide.dev/original-resources"]) == {"main": PLAIN}
        assert made["status"]["qosClass"] == "BestEffort"
        assert resources(user("POST", f"{asks}?dryRun=All", pod("tried", labels=batch))[1])["requests"] == RECLAIMED
        owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]
        assert resources(user.create(asks, pod("owned", ownerReferences=owner)))["requests"] == RECLAIMED
        # Online, opted out, elsewhere.
        assert resources(user.create(asks, pod("web"))) == PLAIN
        out = {**batch, "cotide.dev/reclaim": "disabled"}
        assert resources(user.create(asks, pod("out", labels=out))) == PLAIN
        assert resources(user.create(quiet, pod("elsewhere", labels=batch))) == PLAIN

        def bound() -> bool:
            return bool(user("GET", f"{asks}/counted")[1]["spec"].get("nodeName"))

        until("the pod's binding", bound, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
        assert " ERROR " not in log.read_text()

    # With the operator down, too.
    assert resources(user.create(asks, pod("late", labels=batch))) == PLAIN


def test_a_standby_answers_with_the_certificate_that_it_shares_and_goes_on_when_the_leader_is_killed(
    server: ThreadedServer, tmp_path: Path
) -> None:
    user, ports = User(server.url), [free_port(), free_port()]
    install(user, *ports)
    path, batch = "/api/v1/namespaces/asks/pods", {"cotide.dev/class": "gratis"}
    endpoints = "/api/v1/namespaces/cotide-system/endpoints/cotide-admission"
    with (
        operator(server, tmp_path, "leader", port=ports[0], elects=True) as (leader, first),
        operator(server, tmp_path, "standby", port=ports[1], elects=True) as (_, second),
    ):
        assert "deciding with policy" not in second.read_text()
        for name, port in (("by-leader", ports[0]), ("by-standby", ports[1])):
            user("PATCH", endpoints, {"subsets": subsets(port)}, "application/merge-patch+json")
            assert resources(user.create(path, pod(name, labels=batch)))["requests"] == RECLAIMED, name
        leader.kill()
        leader.wait(DEADLINE_SECONDS)
        assert resources(user.create(path, pod("after", labels=batch)))["requests"] == RECLAIMED
        assert "renewed" in first.read_text()
        assert "renewed" not in second.read_text()  # one replica made the certificate
