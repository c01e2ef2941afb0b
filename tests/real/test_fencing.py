"""A leader that was paused and comes back after another took over writes nothing any more, whatever it was about to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from datetime import datetime
from typing import Any

import pytest
from real_cluster import RealCluster

from cotide_kube.answers import ApiError

LEASE = "/apis/coordination.k8s.io/v1/namespaces/cotide-system/leases/cotide-operator"
SETTINGS = """\
concurrentBinds: 2
leaderElection: {leaseDurationSeconds: 4, renewDeadlineSeconds: 3, retryPeriodSeconds: 0.5}
"""
PODS = 400

pytestmark = pytest.mark.alone  # who leads renews within three seconds, in the midst of all these pods


def writes(cluster: RealCluster) -> list[tuple[datetime, str, str, int]]:
    """When, by whom (a token's number), what, and the answer, of each writing request of an operator."""
    found = []
    for line in cluster.plane.audit_log.read_text(encoding="utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        if entry["verb"] in ("get", "list", "watch"):
            continue
        (who,) = entry["user"]["extra"]["authentication.kubernetes.io/credential-id"]
        about = entry["objectRef"]
        what = f"{entry['verb']} {about['resource']}/{about.get('subresource', '')} {about.get('name', '')}"
        when = datetime.fromisoformat(entry["requestReceivedTimestamp"])
        found.append((when, who, what, entry["responseStatus"]["code"]))
    return found


async def pods(cluster: RealCluster, prefix: str, count: int) -> None:
    containers = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "10m"}}}]

    async def one(number: int) -> None:
        body = {
            "metadata": {"name": f"{prefix}{number}"},
            "spec": {"schedulerName": "cotide", "containers": containers},
        }
        await cluster.client.create(cluster.pods, body)

    await asyncio.gather(*(one(number) for number in range(count)))


async def test_a_leader_that_slept_through_its_lease_writes_nothing_when_it_wakes(cluster: RealCluster) -> None:
    with contextlib.suppress(ApiError):  # another test's operator may have left it
        await cluster.client.delete(LEASE)
    async with cluster.nodes(4, "--cpu", "64"), cluster.operator(SETTINGS, name="first") as first:
        old = (await cluster.client.get(LEASE))["spec"]
        async with cluster.operator(SETTINGS, name="second", leads=False) as second:
            await cluster.until("the second stands by", lambda: "standing by" in second.text())
            making = asyncio.create_task(pods(cluster, "p", PODS))

            async def under_way() -> bool:
                return len(await cluster.placed()) >= 20

            await cluster.until("the first is at work", under_way)
            first.send(signal.SIGSTOP)  # in the middle: decisions are queued, requests are on their way
            await making

            async def taken_over() -> bool:
                return len(await cluster.placed()) == PODS

            await cluster.until("the second took over and placed what was left", taken_over)
            new = (await cluster.client.get(LEASE))["spec"]
            assert new["leaseTransitions"] == old["leaseTransitions"] + 1
            assert new["holderIdentity"] != old["holderIdentity"]
            await cluster.client.delete(f"{cluster.pods}/p0")
            await pods(cluster, "late", 10)  # the sleeper will hear of these, too
            first.send(signal.SIGCONT)
            await cluster.until("the first has ended by itself", lambda: first.exit_code is not None)
            assert first.exit_code == 1, first.text()
            assert "stopping" in first.text().splitlines()[-1]
            assert "Traceback" not in first.text()
            later = writes(cluster)
    names = [who for _, who, what, code in later if what.startswith(("create leases", "update leases")) and code < 300]
    sleeper, successor = list(dict.fromkeys(names))[-2:]
    begins = min(when for when, who, what, code in later if who == successor and "leases" in what and code < 300)
    assert [one for one in later if one[1] == sleeper and one[0] > begins] == []
    assert [one for one in later if one[1] == successor and "leases" not in one[2] and one[0] < begins] == []
