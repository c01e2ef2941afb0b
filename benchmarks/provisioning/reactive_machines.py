"""The simple rival of `capacity_day`: machines switched on and off by thresholds on what pods ask for.

The rule is that of the experiment (`cotide_lab/provisioning/baselines.py`): every five simulated minutes a tenth of
the machines more where what is asked for is above its threshold, and a tenth fewer where it is below; and every minute
machines for pods that wait and fit nothing that is on or boots. What is to go is cordoned, the emptiest nodes of the
least efficient type first; pods of services are evicted from it, Jobs are left to end, and an empty machine is switched
off. What is cordoned is opened again before a machine is started. It reads the API server and switches machines in this
process; it sees no forecast and keeps nothing but what it asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_lab.provisioning.baselines import Fleet, Order, for_waiting, reactive
from cotide_sim.kubelets.machine_room import MachineRoom

POLL_SECONDS: Final = 60.0
POLLS_A_STEP: Final = 5
ENDED: Final = ("Succeeded", "Failed")
ENDS_BY_ITSELF: Final = "sim.cotide.dev/lone-seconds"
GIB: Final = 2.0**30
Json = dict[str, Any]


def need_of(pod: Json) -> np.ndarray:
    """Return (2,) cores and GiB that a pod of the day asks for."""
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return np.array([float(requests["cpu"]), float(requests["memory"].removesuffix("Gi"))])


class ReactiveMachines:
    """One day.

    Parameters
    ----------
    kinds : by type cores, GiB and machines. idle : by type idle watts. label : of a node, for its type.
    """

    def __init__(
        self,
        client: KubeClient,
        room: MachineRoom,
        kinds: Mapping[str, tuple[int, int, int]],
        idle: Sequence[float],
        label: str,
        speed: float,
    ) -> None:
        self._client, self._room, self._label, self._speed = client, room, label, speed
        self._names, self._idle = list(kinds), np.array(idle, dtype=np.float64)
        self._capacity = np.array([[cores, memory] for cores, memory, _ in kinds.values()], dtype=np.float64)
        self._there = np.array([float(count) for _, _, count in kinds.values()])
        order: Order = np.argsort(self._idle / self._capacity[:, 0], kind="stable")
        self._order = order
        self._orders = 0
        self._asked: dict[str, str] = {}
        """Type of each order whose node has not been seen."""
        self._cordoned: dict[str, str] = {}
        self._polls = 0

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            with contextlib.suppress(ClusterError):
                await self.look()
            await asyncio.sleep(POLL_SECONDS / self._speed)

    async def look(self) -> None:
        """Look once."""
        nodes, pods = await asyncio.gather(self._client.list("/api/v1/nodes"), self._client.list("/api/v1/pods"))
        living = [pod for pod in pods if pod.get("status", {}).get("phase") not in ENDED]
        kind_of = {node["metadata"]["name"]: node["metadata"]["labels"][self._label] for node in nodes}
        came = {label for node in nodes for label in node["metadata"]["labels"].values()}
        self._asked = {order: kind for order, kind in self._asked.items() if order not in came}
        self._cordoned = {name: kind for name, kind in self._cordoned.items() if name in kind_of}
        held = {name: np.zeros(2) for name in kind_of}
        for pod in living:
            if pod["spec"].get("nodeName") in held:
                held[pod["spec"]["nodeName"]] += need_of(pod)
        open_now = [name for name in kind_of if name not in self._cordoned]
        on = np.array([float(sum(kind_of[name] == kind for name in open_now)) for kind in self._names])
        coming = np.array([float(sum(kind == one for one in self._asked.values())) for kind in self._names])
        wanted = self._wanted(on, coming, [held[name] for name in open_now], living)
        for index, kind in enumerate(self._names):
            change = int(wanted[index] - on[index] - coming[index])
            if change > 0:
                await self._more(kind, change)
            else:
                mine = sorted((held[name][0], name) for name in open_now if kind_of[name] == kind)
                for _, name in mine[:-change] if change else ():
                    await self._cordon(name, kind, closed=True)
        await self._empty(living)
        self._polls += 1

    def _wanted(
        self, on: np.ndarray, coming: np.ndarray, held: Sequence[np.ndarray], living: Sequence[Json]
    ) -> np.ndarray:
        fleet = Fleet(self._capacity, self._there, on + coming, self._order)
        waiting = [need_of(pod) for pod in living if not pod["spec"].get("nodeName")]
        wanted = on + coming
        if self._polls % POLLS_A_STEP == 0:
            wanted = reactive(fleet, np.sum(held, axis=0) if held else np.zeros(2), np.zeros((0, 2)), self._idle)
        if waiting:
            missing = for_waiting(fleet, self._idle, np.array(waiting)) - coming
            wanted = np.maximum(wanted, np.minimum(on + coming + np.maximum(missing, 0.0), self._there))
        return wanted

    async def _more(self, kind: str, count: int) -> None:
        closed = [name for name, one in self._cordoned.items() if one == kind][:count]
        for name in closed:
            await self._cordon(name, kind, closed=False)
        for _ in range(count - len(closed)):
            self._orders += 1
            order = f"reactive-{self._orders}"
            if await self._room.do("start", order, kind) == 200:
                self._asked[order] = kind

    async def _cordon(self, name: str, kind: str, *, closed: bool) -> None:
        await self._client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": closed or None}})
        if closed:
            self._cordoned[name] = kind
        else:
            self._cordoned.pop(name, None)

    async def _empty(self, living: Sequence[Json]) -> None:
        """Move services away from what is cordoned, and switch off what is empty since the look before."""
        for name, kind in list(self._cordoned.items()):
            there = [pod for pod in living if pod["spec"].get("nodeName") == name]
            for pod in there:
                if ENDS_BY_ITSELF not in pod["metadata"].get("annotations", {}):
                    meta = pod["metadata"]
                    await self._client.evict(meta["namespace"], meta["name"], meta["uid"])
            if not there:
                await self._room.do("stop", name, kind)
                self._cordoned.pop(name, None)
