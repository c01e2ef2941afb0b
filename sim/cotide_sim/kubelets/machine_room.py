"""Machines that are switched on and off over HTTP, and that are nodes of a live API server while they are on.

Used by tests, the chaos runs and the simulated day of capacity. A node actuator's webhook posts ``{"action", "subject",
"kind"}`` here. A started machine boots, which may be late or fail, and registers as a node with the order's label.
Answers get lost or arrive twice as configured in `Mishaps`. Invariants: a started id is not started again, which
`started` counts; a machine is not cancelled after its node has joined; the same seed gives the same mishaps in the same
order of requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import orjson
from aiohttp import web

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_sim.kubelets.fake_nodes import Mishaps

OK, GONE, FAILED, NOT_NOW, SILENT = 200, 410, 422, 409, 503
AT_FIRST: Final = "at first"
"""The order of a machine that was on from the beginning."""
LATE_FACTOR: Final = 10.0
"""Factor of a late boot, as in `fake_nodes`."""


class Power(Protocol):
    """Turns a machine into a node, and removes it: `fleet.Fleet`."""

    async def switch_on(self, name: str, labels: Mapping[str, str]) -> None:
        """Register the node with these labels in addition to its own."""
        ...

    async def switch_off(self, name: str) -> None:
        """Remove the node from the cluster; its pods stop."""
        ...


@dataclass(frozen=True, slots=True)
class Rack:
    """Machines of one type: the names of their nodes; the first ``on`` of them are on."""

    power: Power
    names: Sequence[str]
    on: int = 0


@dataclass(slots=True)
class _Machine:
    """A machine: the order that it was started for, and its node."""

    node: str
    order: str = ""
    boot: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Switched:
    """The actions so far, for checks.

    Attributes
    ----------
    started : number of starts for each order. stopped : number of switch-offs of each node.
    lost : pods that ran on a node when it was switched off, ``namespace/name``, other than those that had ended.
    most : by type, the largest number of machines that were on or booting at one time.
    """

    started: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    most: Counter[str] = field(default_factory=Counter)


class MachineRoom:
    """Machines that are off until they are ordered.

    Parameters
    ----------
    racks : by type. order_label : of a node, for the order that it came from. speed : of simulated time.
    """

    def __init__(
        self,
        client: KubeClient,
        racks: Mapping[str, Rack],
        order_label: str,
        *,
        rng: np.random.Generator,
        mishaps: Mishaps | None = None,
        speed: float = 1.0,
    ) -> None:
        self._client, self._racks, self._label = client, racks, order_label
        self._rng, self.mishaps, self._speed = rng, mishaps or Mishaps(), speed
        self._machines = {
            kind: [_Machine(name, order=AT_FIRST if index < rack.on else "") for index, name in enumerate(rack.names)]
            for kind, rack in racks.items()
        }
        self._failed: set[str] = set()
        self._cancelled: set[str] = set()
        self.switched = Switched()

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a webhook."""
        if self._rng.uniform() < self.mishaps.silent / 2.0:
            return web.Response(status=SILENT)  # as if the request had never arrived
        asked = orjson.loads(await request.read())
        times = 2 if self._rng.uniform() < self.mishaps.twice else 1
        status = SILENT
        for _ in range(times):  # a gateway that retries delivers twice
            status = await self.do(asked["action"], asked["subject"], asked["kind"])
        return web.Response(status=SILENT if self._rng.uniform() < self.mishaps.silent else status)

    async def do(self, action: str, subject: str, kind: str) -> int:
        """Carry out one instruction and return the status of the answer."""
        if action == "start":
            return self._start(subject, kind)
        if action == "cancel":
            return self._cancel(subject, kind)
        return await self._stop(subject, kind)

    def _start(self, order: str, kind: str) -> int:
        if order in self._failed:
            return FAILED
        if order in self._cancelled:
            return GONE
        if self.switched.started[order]:
            return OK
        machine = next((candidate for candidate in self._machines[kind] if not candidate.order), None)
        if machine is None:
            return FAILED
        self.switched.started[order] += 1
        if self._rng.uniform() < self.mishaps.fails:
            self._failed.add(order)
            return FAILED
        late = LATE_FACTOR if self._rng.uniform() < self.mishaps.late else 1.0
        machine.order = order
        machine.boot = asyncio.create_task(self._boot(machine, kind, late * self.mishaps.boot_seconds / self._speed))
        started = sum(bool(candidate.order) for candidate in self._machines[kind])
        self.switched.most[kind] = max(self.switched.most[kind], started)
        return OK

    async def _boot(self, machine: _Machine, kind: str, wall_seconds: float) -> None:
        await asyncio.sleep(wall_seconds)
        while True:
            try:
                await self._racks[kind].power.switch_on(machine.node, {self._label: machine.order})
                return
            except ClusterError:  # a kubelet retries for as long as it runs
                await asyncio.sleep(0.1)

    def _cancel(self, order: str, kind: str) -> int:
        machine = next((candidate for candidate in self._machines[kind] if candidate.order == order), None)
        if machine is not None and machine.boot is not None:
            if machine.boot.done():
                return NOT_NOW
            machine.boot.cancel()
            machine.order, machine.boot = "", None
        self._cancelled.add(order)
        return GONE

    async def _stop(self, node: str, kind: str) -> int:
        machine = next(candidate for candidate in self._machines[kind] if candidate.node == node)
        if not machine.order:
            return GONE
        pods = await self._client.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
        self.switched.lost += [_key(pod) for pod in pods if pod.get("status", {}).get("phase") not in _ENDED]
        self.switched.stopped[node] += 1
        await self._off(machine, kind)
        return OK

    async def vanish(self, kind: str, node: str) -> None:
        """Remove a machine as if it broke: its node is deleted, and its pods with it."""
        await self._off(next(machine for machine in self._machines[kind] if machine.node == node), kind)

    async def _off(self, machine: _Machine, kind: str) -> None:
        await self._racks[kind].power.switch_off(machine.node)
        machine.order, machine.boot = "", None

    def booting(self) -> int:
        """Return the number of started machines that are not a node yet."""
        return sum(machine.boot is not None and not machine.boot.done() for machine in self._all())

    def on(self, kind: str) -> list[str]:
        """Return the nodes of a type that are on and have booted."""
        return [
            machine.node
            for machine in self._machines[kind]
            if machine.order and (machine.boot is None or machine.boot.done())
        ]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve the webhook; yields its URL."""
        app = web.Application()
        app.router.add_post("/nodes", self.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/nodes"
        finally:
            await runner.cleanup()
            boots = [machine.boot for machine in self._all() if machine.boot is not None]
            for boot in boots:
                boot.cancel()
            await asyncio.gather(*boots, return_exceptions=True)

    def _all(self) -> Sequence[_Machine]:
        return [machine for machines in self._machines.values() for machine in machines]


_ENDED: Final = ("Succeeded", "Failed")


def _key(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
