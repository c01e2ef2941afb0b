"""An overlay of `deploy/` as it is, on real nodes that have the image: applied, awaited, and taken away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
from control_plane import ControlPlane
from real_cluster import DEPLOY, RealCluster, apply, kubectl, until_served

from cotide_kube.client import KubeClient

SPACE: Final = "cotide-system"
NAME: Final = "cotide-operator"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{SPACE}/deployments/{NAME}"
NAMES: Final = ("docker.io/library/cotide:dev", f"docker.io/library/cotide:{version('cotide')}")
"""What the overlays' images mean to a container runtime."""
UNINSTALL_SECONDS: Final = 300.0
START_SECONDS: Final = 240.0
"""For an operator's pod to be ready while tens of containers start on the same two processors; chosen."""


class Overlay:
    """The operator of an overlay."""

    def __init__(self, plane: ControlPlane, client: KubeClient) -> None:
        self.plane, self.client = plane, client
        self.cluster = RealCluster(plane, client, "default")
        self._space = RealCluster(plane, client, SPACE)
        """Where a wait that fails shows the operator's own pods."""

    async def pods(self) -> list[dict[str, Any]]:
        """Return the operator's pods."""
        selector = {"labelSelector": f"app.kubernetes.io/name={NAME}"}
        return list(await self.client.list(f"/api/v1/namespaces/{SPACE}/pods", selector))

    async def ready(self) -> bool:
        """Whether all replicas that are wanted are ready, and no other is there."""
        found = await self.client.get(DEPLOYMENT)
        wanted, status = found["spec"]["replicas"], found.get("status", {})
        return wanted > 0 and [status.get(one) for one in ("readyReplicas", "replicas")] == [wanted, wanted]

    async def until_ready(self, what: str = "the operator is ready") -> None:
        """Wait for that; a failure shows logs and events."""
        try:
            await self.cluster.until(what, self.ready, START_SECONDS)
        except pytest.fail.Exception:
            print(await self.logs())
            print([pod["status"] for pod in await self.pods()])
            print(self.kubectl("get", "events"))
            raise

    async def until_replaced(self, before: set[str]) -> None:
        """Wait until all is ready and none of the pods with these uids is there."""

        async def replaced() -> bool:
            return await self.ready() and not before & {pod["metadata"]["uid"] for pod in await self.pods()}

        await self._space.until("the operator's pods were replaced", replaced, START_SECONDS)

    async def logs(self) -> str:
        """Return what the operator's pods said."""
        return "\n".join([self.kubectl("logs", pod["metadata"]["name"]) for pod in await self.pods()])

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the operator's namespace."""
        return kubectl(self.plane, "-n", SPACE, *arguments).stdout

    async def uninstall(self) -> None:
        """Run the script of that name; nothing of ours may be left."""
        environment = {
            **os.environ,
            "PATH": f"{Path(self.plane.kubectl).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.plane.folder / "admin.kubeconfig"),
        }
        command = ["bash", str(DEPLOY / "uninstall.sh"), "--yes"]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, env=environment,
            timeout=UNINSTALL_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "cotide" not in kubectl(self.plane, "get", "crd,clusterrole,ns,priorityclass", "-o", "name").stdout


@asynccontextmanager
async def overlay_of(name: str, plane: ControlPlane, client: KubeClient) -> AsyncIterator[Overlay]:
    """Apply an overlay and wait until it is ready; uninstalled at the end, without a trace where all went well."""
    await apply(plane, DEPLOY / "crds")
    await until_served(plane)
    await apply(plane, DEPLOY / "overlays" / name)
    found = Overlay(plane, client)
    try:
        await found.until_ready()
        yield found
    except BaseException:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            await found.uninstall()  # the next test begins with a cluster of its own
        raise
    await found.uninstall()
