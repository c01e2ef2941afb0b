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
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Final

import aiohttp
import yaml
from control_plane import ControlPlane, free_port
from module_program import ModuleProgram
from processes import Process

NAMESPACE: Final = "capi-system"
LEFT_OUT: Final = ("Deployment", "Certificate", "Issuer", "Service")
DEADLINE_SECONDS: Final = 120.0
"""Chosen: it starts within ten seconds on an idle machine."""
Json = dict[str, Any]


def manifests(plane: ControlPlane, program: ModuleProgram, port: int) -> list[Json]:
    """Return what its release applies, with the webhooks on a port of this machine."""
    built = subprocess.run(
        [plane.kubectl, "kustomize", str(program.manifests)], capture_output=True, text=True, check=True
    )
    found = [one for one in yaml.safe_load_all(built.stdout) if one and one["kind"] not in LEFT_OUT]
    authority = base64.b64encode(plane.authority.path.read_bytes()).decode()
    for one in found:
        for asked in _client_configurations(one):
            path = asked.pop("service")["path"]
            asked |= {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
    return found


def _client_configurations(document: Json) -> list[Json]:
    """Return where a document says whom the API server asks."""
    asked = [webhook["clientConfig"] for webhook in document.get("webhooks") or ()]
    conversion = document.get("spec", {}).get("conversion") if document["kind"] == "CustomResourceDefinition" else None
    if conversion is not None:
        asked.append(conversion["webhook"]["clientConfig"])
    return asked


@contextlib.contextmanager
def cluster_api(plane: ControlPlane, program: ModuleProgram) -> Iterator[Process]:
    """Install Cluster API and run its controllers."""
    port, health, folder = free_port(), free_port(), plane.folder / "cluster-api"
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    for made, name in zip(plane.authority.server("cluster-api"), ("tls.crt", "tls.key"), strict=True):
        shutil.copy(made, certificates / name)
    applied = folder / "cluster-api.yaml"
    applied.write_text(yaml.safe_dump_all(manifests(plane, program, port)), encoding="utf-8")
    admin = str(plane.folder / "admin.kubeconfig")
    command = [plane.kubectl, "--kubeconfig", admin, "apply", "--server-side", "-f", str(applied)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
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
    process = plane.pen.start("cluster-api", command)
    try:
        asyncio.run(_ready(health, process))
        yield process
        assert process.exit_code is None, process.text()[-3000:]
    finally:
        process.end(signal.SIGTERM)


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
