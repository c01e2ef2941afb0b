"""Two versions side by side, the older one's own code: a roll-out, a roll-back and a kill between them lose nothing.

The older code comes from the history of the repository (`git archive`), with the dependencies of today. Replicas hand
over to each other through the Lease, the notes on pods and our two resources, as in a Deployment that is rolled.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from operator_world import PODS, QUICK_LEASE, World, starts_of
from programs import HEAD, Running, running
from servers import Server

from cotide_kube.client import KubeClient
from cotide_kube.objects import Metadata
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

ROOT: Final = Path(__file__).resolve().parents[3]
BEFORE: Final = os.environ.get("COTIDE_OLDER", "7f015d659ee034287f8ab6759ec1fc5e78fceae0")
"""The version before: a commit, or a tag once there is one. Chosen: what had landed when this test came."""
JOBS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
COMPLETIONS: Final = 6

pytestmark = pytest.mark.fake_nodes("pods that end by themselves, under operators that come and go")


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the version before, as its commit has them."""
    asked = ["git", "-C", str(ROOT), "archive", BEFORE, "operator", "predictors", "sim"]
    made = subprocess.run(asked, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no history with {BEFORE} here: {made.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class Replicas:
    """Operators of either version, each a program of its own."""

    def __init__(self, server: Server, folder: Path, older: Path) -> None:
        self._server, self._folder = server, folder
        self._older = os.pathsep.join(str(older / name) for name in ("operator", "predictors", "sim"))
        self._config = folder / "cotide.yaml"
        self._config.write_text(HEAD + QUICK_LEASE + "policy: qpsm\n", encoding="utf-8")
        self.all: list[Running] = []

    @asynccontextmanager
    async def one(self, version: str) -> AsyncIterator[Running]:
        """Run a replica until the block ends; it is ready, as leader or standby."""
        environment = dict(os.environ)
        if version == "older":
            environment["PYTHONPATH"] = self._older
        log = self._folder / f"{len(self.all)}-{version}.log"
        kubeconfig = str(self._server.kubeconfig(self._folder))
        arguments = ("--kubeconfig", kubeconfig, "--config", str(self._config), "--install-crds")
        async with running(self._server, log, *arguments, env=environment) as replica:
            self.all.append(replica)
            await replica.until_ready()
            yield replica


def of_job_and_index(pod: Metadata) -> str:
    return f"{pod.labels.get('cotide.dev/job', '')}/{pod.labels.get('cotide.dev/index', '')}"


async def work(world: World, name: str) -> None:
    """Submit a Job of several pods, and some pods by themselves."""
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "200m"}}}
    template = {"metadata": {"annotations": {"sim.cotide.dev/lone-seconds": "1"}}, "spec": {"containers": [container]}}
    spec = {"class": "batch", "type": "sort", "completions": COMPLETIONS, "parallelism": 3, "template": template}
    body = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    await world.client.create(JOBS, body)
    await world.pods(3, cpu="100m", prefix=f"{name}-alone-")


async def all_done(world: World, *names: str) -> None:
    """Wait until the Jobs have succeeded and every pod has a node."""

    async def done() -> bool:
        jobs = {one["metadata"]["name"]: one.get("status", {}) for one in await world.client.list(JOBS)}
        placed = await world.placed()
        return all(jobs[name].get("phase") == "Succeeded" for name in names) and all(
            f"{name}-alone-{number}" in placed for name in names for number in range(3)
        )

    await world.until(f"{', '.join(names)} done", done)


async def gone(world: World) -> bool:
    return not [pod for pod in await world.client.list(PODS) if "cotide.dev/job" in pod["metadata"].get("labels", {})]


async def test_versions_hand_over_to_each_other_and_nothing_is_lost_or_run_twice(
    server: Server, tmp_path: Path, older: Path
) -> None:
    replicas = Replicas(server, tmp_path, older)
    settings = FleetSettings(GeneratedInterference(), count=3, shape=NodeShape(millicores=8000))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(server.credentials))
        await server.until_accounts(client, "default")
        world = World(server, client)
        await stack.enter_async_context(running_fleet(client, settings))
        await server.until_open(client)
        starts = await stack.enter_async_context(starts_of(client, of_job_and_index))
        first = await stack.enter_async_context(replicas.one("older"))
        await work(world, "before")
        second = await stack.enter_async_context(replicas.one("newer"))
        await work(world, "rolled")
        await first.end(signal.SIGTERM)  # a roll-out: the newer one takes over in the middle of it
        await all_done(world, "before", "rolled")
        third = await stack.enter_async_context(replicas.one("older"))
        await work(world, "back")
        await second.end(signal.SIGKILL)  # a roll-back, by force
        await all_done(world, "back")
        await stack.enter_async_context(replicas.one("newer"))
        await work(world, "again")
        await third.end(signal.SIGTERM)
        await all_done(world, "again")
        succeeded: list[Any] = [one["status"]["succeeded"] for one in await client.list(JOBS)]
        for name in ("before", "rolled", "back", "again"):
            await client.delete(f"{JOBS}/{name}")
        await world.until("what either version kept of their pods is let go", lambda: gone(world))
    assert succeeded == [COMPLETIONS] * 4
    names = ("before", "rolled", "back", "again")
    del starts["/"]  # the pods by themselves
    once = {f"{name}/{index}": 1 for name in names for index in range(COMPLETIONS)}
    assert {index: len(uids) for index, uids in starts.items()} == once
    for replica in replicas.all:
        assert "Traceback" not in replica.text(), replica.text()
