"""Cluster API beside a real API server: its own manifests, its ServiceAccount's rights, its webhooks led here.

Called by the conftest of tests/real/cluster_api. Of the release's manifests are left out its Deployment (it runs as a
process) and what cert-manager would make: the certificate of its webhooks is of the control plane's authority, and they
are asked at an address of this machine. Its infrastructure provider is `machine_provider`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
from collections.abc import Iterator
from typing import Final

from control_plane import ControlPlane, free_port
from module_beside import Json, apply_all, client_configurations, released, running, until_ready
from module_program import ModuleProgram
from processes import Process

NAMESPACE: Final = "capi-system"
LEFT_OUT: Final = ("Deployment", "Certificate", "Issuer", "Service")


def manifests(plane: ControlPlane, program: ModuleProgram, port: int) -> list[Json]:
    """Return what its release applies, with the webhooks on a port of this machine."""
    found = released(plane, program, LEFT_OUT)
    authority = base64.b64encode(plane.authority.path.read_bytes()).decode()
    for one in found:
        for asked in client_configurations(one):
            path = asked.pop("service")["path"]
            asked |= {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
    return found


@contextlib.contextmanager
def cluster_api(plane: ControlPlane, program: ModuleProgram) -> Iterator[Process]:
    """Install Cluster API and run its controllers."""
    port, health, folder = free_port(), free_port(), plane.folder / "cluster-api"
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    for made, name in zip(plane.authority.server("cluster-api"), ("tls.crt", "tls.key"), strict=True):
        shutil.copy(made, certificates / name)
    apply_all(plane, manifests(plane, program, port), folder / "cluster-api.yaml")
    token = asyncio.run(plane.token(NAMESPACE, "capi-manager"))
    flags = {
        "kubeconfig": str(plane.kubeconfig("cluster-api", token=token)),
        "webhook-port": str(port),
        "webhook-cert-dir": str(certificates),
        "health-addr": f"127.0.0.1:{health}",
        "diagnostics-address": "0",
        "kube-api-qps": "500",
        "kube-api-burst": "1000",
    }
    command = [str(program.program), *(f"--{name}={value}" for name, value in flags.items())]
    with running(plane, "cluster-api", command) as process:
        asyncio.run(until_ready(health, process))
        yield process
