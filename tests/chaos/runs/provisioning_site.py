"""Machines that the operator of a run orders and switches off, and what must hold of them.

Used by `chaos_run` for plans with mishaps. No order begins two machines; never are more on or booting than a plan has
wanted; no pod is on a machine that is switched off, and none goes that was needed within the window of stabilization,
by whichever operator. At the end as many are on as the pods need, none is on its way, and no node is left half switched
off.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from chaos_steps import Plan
from environment import Environment
from invariant_checker import InvariantChecker

from cotide_kube.client import KubeClient
from cotide_operator.provisioning.cluster_view import ORDER_LABEL
from cotide_sim.kubelets.fake_nodes import Mishaps
from cotide_sim.kubelets.machine_room import MachineRoom, Rack

KIND: Final = "m"
LABEL: Final = "node.kubernetes.io/instance-type"
CORES: Final = 4
MACHINES: Final = 8
RESERVE: Final = 1.2
"""The factor of over-provisioning; what packing teaches takes longer than a run."""
DEADLINE_BOOTS: Final = 5.0
"""After so many boots a machine is late; one that is late here takes ten."""
_SECTION: Final = """\
provisioning:
  mode: act
  intervalSeconds: 1
  stepSeconds: 10
  horizonSteps: 3
  bootDeadlineSeconds: {deadline:g}
  scaleDownStabilizationSeconds: {stays:g}
  actuator: {{url: '{url}', timeoutSeconds: 2, askAgainSeconds: 1, retrySeconds: 1}}
  machineTypes: [{{name: m, cpu: '{cores}', memory: 64Gi, count: {machines}, bootSeconds: 0.3, minimumUpSeconds: 0}}]
"""


class _Wires:
    """Makes nodes and removes them, whatever befalls the server; tells of each that goes."""

    def __init__(self, environment: Environment, going: Callable[[], None]) -> None:
        self._environment, self._going = environment, going

    async def switch_on(self, name: str, labels: Mapping[str, str]) -> None:
        await self._environment.node(name, CORES, {LABEL: KIND, **labels})

    async def switch_off(self, name: str) -> None:
        self._going()
        await self._environment.remove_node(name)


class ProvisioningSite:
    """The machines of one run."""

    def __init__(
        self, plan: Plan, environment: Environment, client: KubeClient, checker: InvariantChecker, folder: Path
    ) -> None:
        self._plan, self._checker, self._folder = plan, checker, folder
        self._environment, self._client = environment, client
        names = [f"{environment.namespace}-m{number}" for number in range(MACHINES)]
        self._gone: list[tuple[float, int]] = []
        """When machines were switched off since they were last broken, and how many were left on or booting."""
        racks = {KIND: Rack(_Wires(environment, self._going), names)}
        rng = np.random.default_rng(plan.seed)
        self.room = MachineRoom(client, racks, ORDER_LABEL, rng=rng, mishaps=plan.mishaps)
        self._broke = 0.0
        self.section = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer orders, in a cluster with a namespace for their book."""
        namespace = {"metadata": {"name": "cotide-system"}}
        await self._environment.insist(lambda: self._client.create("/api/v1/namespaces", namespace))
        async with self.room.serving() as url:
            deadline = DEADLINE_BOOTS * self.room.mishaps.boot_seconds
            stays = self._plan.stays_seconds
            self.section = _SECTION.format(url=url, cores=CORES, machines=MACHINES, deadline=deadline, stays=stays)
            yield

    async def vanish(self) -> None:
        """Break a machine that is on, if there is one."""
        on = self.room.on(KIND)
        if on:
            await self.room.vanish(KIND, on[0])
            self._gone.clear()
            self._broke = time.time()

    def _going(self) -> None:
        self._gone.append((time.time(), len(self.room.on(KIND)) + self.room.booting() - 1))

    def unsettled(self) -> str:
        """Say what is not as it must be at the end; empty where all is.

        Asked only when everything is healed, and so the machines are: a type whose boots go on failing rests for longer
        than a run may take to settle.
        """
        self.room.mishaps = Mishaps(self.room.mishaps.boot_seconds)
        replicas = [step.how["replicas"] for step in self._plan.steps if step.what in ("service", "scale")][-1]
        wanted, on = math.ceil(RESERVE * replicas / CORES), len(self.room.on(KIND))
        odd = [] if on == wanted else [f"{on} machines are on, and {wanted} would do"]
        odd += [f"{self.room.booting()} machines boot"] if self.room.booting() else []
        closed = [name for name, node in self._checker.nodes.items() if node.get("spec", {}).get("unschedulable")]
        return "; ".join([*odd, *(f"{name} is cordoned" for name in closed)])

    def breaches(self) -> list[str]:
        """Return what must never happen and did."""
        switched = self.room.switched
        found = [f"order {one} began {times} machines" for one, times in switched.started.items() if times > 1]
        found += [f"pod {key} was on a machine that was switched off" for key in switched.lost]
        wanted = self._wanted()
        if switched.most[KIND] > wanted:
            found.append(f"{switched.most[KIND]} machines were begun at one time, and {wanted} were wanted at most")
        return found + self._gone_too_soon()

    def _gone_too_soon(self) -> list[str]:
        """Say of each machine that went which plan needed it a moment before, if one did."""
        needed = [(line["now"], sum(line["reasons"][0][:2])) for line in self._plans() if line["now"] > self._broke]
        return [
            f"a machine went, and {left} stayed, {at - now:.1f} s after {need:.0f} were needed"
            for at, left in self._gone
            for now, need in needed
            if now <= at < now + self._plan.stays_seconds and left < need
        ]

    def _wanted(self) -> int:
        return max((int(plan["wanted"][KIND]) for plan in self._plans()), default=0)

    def _plans(self) -> list[dict[str, Any]]:
        """Return what operators wrote of their plans, each time that something else was wanted."""
        lines = [
            json.loads(line)
            for file in self._folder.glob("ledger-*/provisioning*.jsonl")
            for line in file.read_text().splitlines()
            if line.endswith("}")  # a process that was killed may leave half a line
        ]
        return [one for one in lines if "wanted" in one]
