"""Capacity that is planned live: machines come for pods, go when they are free, and are begun once for a need."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest
from manifests import template, workload_manifest
from operator_world import ALONE, QUICK_QUEUE, World

from cotide_core.errors import ClusterError
from cotide_operator.assembly import Operator
from cotide_operator.provisioning import controller
from cotide_operator.provisioning.carrying import CONFIG_MAP
from cotide_operator.provisioning.cluster_view import ORDER_LABEL
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fake_nodes import Mishaps
from cotide_sim.kubelets.fleet import FleetSettings, running_fleet
from cotide_sim.kubelets.machine_room import MachineRoom, Rack
from cotide_sim.kubelets.node_objects import NodeShape

pytestmark = pytest.mark.fake_nodes("machines that are switched on, fail and vanish as the test says")
WORKLOADS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
BOOK: Final = f"/api/v1/namespaces/cotide-system/configmaps/{CONFIG_MAP}"
LABEL: Final = "node.kubernetes.io/instance-type"
SPEED: Final = 4.0
DRAINS: Final = (
    "consolidation: {enabled: true, intervalSeconds: 1, stableSeconds: 1, minimumAgeSeconds: 0, cooldownSeconds: 1,"
    " timeoutSeconds: 60, spareNodes: 9}\n"
)


@dataclass
class Site:
    """Machines of four cores that are off, and what the operator is told of them."""

    world: World
    room: MachineRoom
    url: str
    origin: float

    def configuration(self, mode: str = "act", more: str = "") -> str:
        clock = f"simulatedTime: {{originSeconds: {self.origin!r}, speed: {SPEED}}}\n"
        return (
            f"policy: fifo\n{ALONE}{QUICK_QUEUE}{clock}{DRAINS}"
            f"provisioning:\n  mode: {mode}\n  intervalSeconds: 2\n  stepSeconds: 10\n  horizonSteps: 6\n"
            "  bootDeadlineSeconds: 60\n"
            f"  actuator: {{url: '{self.url}', askAgainSeconds: 1, retrySeconds: 2}}\n"
            "  machineTypes: [{name: m, cpu: '4', memory: 16Gi, count: 6, bootSeconds: 4, minimumUpSeconds: 0}]\n"
            f"{more}"
        )

    async def run_pods(self, count: int) -> None:
        """Have a service run so many pods of one core."""
        body = workload_manifest("web", replicas=count, template=template("1", "64Mi"))
        try:
            await self.world.client.create(WORKLOADS, body)
        except ClusterError:
            await self.world.client.patch(f"{WORKLOADS}/web", {"spec": {"replicas": count}})

    async def until_on(self, count: int) -> None:
        await self.world.until(f"{count} machines are on", lambda: len(self.room.on("m")) == count)

    async def until_running(self, count: int) -> None:
        async def so() -> bool:
            pods = await self.world.client.list("/api/v1/namespaces/default/pods")
            here = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
            return len(here) == count and all(one["status"].get("phase") == "Running" for one in here)

        await self.world.until(f"{count} pods run", so)

    def check(self) -> None:
        """Say that no need got two machines, and that no pod was lost to a stop."""
        switched = self.room.switched
        assert max(switched.started.values(), default=0) <= 1
        assert switched.lost == []


@pytest.fixture
async def site(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(controller, "SETTLED_SECONDS", 0.5)
    async with machines(world, Mishaps(boot_seconds=4.0)) as made:
        yield made


@contextlib.asynccontextmanager
async def machines(world: World, mishaps: Mishaps) -> AsyncIterator[Site]:
    """Six machines of four cores, all off."""
    origin = time.time()
    with contextlib.suppress(ClusterError):  # a real server may have it
        await world.client.create("/api/v1/namespaces", {"metadata": {"name": "cotide-system"}})
    with contextlib.suppress(ClusterError):  # the book of the test before: a real server is shared
        await world.client.delete(BOOK)
    settings = FleetSettings(
        interference=GeneratedInterference(),
        count=6,
        on=0,
        name_prefix="m",
        shape=NodeShape(millicores=4000, memory_bytes=16 << 30, labels={LABEL: "m"}),
        origin_seconds=origin,
        speed=SPEED,
    )
    async with running_fleet(world.client, settings) as fleet:
        rng = np.random.default_rng(0)
        racks = {"m": Rack(fleet, settings.names)}
        room = MachineRoom(world.client, racks, ORDER_LABEL, rng=rng, mishaps=mishaps, speed=SPEED)
        async with room.serving() as url:
            yield Site(world, room, url, origin)


def figure(operator: Operator, line: str) -> float:
    text = operator.metrics.text().decode()
    return next((float(one.rpartition(" ")[2]) for one in text.splitlines() if one.startswith(line)), 0.0)


async def test_machines_come_for_pods_and_go_when_consolidation_has_freed_them(site: Site) -> None:
    async with site.world.operator(site.configuration()) as operator:
        await site.run_pods(6)
        # Six cores and a fifth more are two machines of four.
        await site.until_running(6)
        await site.until_on(2)
        await site.run_pods(1)
        await site.until_on(1)
        await site.until_running(1)
        assert figure(operator, 'cotide_provisioning_orders_total{outcome="NodeCame",type="m"}') == 2
        assert figure(operator, 'cotide_provisioning_stopped_total{type="m"}') == 1
        assert figure(operator, 'cotide_provisioning_energy_joules_total{type="m"}') > 0
    site.check()


async def test_advice_changes_nothing_and_says_what_is_wanted(site: Site) -> None:
    async with site.world.operator(site.configuration("advice")) as operator:
        await site.run_pods(6)
        await site.world.until(
            "two machines are wanted",
            lambda: figure(operator, 'cotide_provisioning_wanted_nodes{type="m",why="pods"}') == 2,
        )
        assert site.room.switched.started == {}
        with pytest.raises(ClusterError):
            await site.world.client.get(BOOK)


async def test_an_operator_that_is_killed_between_order_and_node_is_followed_by_one_that_waits_for_it(
    site: Site,
) -> None:
    site.room.mishaps = Mishaps(boot_seconds=20.0)
    async with site.world.operator(site.configuration(), crash=True):
        await site.run_pods(6)
        await site.world.until("two machines boot", lambda: len(site.room.switched.started) == 2)
    async with site.world.operator(site.configuration()):
        await site.until_running(6)
    assert len(site.room.switched.started) == 2, "no machine more for the same need"
    site.check()


async def test_machines_that_fail_are_late_or_vanish_are_replaced(site: Site) -> None:
    site.room.mishaps = Mishaps(boot_seconds=4.0, fails=0.3, late=0.2, silent=0.3, twice=0.3)
    async with site.world.operator(site.configuration()):
        await site.run_pods(6)
        await site.until_running(6)
        await site.room.vanish("m", site.room.on("m")[0])
        await site.until_running(6)
    site.check()
