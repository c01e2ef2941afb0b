"""The third server of the end-to-end tests: kube-apiserver with real kubelets, containerd and runc behind it.

A test asks for nodes by name and size, as it does on the other two; here each is a kubelet. The size is made up, as the
machine has two cpus: where the kubelet looks for cpus and memory it finds files of ours. All else is real: containers
are pulled from a registry on loopback, run in control groups, and end by signals. A runtime stays for the whole run (a
seat); kubelets come and go with the tests. Called by the conftest of ``tests/e2e`` for ``--server node``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import images
from binaries import Binaries
from node_programs import NodePrograms
from real_nodes import PAUSE, PAUSING, SERVICE_ADDRESS, NodePlane, RealNode, node_plane
from registry import registry
from relay import Relay, relaying
from servers import ENDS, STUBBORN, RealServer, Server

from cotide_core.units import resource_amount
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_sim.kubelets.fleet import Fleet, FleetSettings

SIGNALS: Final = {"Succeeded": "SIGUSR1", "Failed": "SIGUSR2"}
"""What makes the containers of `IMAGES` end so."""
ON_SIGNALS: Final = "trap 'exit 0' USR1; trap 'exit 1' USR2; "
FOR_EVER: Final = "while :; do sleep 3600 & wait $!; done"
LEAVES: Final = f"{ON_SIGNALS}trap 'exit 143' TERM; {FOR_EVER}"
IMAGES: Final = {
    **dict.fromkeys(("x", "i", "none"), LEAVES),
    STUBBORN: f"{ON_SIGNALS}trap '' TERM; {FOR_EVER}",
    ENDS: "sleep 1",
}
"""Scripts of the images that end-to-end tests name: fake nodes run any, here each must do something."""
LARGEST_CPUS: Final = 64
"""Of any node that a test asks for."""
OVER_SECONDS: Final = 90.0
"""Chosen: how long the containers of a test may take to be gone after it."""


@dataclass(frozen=True, slots=True)
class MachineSize:
    """What a kubelet takes its machine for."""

    cpus: int
    memory_bytes: int


class Seat(RealNode):
    """A container runtime that stays, and kubelets that come under names and sizes of the tests' choice."""

    def __init__(
        self, number: int, plane: NodePlane, binaries: Binaries, programs: NodePrograms, registry_url: str
    ) -> None:
        self._registry_url = registry_url
        self.taken = False
        # All of a node's size is for pods, as on nodes that tests write themselves.
        whole = {"systemReserved": {}, "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%"}}
        super().__init__(number, plane, binaries, programs, whole)

    def take(self, name: str, size: MachineSize) -> None:
        """Start a kubelet that goes by a name and takes its machine for one of this size."""
        self.name, self.taken = name, True
        self._identify()
        self._pretend(size)
        self.start_kubelet()

    def leave(self) -> None:
        if self.taken:
            self.stop_kubelet()
            self.taken = False

    def tasks(self) -> list[str]:
        """Return the ids of all containers that run here, those that hold a pod's namespaces included."""
        return self.ctr("tasks", "list", "-q").split()

    def signal(self, container: str, number: str) -> None:
        """Signal a container's first process; one that has ended meanwhile hears nothing."""
        with contextlib.suppress(RuntimeError):
            self.ctr("tasks", "kill", "--signal", number, container)

    def _mirror(self) -> str:
        return f"""[plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
endpoint = ["{self._registry_url}"]
"""

    def _mounts(self) -> list[str]:
        """Put what the kubelet reads of its machine under our hand (cadvisor's ``machine.Info``)."""
        for folder in ("node", "cpu"):
            (self._folder / folder).mkdir()
        (self._folder / "meminfo").touch()
        shown = [
            f"mount --bind {self._folder}/{name} {where}"
            for name, where in (
                ("node", "/sys/devices/system/node"),
                ("cpu", "/sys/devices/system/cpu"),
                ("meminfo", "/proc/meminfo"),
            )
        ]
        return [*super()._mounts(), *shown]

    def _pretend(self, size: MachineSize) -> None:
        kibibytes = size.memory_bytes // 1024
        total = f"MemTotal: {kibibytes} kB\nMemFree: {kibibytes} kB\nSwapTotal: 0 kB\n"
        (self._folder / "meminfo").write_text(total, encoding="ascii")
        # Cpus without a topology: with one, the kubelet would hold its pods to cpus that are not there.
        for number in range(LARGEST_CPUS):
            cpu = self._folder / "cpu" / f"cpu{number}"
            if number < size.cpus:
                cpu.mkdir(exist_ok=True)
            elif cpu.exists():
                cpu.rmdir()


class Seats:
    """A control plane, and as many seats as any test has asked for so far."""

    def __init__(self, plane: NodePlane, make: Callable[[int], Seat]) -> None:
        self.plane, self._make = plane, make
        self._all: list[Seat] = []

    @property
    def taken(self) -> Sequence[Seat]:
        return [one for one in self._all if one.taken]

    def named(self, name: str) -> Seat:
        return next(one for one in self.taken if one.name == name)

    def take(self, name: str, size: MachineSize) -> None:
        free = next((one for one in self._all if not one.taken), None)
        if free is None:
            free = self._make(len(self._all) + 1)
            self._all.append(free)
        free.take(name, size)

    def empty(self) -> None:
        """Wait until no container runs and end the kubelets; their pods must have been deleted."""
        deadline = time.monotonic() + OVER_SECONDS
        for seat in self.taken:
            while left := seat.tasks():
                if time.monotonic() > deadline:
                    raise RuntimeError(f"containers are left on {seat.name}:\n{seat.kubelet.text()[-3000:]}")
                for task in left:  # whoever does not listen to SIGTERM would be waited for
                    seat.signal(task, "SIGKILL")
                time.sleep(0.3)
            seat.leave()


