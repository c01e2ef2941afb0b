"""Two operators, one Lease on a real server: one acts, the other takes over, and no pod is bound twice."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from typing import Any

import pytest
from manifests import our_pod_manifest
from processes import Process
from real_cluster import RealCluster

LEASE = "/apis/coordination.k8s.io/v1/namespaces/cotide-system/leases/cotide-operator"
CLEAN_SECONDS, KILLED_SECONDS = 2.0, 15.0
"""How long nobody may decide after a clean stop and after a SIGKILL, with the settings that deploy/ ships."""

pytestmark = pytest.mark.alone  # two of them


def bindings(cluster: RealCluster) -> Counter[str]:
    """Bindings that the server carried out, by pod, as its audit log has them."""
    counted: Counter[str] = Counter()
    for line in cluster.plane.audit_log.read_text(encoding="utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        about = entry.get("objectRef", {})
        if about.get("subresource") == "binding" and about.get("namespace") == cluster.namespace:
            counted[about["name"]] += entry["responseStatus"]["code"] == 201
    return counted


async def create_pod(cluster: RealCluster, name: str) -> None:
    await cluster.client.create(cluster.pods, our_pod_manifest(name, "10m"))


async def holder(cluster: RealCluster) -> str:
    return str((await cluster.client.get(LEASE))["spec"].get("holderIdentity"))


async def taken_over(cluster: RealCluster, leader: Process, standby: Process, number: signal.Signals) -> float:
    """End the leader and return the seconds until a pod made at that moment is on a node."""
    before = await holder(cluster)
    name = f"after-{number.name.lower()}"
    begun = time.monotonic()
    leader.send(number)
    await create_pod(cluster, name)

    async def bound() -> bool:
        return name in await cluster.placed() and await holder(cluster) not in ("", before)

    await cluster.until(f"{name} is on a node", bound)
    assert standby.exit_code is None
    return time.monotonic() - begun


async def test_a_standby_takes_over_in_time_and_nothing_is_bound_twice_or_lost(cluster: RealCluster) -> None:
    async with cluster.nodes(2):
        async with cluster.operator("", name="first") as first:
            for number in range(20):
                await create_pod(cluster, f"p{number}")
            async with cluster.operator("", name="second", leads=False) as second:
                await cluster.until("the second stands by", lambda: "standing by" in second.text())
                clean = await taken_over(cluster, first, second, signal.SIGTERM)
                assert first.end(signal.SIGTERM) == 0
                async with cluster.operator("", name="third", leads=False) as third:
                    await cluster.until("the third stands by", lambda: "standing by" in third.text())
                    killed = await taken_over(cluster, second, third, signal.SIGKILL)
        placed = await cluster.placed()
        assert len(placed) == 22
        assert bindings(cluster) == Counter(dict.fromkeys(placed, 1))
    print(f"taken over {clean:.2f} s after a clean stop, {killed:.2f} s after SIGKILL")
    assert clean <= CLEAN_SECONDS
    assert killed <= KILLED_SECONDS
