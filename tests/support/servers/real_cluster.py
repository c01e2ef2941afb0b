"""deploy/ applied to a real API server, fake nodes, and operators as processes with their ServiceAccount's rights.

Called by the tests of this folder. Programs are started as a user starts them; each ends with the block that started
it, and an operator must then have left with exit code 0 and without a traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from control_plane import ControlPlane, free_port
from processes import Process
from repository import ROOT

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

DEPLOY: Final = ROOT / "deploy"
DEADLINE_SECONDS: Final = 120.0
"""Chosen: generous, for machines that do other things as well."""
HEAD: Final = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"
ALONE: Final = "leaderElection: {enabled: false}\n"


class RealCluster:
    """A control plane and one test's namespace on it."""

    def __init__(self, plane: ControlPlane, client: KubeClient, namespace: str) -> None:
        self.plane, self.client, self.namespace = plane, client, namespace
        self.kubelets: Process | None = None
        """The fake nodes of the test, while there are any."""

    def path(self, plural: str, group: str = "v1") -> str:
        """Return the collection of a kind in the test's namespace; ``group`` as in apps/v1."""
        return f"/{'api' if group == 'v1' else 'apis'}/{group}/namespaces/{self.namespace}/{plural}"

    @property
    def pods(self) -> str:
        return self.path("pods")

    @property
    def jobs(self) -> str:
        return self.path("jobs", "cotide.dev/v1alpha1")

    async def until(self, what: str, check: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> Any:
        """Wait on a condition with a deadline and return what it found."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = check()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.05)
        pods = [
            (
                pod["metadata"]["name"],
                pod["spec"].get("nodeName"),
                pod["status"].get("phase"),
                pod["status"].get("conditions"),
            )
            for pod in await self.client.list(self.pods)
        ]
        pytest.fail(f"never came true: {what}; pods: {pods}")

    async def phase(self, job: str) -> str:
        return str((await self.client.get(f"{self.jobs}/{job}")).get("status", {}).get("phase"))

    async def placed(self, selector: str = "") -> dict[str, str]:
        """Node by pod name, of the pods that have one."""
        pods = await self.client.list(self.pods, {"labelSelector": selector} if selector else None)
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    async def remove_pods(self) -> None:
        """Delete the test's pods at once: no kubelet ends them when the fake nodes are gone."""
        for pod in await self.client.list(self.pods):
            path = f"{self.pods}/{pod['metadata']['name']}"
            with contextlib.suppress(ApiError):
                await self.client.delete(path, grace_seconds=0)
                # Nor does anybody count those of Jobs.
                await self.client.patch(path, {"metadata": {"finalizers": None}})

    @contextlib.asynccontextmanager
    async def nodes(self, count: int, *options: str) -> AsyncIterator[int]:
        """Run fake nodes; yields the port of their metrics."""
        port = free_port()
        arguments = ["--kubeconfig", str(self.plane.folder / "admin.kubeconfig"), "--cleanup", "--count", str(count)]
        self.kubelets = process = self._start("nodes", [*arguments, "--metrics-port", str(port), *options])
        try:
            await self.until(
                "the nodes are ready", lambda: f":{port}/metrics\n" in process.text() or process.exit_code is not None
            )
            assert process.exit_code is None, process.text()

            async def untainted() -> bool:
                nodes = await self.client.list("/api/v1/nodes")
                return len(nodes) == count and not any(node["spec"].get("taints") for node in nodes)

            # The node lifecycle controller opens a node that is ready, as on any cluster.
            await self.until("the nodes are open", untainted)
            yield port
        finally:
            process.end(signal.SIGTERM)

    @contextlib.asynccontextmanager
    async def operator(
        self,
        text: str = ALONE,
        *,
        name: str = "operator",
        leads: bool = True,
        through: str = "",
        account: str = "cotide-operator",
        source: Path | None = None,
    ) -> AsyncIterator[Process]:
        """Run an operator with its ServiceAccount's token; it must end well unless the test killed it.

        ``through`` is the address of what stands between it and the server, if anything does; ``source`` the tree of
        another version of the program.
        """
        token = await self.plane.token("cotide-system", account)
        kubeconfig = self.plane.kubeconfig(f"cotide-{name}", token=token, url=through)
        config = self.plane.folder / f"{name}.yaml"
        config.write_text(HEAD + text, encoding="utf-8")
        port = free_port()
        arguments = ["--kubeconfig", str(kubeconfig), "--config", str(config), "--metrics-port", str(port)]
        process = self._start(name, arguments, "operator", source)
        try:
            await self.until("the operator is ready", lambda: self._ready(process, port))
            if leads:
                await self.until("the operator decides", lambda: "deciding with policy" in process.text())
            yield process
        finally:
            if process.exit_code is None:
                code = process.end(signal.SIGTERM)
                said = process.text()
                assert code == 0, said
                assert "Traceback" not in said, said
                assert not re.search(r"^\S+ ERROR ", said, flags=re.MULTILINE), said
            process.end()

    async def _ready(self, process: Process, port: int) -> bool:
        assert process.exit_code is None, process.text()
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                return answer.status == 200
        return False

    def _start(self, name: str, arguments: list[str], command: str = "nodes", source: Path | None = None) -> Process:
        environment = {"KUBECONFIG": "", "PYTHONUNBUFFERED": "1"}
        if source is not None:
            packages = [str(source / one) for one in ("operator", "predictors", "sim")]
            environment["PYTHONPATH"] = os.pathsep.join(packages)
        return self.plane.pen.start(name, [sys.executable, "-m", "cotide_cli", command, *arguments], environment)

    def kubectl(self, *arguments: str, namespaced: bool = True) -> str:
        """Run kubectl as administrator; what it says on stderr is a failure, warnings included."""
        done = kubectl(self.plane, *(["-n", self.namespace] if namespaced else []), *arguments)
        assert (done.returncode, done.stderr) == (0, ""), (arguments, done.stdout, done.stderr)
        return done.stdout


def kubectl(plane: ControlPlane, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(plane.folder / "admin.kubeconfig")}
    return subprocess.run(
        [plane.kubectl, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


async def apply(plane: ControlPlane, folder: Path, *, dry_run: bool = False) -> None:
    """Apply a kustomized folder with kubectl."""
    options = ["--server-side", "--dry-run=server"] if dry_run else ["--server-side"]
    done = kubectl(plane, "apply", *options, "-k", str(folder))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


async def until_served(plane: ControlPlane) -> None:
    """Wait until our kinds are served: a definition takes a moment to be."""
    async with KubeClient(plane.admin) as client:
        deadline = time.monotonic() + DEADLINE_SECONDS
        for plural in ("jobs", "workloads"):
            while True:
                try:
                    await client.list(f"/apis/cotide.dev/v1alpha1/{plural}")
                except ApiError:
                    assert time.monotonic() < deadline, f"{plural} are not served"
                    await asyncio.sleep(0.05)
                else:
                    break
