"""Kueue beside a real API server: its own manifests, its ServiceAccount's rights, its webhooks led to this machine.

Called by the conftest of tests/real/kueue. Of the release's manifests three things are left out or changed: its
Deployment (it runs as a process), its aggregated API (a server that asks for what is not there answers slowly), and the
address of its webhooks. Kueue makes their certificate itself and writes it into a Secret; here, as a kubelet would, it
is put where Kueue looks for it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from control_plane import ControlPlane, free_port
from module_program import ModuleProgram
from processes import Process

from cotide_kube.client import KubeClient

NAMESPACE: Final = "kueue-system"
SECRET: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
WEBHOOKS: Final = "kueue-webhook-service"
LEFT_OUT: Final = ("Deployment", "APIService")
DEADLINE_SECONDS: Final = 120.0
"""Chosen: Kueue starts within ten seconds on an idle machine."""
Json = dict[str, Any]


def manifests(plane: ControlPlane, program: ModuleProgram, port: int) -> list[Json]:
    """Return what its release applies, with the webhooks on a port of this machine."""
    built = subprocess.run(
        [plane.kubectl, "kustomize", str(program.manifests)], capture_output=True, text=True, check=True
    )
    found = [one for one in yaml.safe_load_all(built.stdout) if one and one["kind"] not in LEFT_OUT]
    for one in found:
        if one["kind"] == "Service" and one["metadata"]["name"] == WEBHOOKS:
            one["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        for configuration in _client_configurations(one):
            configuration["service"]["port"] = port
    return found


def _client_configurations(document: Json) -> list[Json]:
    """Return where a document says whom the API server asks."""
    asked = [webhook["clientConfig"] for webhook in document.get("webhooks") or ()]
    conversion = document.get("spec", {}).get("conversion") if document["kind"] == "CustomResourceDefinition" else None
    if conversion is not None:
        asked.append(conversion["webhook"]["clientConfig"])
    return asked


def configuration(webhooks: int, health: int, certificates: Path) -> Json:
    """Return what Kueue is told: batch/v1 Jobs and plain pods, quick retries, no port that others may hold."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": webhooks, "host": "127.0.0.1", "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 500, "burst": 1000},
        "integrations": {"frameworks": ["batch/job", "pod"]},
        # An aggregated server of its own, whose port can't be chosen.
        "featureGates": {"VisibilityOnDemand": False},
    }


@contextlib.contextmanager
def kueue(plane: ControlPlane, program: ModuleProgram) -> Iterator[Process]:
    """Install Kueue and run it."""
    port, health, folder = free_port(), free_port(), plane.folder / "kueue"
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    applied = folder / "kueue.yaml"
    applied.write_text(yaml.safe_dump_all(manifests(plane, program, port)), encoding="utf-8")
    admin = str(plane.folder / "admin.kubeconfig")
    command = [plane.kubectl, "--kubeconfig", admin, "apply", "--server-side", "-f", str(applied)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    config = folder / "configuration.yaml"
    config.write_text(yaml.safe_dump(configuration(port, health, certificates)), encoding="utf-8")
    token = asyncio.run(plane.token(NAMESPACE, "kueue-controller-manager"))
    environment = {"KUBECONFIG": str(plane.kubeconfig("kueue", token=token))}
    process = plane.pen.start("kueue", [str(program.program), "--config", str(config)], environment)
    try:
        asyncio.run(_started(plane, certificates, health, process))
        yield process
        assert process.exit_code is None, process.text()[-3000:]
    finally:
        process.end(signal.SIGTERM)


async def _started(plane: ControlPlane, certificates: Path, health: int, process: Process) -> None:
    async with KubeClient(plane.admin) as client:
        await _mount(client, certificates, process)
    await _ready(health, process)


async def _mount(client: KubeClient, folder: Path, process: Process) -> None:
    """Write the Secret's files where Kueue looks for them, once it has filled it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (data := (await client.get(SECRET)).get("data") or {}).get("tls.crt"):
        assert time.monotonic() < deadline, process.text()[-3000:]
        assert process.exit_code is None, process.text()[-3000:]
        await asyncio.sleep(0.1)
    for name, content in data.items():
        (folder / name).write_bytes(base64.b64decode(content))


async def _ready(port: int, process: Process) -> None:
    """Wait until it says so, which it does once its webhooks listen."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    async with aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            assert time.monotonic() < deadline, process.text()[-3000:]
            assert process.exit_code is None, process.text()[-3000:]
            await asyncio.sleep(0.1)
