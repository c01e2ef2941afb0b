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
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml
from control_plane import ControlPlane, free_port
from module_beside import Json, Patience, apply_all, client_configurations, released, running, until_ready
from module_program import ModuleProgram
from processes import Process

from cotide_kube.client import KubeClient

NAMESPACE: Final = "kueue-system"
SECRET: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
WEBHOOKS: Final = "kueue-webhook-service"
LEFT_OUT: Final = ("Deployment", "APIService")


def manifests(plane: ControlPlane, program: ModuleProgram, port: int) -> list[Json]:
    """Return what its release applies, with the webhooks on a port of this machine."""
    found = released(plane, program, LEFT_OUT)
    for one in found:
        if one["kind"] == "Service" and one["metadata"]["name"] == WEBHOOKS:
            one["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        for asked in client_configurations(one):
            asked["service"]["port"] = port
    return found


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
    apply_all(plane, manifests(plane, program, port), folder / "kueue.yaml")
    config = folder / "configuration.yaml"
    config.write_text(yaml.safe_dump(configuration(port, health, certificates)), encoding="utf-8")
    token = asyncio.run(plane.token(NAMESPACE, "kueue-controller-manager"))
    environment = {"KUBECONFIG": str(plane.kubeconfig("kueue", token=token))}
    with running(plane, "kueue", [str(program.program), "--config", str(config)], environment) as process:
        asyncio.run(_started(plane, certificates, health, process))
        yield process


async def _started(plane: ControlPlane, certificates: Path, health: int, process: Process) -> None:
    async with KubeClient(plane.admin) as client:
        await _mount(client, certificates, process)
    await until_ready(health, process)


async def _mount(client: KubeClient, folder: Path, process: Process) -> None:
    """Write the Secret's files where Kueue looks for them, once it has filled it."""
    patience = Patience(process)
    while not (data := (await client.get(SECRET)).get("data") or {}).get("tls.crt"):
        await patience.wait()
    for name, content in data.items():
        (folder / name).write_bytes(base64.b64decode(content))