class NodeServer(RealServer):
    """A real API server whose nodes are kubelets; one for all tests, wiped for each."""

    deadline_seconds = 180.0
    webhook_host = "0.0.0.0"  # noqa: S104 - an endpoint may not be a loopback address, and nobody else is in the machine

    def __init__(self, seats: Seats, relay: Relay) -> None:
        super().__init__(seats.plane, relay)
        self._seats = seats

    async def join(
        self,
        client: KubeClient,
        *names: str,
        cpu: str = "4",
        memory: str = "16Gi",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        size = MachineSize(resource_amount("cpu", cpu) // 1000, resource_amount("memory", memory))
        for name in names:
            await asyncio.to_thread(self._seats.take, name, size)

        async def ready() -> bool:
            conditions = {
                one["metadata"]["name"]: {each["type"]: each["status"] for each in one["status"].get("conditions", ())}
                for one in await client.list("/api/v1/nodes")
            }
            return all(conditions.get(name, {}).get("Ready") == "True" for name in names)

        await self.until(f"the kubelets {names} are ready", ready)
        for name in names if labels else ():
            await client.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": dict(labels or {})}})

    async def becomes(self, client: KubeClient, path: str, phase: str, **_: Any) -> None:
        async def runs() -> bool:
            status = (await client.get(path))["status"]
            ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))
            return status.get("phase") == "Running" and ready

        await self.until(f"{path} runs", runs)
        if phase == "Running":
            return
        pod = await client.get(path)
        for one in pod["status"]["containerStatuses"]:
            container = one["containerID"].removeprefix("containerd://")
            seat = self._seats.named(pod["spec"]["nodeName"])
            await asyncio.to_thread(seat.signal, container, SIGNALS[phase])

        async def ended() -> bool:
            return bool((await client.get(path))["status"].get("phase") == phase)

        await self.until(f"{path} is {phase}", ended)

    @asynccontextmanager
    async def kubelets(self, client: KubeClient, settings: FleetSettings) -> AsyncIterator[Fleet | None]:
        shape = settings.shape
        cpu, memory = f"{shape.millicores}m", str(shape.memory_bytes)
        await self.join(client, *settings.names[: settings.on], cpu=cpu, memory=memory, labels=shape.labels)
        yield None

    def pace(self, speed: float) -> float:
        return 1.0

    async def lead_service(self, client: KubeClient, namespace: str, name: str, port: int) -> None:
        # This API server asks endpoints, so that webhooks in pods are reached: it knows no names of other hosts.
        labels = {"kubernetes.io/service-name": name}
        slices = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [SERVICE_ADDRESS]}],
            "ports": [{"name": "", "port": port}],
        }
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}}
        body = {**service, "spec": {"ports": [{"port": port, "targetPort": port}]}}
        await client.patch(f"/api/v1/namespaces/{namespace}/services/{name}", body, "apply")
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}"
        await client.patch(path, slices, "apply")

    async def wipe(self) -> None:
        async with KubeClient(self._plane.admin) as client:
            for kind in ("jobs", "workloads"):  # an owner's pods come back
                for one in await _all(client, f"/apis/cotide.dev/v1alpha1/{kind}"):
                    await _gone(client, f"/apis/cotide.dev/v1alpha1/namespaces/{_path(one, kind)}")
            for pod in await client.list("/api/v1/pods"):
                await _gone(client, f"/api/v1/namespaces/{_path(pod, 'pods')}")
        await asyncio.to_thread(self._seats.empty)
        await super().wipe()


async def _all(client: KubeClient, path: str) -> Sequence[dict[str, Any]]:
    with contextlib.suppress(ApiError):  # our kinds may not be known
        return list(await client.list(path))
    return ()


async def _gone(client: KubeClient, path: str) -> None:
    with contextlib.suppress(ApiError):  # gone meanwhile
        await client.delete(path, grace_seconds=0)


def _path(one: dict[str, Any], plural: str) -> str:
    return f"{one['metadata']['namespace']}/{plural}/{one['metadata']['name']}"


@contextmanager
def seats(binaries: Binaries, programs: NodePrograms, folder: Path) -> Iterator[Seats]:
    """Run a control plane and a registry, to which kubelets come when tests ask for them."""
    shell = images.busybox(programs.busybox)
    archive = folder / "pause.tar"
    archive.write_bytes(images.oci_archive(PAUSE, shell, PAUSING))
    held = {name: images.oci_image(shell, ["/bin/sh", "-c", script]) for name, script in IMAGES.items()}
    with registry(held) as url, node_plane(binaries, folder) as plane:

        def make(number: int) -> Seat:
            made = Seat(number, plane, binaries, programs, url)
            made.import_image(archive)
            return made

        yield Seats(plane, make)


@asynccontextmanager
async def on_nodes(found: Seats) -> AsyncIterator[Server]:
    """Give a test the real server with no kubelet on it yet."""
    async with relaying(found.plane.admin) as relay:
        server = NodeServer(found, relay)
        await server.wipe()
        yield server
