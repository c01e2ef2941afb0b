"""Gangs on a real server: members that start together, and a server that has gangs of its own.

Called by the tests of pod groups in tests/real.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from binaries import Binaries
from click.testing import CliRunner
from control_plane import ControlPlane
from manifests import our_pod_manifest
from processes import Pen
from real_cluster import DEPLOY, RealCluster, apply, until_served

from cotide_cli.commands import whatif_command

SIZE: Final = 3


class GangServer(ControlPlane):
    """kube-apiserver with its own gangs switched on."""

    gang_version = ""
    gates = "GenericWorkload=true"

    def api_server_flags(self) -> dict[str, str]:
        """Return its flags."""
        served = f"scheduling.k8s.io/{self.gang_version}=true"
        return {**super().api_server_flags(), "feature-gates": self.gates, "runtime-config": served}


@contextmanager
def gang_server(binaries: Binaries, folder: Path, version: str, *more_gates: str) -> Iterator[ControlPlane]:
    """Run such a server with deploy/ applied; ``version`` of scheduling.k8s.io, more gates for the controllers, too."""
    with Pen(folder) as pen:
        plane = GangServer(binaries, folder, pen)
        plane.gang_version = version
        plane.gates = ",".join([GangServer.gates, *(f"{gate}=true" for gate in more_gates)])
        plane.start()
        plane.start_controller_manager({"feature-gates": plane.gates})
        plane.wait_for_accounts()

        async def deploy() -> None:
            await apply(plane, DEPLOY / "overlays" / "reclaimed")
            await until_served(plane)

        asyncio.run(deploy())
        yield plane


async def until_told(cluster: RealCluster, words: str) -> None:
    """Wait for a pod that is told these words: by its condition, since an event comes once in a while only."""

    async def told() -> bool:
        pods = await cluster.client.list(cluster.pods)
        said = [one for pod in pods for one in pod["status"].get("conditions") or () if one["type"] == "PodScheduled"]
        return any(words in one.get("message", "") for one in said)

    await cluster.until(f"a pod is told {words!r}", told)


async def start_whole(cluster: RealCluster, **parts: Any) -> None:
    """Make the members one by one and see that they start together."""
    names = [f"member-{number}" for number in range(SIZE)]
    for name in names[:-1]:
        await cluster.client.create(cluster.pods, our_pod_manifest(name, "1", "64Mi", cls="batch", **parts))
    await until_told(cluster, f"2 of {SIZE} are present and can start")
    assert await cluster.placed() == {}
    await cluster.client.create(cluster.pods, our_pod_manifest(names[-1], "1", "64Mi", cls="batch", **parts))

    async def all_placed() -> bool:
        return (await cluster.placed()).keys() == set(names)

    await cluster.until("all three are on nodes", all_placed)


async def moves_whole(cluster: RealCluster) -> None:
    """Ask `cotide whatif` about a node with pods of the gang: without its size they would wait as Misconfigured.

    The nodes have names of their own: on those of every test's there may be pods that an earlier one left.
    """
    node = next(iter((await cluster.placed()).values()))
    kubeconfig = str(cluster.plane.folder / "admin.kubeconfig")
    asked = ["--kubeconfig", kubeconfig, "--without-node", node, "-o", "json"]
    result = await asyncio.to_thread(CliRunner().invoke, whatif_command.command, asked, standalone_mode=False)
    assert result.exception is None, result.exception
    answer = json.loads(result.stdout)
    lost = {f"{cluster.namespace}/{name}" for name, on in (await cluster.placed()).items() if on == node}
    ours = {one["pod"] for one in answer["moves"] if one["pod"].startswith(f"{cluster.namespace}/")}
    assert ours == lost, answer
    assert (answer["waits"], answer["evicted"]) == ([], [])
