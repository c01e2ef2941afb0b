"""An API server for a benchmark, embedded in this process or real, with nothing on it.

Used by `capacity_day`, `phased_hour` and `consolidation_race`. The real one is etcd, kube-apiserver and
kube-controller-manager, found or built as by ``make test-real``.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "controlplane"))

from binaries import find_or_build, tell_on_stderr
from control_plane import ControlPlane, control_plane
from operator_program import Reachable

from cotide_kube.credentials import Credentials
from cotide_sim.apiserver.server import ApiServer

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
SERVERS: Final = ("emulator", "real")
SKIP_CODE: Final = 77
"""Of a program that finds no real API server (`binaries.NotToBeHad`)."""
STILL: Final = dict.fromkeys(("node-monitor-grace-period", "node-startup-grace-period"), "1h")
"""Who judges nodes by their leases is not asked to: those of fast nodes are renewed by the wall, and a busy machine
makes nodes seem dead for a moment."""


class RealServer:
    """kube-apiserver, as `operator_program` needs it.

    Parameters
    ----------
    user : whose kubeconfig programs get: ``admin``, or one that `ControlPlane.kubeconfig` has written.
    """

    def __init__(self, plane: ControlPlane, user: str = "admin") -> None:
        self._plane, self._user = plane, user

    def kubeconfig(self) -> str:
        return (self._plane.folder / f"{self._user}.kubeconfig").read_text(encoding="utf-8")


@contextlib.contextmanager
def real_server(folder: Path) -> Iterator[ControlPlane]:
    """Run etcd, kube-apiserver and kube-controller-manager.

    Raises
    ------
    NotToBeHad
        Where they are not there and can't be built.
    """
    with control_plane(find_or_build(tell_on_stderr), folder) as plane:
        plane.start_controller_manager(STILL)
        plane.wait_for_accounts()
        yield plane


@contextlib.asynccontextmanager
async def reached(plane: ControlPlane | None) -> AsyncIterator[tuple[Reachable, Credentials]]:
    """Give the real server and its administrator, or where there is none an embedded one."""
    if plane is not None:
        yield RealServer(plane), plane.admin
        return
    server = ApiServer()
    await server.start()
    try:
        yield server, Credentials(server.url)
    finally:
        await server.stop()


async def as_installed(plane: ControlPlane, *folders: str) -> RealServer:
    """Install kinds and rights from these folders of ``deploy``; return the server as the operator's account sees it.

    The namespace of the operator is there already.
    """
    for folder in ("crds", "rbac", *folders):
        where = str(DEPLOY / folder)
        command = [plane.kubectl, "--kubeconfig", str(plane.folder / "admin.kubeconfig"), "apply", "-k", where]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    account = "cotide-operator"
    plane.kubeconfig(account, token=await plane.token("cotide-system", account))
    return RealServer(plane, account)
