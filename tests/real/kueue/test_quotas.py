"""Kueue says whether, Cotide where: quotas of two cohorts that borrow, with Jobs of ours and more room than quota."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator

import pytest
from manifests import our_pod_manifest
from quotas import GATE, QUEUE, Quotas
from real_cluster import ALONE, RealCluster

from cotide_kube.timestamps import parse_timestamp

SECOND = 1.0
"""Events name whole seconds."""


@contextlib.asynccontextmanager
async def scheduling(cluster: RealCluster, *nodes: str, policy: str = "fifo") -> AsyncIterator[None]:
    """An operator and four nodes of eight cpus: more than all quotas together."""
    async with cluster.nodes(4, "--cpu", "8", *nodes), cluster.operator(f"policy: {policy}\n{ALONE}"):
        yield


async def test_a_queue_borrows_all_that_its_cohort_leaves_and_nothing_of_another(
    cluster: RealCluster, quotas: Quotas
) -> None:
    async with scheduling(cluster):
        await quotas.job("borrower", "red-a", 10)  # one more than a group of ten could ever have would wait for ever
        await quotas.job("single", "red-a", 12, parallelism=10)
        await quotas.job("other", "blue-a", 9, parallelism=8)
        await quotas.until("single", running=8, gated=2)
        await quotas.until("other", running=6, gated=2)
        await quotas.until_used(red_a=(8, 4), red_b=(0, 0), blue_a=(6, 3), blue_b=(0, 0))
        assert await quotas.running("borrower") == 0  # ten cpus are more than red has, with all that it could borrow
        assert await quotas.gated("borrower") == 10
        assert quotas.refused_bindings() == []


async def test_what_was_lent_is_given_back_and_no_pod_counts_as_failed(cluster: RealCluster, quotas: Quotas) -> None:
    async with scheduling(cluster):
        await quotas.job("guest", "red-a", 9, parallelism=8)
        await quotas.until("guest", running=8, gated=0)
        await quotas.job("owner", "red-b", 5, parallelism=4)
        await quotas.until("owner", running=4, gated=0)
        await quotas.until("guest", running=4, gated=4)
        await quotas.until_used(red_a=(4, 0), red_b=(4, 0))
        status = await quotas.status("guest")
        assert (status.get("failures", 0), status["evictions"]) == (0, 4)
        await cluster.client.delete(f"{cluster.jobs}/owner")
        await quotas.until("guest", running=8, gated=0)


async def test_a_job_larger_than_its_quota_runs_to_its_end_piece_by_piece(cluster: RealCluster, quotas: Quotas) -> None:
    async with scheduling(cluster, "--speed", "20"):
        await quotas.job("small", "red-a", 20, parallelism=12, seconds="20")
        most = 0

        async def done() -> bool:
            nonlocal most
            most = max(most, await quotas.running("small"))
            return await cluster.phase("small") == "Succeeded"

        await cluster.until("the Job is done", done)
        assert 4 < most <= 8

        async def free() -> bool:
            return not [workload for workload in await quotas.workloads() if not _finished(workload)]

        await cluster.until("all Workloads are finished", free)
        await quotas.until_used(red_a=(0, 0))


async def test_half_of_a_group_waits_for_the_other_half(cluster: RealCluster, quotas: Quotas) -> None:
    def member(name: str) -> dict[str, object]:
        labels = {QUEUE: "blue-a", "kueue.x-k8s.io/pod-group-name": "pair"}
        annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"}
        return our_pod_manifest(name, "1", "64Mi", cls="batch", labels=labels, annotations=annotations)

    async with scheduling(cluster):
        first = await cluster.client.create(cluster.pods, member("first"))
        assert {"name": GATE} in first["spec"]["schedulingGates"]
        await quotas.job("beside", "blue-a", 1)
        await quotas.until("beside", running=1, gated=0)
        assert await cluster.placed("kueue.x-k8s.io/pod-group-name=pair") == {}
        assert quotas.refused_bindings() == []
        await cluster.client.create(cluster.pods, member("second"))

        async def both() -> bool:
            return len(await cluster.placed("kueue.x-k8s.io/pod-group-name=pair")) == 2

        await cluster.until("both are on nodes", both)
        for name in ("first", "second"):
            await cluster.client.delete(f"{cluster.pods}/{name}")


@pytest.mark.parametrize("gang", [None, {}], ids=["a group", "a gang"])
async def test_a_group_starts_whole_leaves_whole_and_comes_back_whole(
    cluster: RealCluster, quotas: Quotas, gang: dict[str, object] | None
) -> None:
    more = {} if gang is None else {"gang": gang}
    async with scheduling(cluster):
        await quotas.job("owner", "red-b", 4)
        await quotas.until("owner", running=4, gated=0)
        await quotas.job("wide", "red-a", 6, **more)
        await quotas.until("wide", running=0, gated=6)
        await cluster.client.delete(f"{cluster.jobs}/owner")
        await quotas.until("wide", running=6, gated=0)
        await quotas.job("again", "red-b", 4)
        await quotas.until("again", running=4, gated=0)
        await quotas.until("wide", running=0, gated=6)
        status = await quotas.status("wide")
        assert (status.get("failures", 0), status["evictions"]) == (0, 6)
        await cluster.client.delete(f"{cluster.jobs}/again")
        await quotas.until("wide", running=6, gated=0)


async def test_a_pod_of_a_group_that_is_taken_away_is_replaced_within_its_quota(
    cluster: RealCluster, quotas: Quotas
) -> None:
    async with scheduling(cluster):
        await quotas.job("wide", "red-a", 8, gang={})
        await quotas.until("wide", running=8, gated=0)
        await cluster.client.delete(f"{cluster.pods}/wide-3")

        async def replaced() -> bool:
            return (await cluster.placed("cotide.dev/job=wide")).keys() >= {"wide-3-r1"}

        await cluster.until("its follower is on a node", replaced)
        await quotas.until("wide", running=8, gated=0)

        async def let_go() -> bool:
            return "wide-3" not in {pod["metadata"]["name"] for pod in await cluster.client.list(cluster.pods)}

        await cluster.until("Kueue counts the follower in its place and keeps it no longer", let_go)
        await quotas.until_used(red_a=(8, 4))


async def test_a_pod_that_is_deleted_behind_its_gate_is_replaced_and_its_group_starts_whole(
    cluster: RealCluster, quotas: Quotas
) -> None:
    async with scheduling(cluster):
        await quotas.job("owner", "red-b", 4)
        await quotas.until("owner", running=4, gated=0)
        await quotas.job("wide", "red-a", 6, gang={})
        await quotas.until("wide", running=0, gated=6)
        await cluster.client.delete(f"{cluster.pods}/wide-3")

        async def replaced() -> bool:
            return "wide-3" not in {pod["metadata"]["name"] for pod in await quotas.pods("wide")}

        await cluster.until("it is on its way out", replaced)
        await quotas.until("wide", running=0, gated=6)
        await cluster.client.delete(f"{cluster.jobs}/owner")
        await quotas.until("wide", running=6, gated=0)


async def test_the_lower_of_two_groups_gives_way_within_a_queue_and_comes_back(
    cluster: RealCluster, quotas: Quotas
) -> None:
    async with scheduling(cluster):
        low, high = await quotas.rank("low", 1), await quotas.rank("high", 100)
        await quotas.job("later", "blue-a", 5, labels=low)
        await quotas.until("later", running=5, gated=0)
        await quotas.job("sooner", "blue-a", 3, labels=high, gang={})
        await quotas.until("sooner", running=3, gated=0)
        await quotas.until("later", running=0, gated=5)
        status = await quotas.status("later")
        assert (status.get("failures", 0), status["evictions"]) == (0, 5)
        await cluster.client.delete(f"{cluster.jobs}/sooner")
        await quotas.until("later", running=5, gated=0)


async def test_a_suspended_job_gives_its_quota_back_and_takes_it_again(cluster: RealCluster, quotas: Quotas) -> None:
    async with scheduling(cluster):
        await quotas.job("wide", "red-a", 8, gang={})
        await quotas.until("wide", running=8, gated=0)
        await cluster.client.patch(f"{cluster.jobs}/wide", {"spec": {"suspend": True}})
        await quotas.until_used(red_a=(0, 0))
        await quotas.job("next", "red-a", 8)
        await quotas.until("next", running=8, gated=0)
        await cluster.client.patch(f"{cluster.jobs}/wide", {"spec": {"suspend": False}})
        await quotas.until("wide", running=0, gated=8)
        await cluster.client.delete(f"{cluster.jobs}/next")
        await quotas.until("wide", running=8, gated=0)
        status = await quotas.status("wide")
        assert (status.get("failures", 0), status.get("evictions", 0)) == (0, 0)


async def test_a_job_that_is_deleted_gives_its_quota_back_with_its_pods(cluster: RealCluster, quotas: Quotas) -> None:
    async with scheduling(cluster):
        await quotas.job("wide", "red-a", 8, gang={})
        await quotas.until("wide", running=8, gated=0)
        await quotas.until_used(red_a=(8, 4))
        await cluster.client.delete(f"{cluster.jobs}/wide")
        await quotas.until_used(red_a=(0, 0))

        async def gone() -> bool:
            return not await cluster.client.list(cluster.pods)

        await cluster.until("its pods are gone", gone)


async def test_a_job_that_failed_gives_its_quota_back(cluster: RealCluster, quotas: Quotas) -> None:
    async with scheduling(cluster):
        fails = {"sim.cotide.dev/exit-code": "1"}
        await quotas.job("broken", "red-a", 8, seconds="1", annotations=fails, backoffLimit=0)

        async def failed() -> bool:
            return await cluster.phase("broken") == "Failed"

        await cluster.until("the Job failed", failed)
        await quotas.until_used(red_a=(0, 0))
        await quotas.job("next", "red-b", 8)
        await quotas.until("next", running=8, gated=0)


async def test_kueues_users_read_when_their_pods_should_start_and_be_done(cluster: RealCluster, quotas: Quotas) -> None:
    async with cluster.nodes(1, "--cpu", "4"), cluster.operator(f"policy: easy\n{ALONE}"):
        begun = time.time()
        await quotas.job("first", "red-a", 4, requestedSeconds=600)
        await quotas.until("first", running=4, gated=0)
        placed = time.time()
        (done,) = await told(quotas, "PredictedFinish", "4 pods on nodes, expected to be done about ")
        assert begun - SECOND <= done - 600 <= placed + SECOND
        await quotas.job("second", "red-b", 2, requestedSeconds=300)
        words = "2 of 2 pods waiting for a node, expected to start about "
        start, end = await told(quotas, "PredictedStart", words)
        # A plan keeps a node for as long as nine in ten such pods need, and of these two only their requests are known.
        assert begun - SECOND <= start - 2 * 600 <= placed + SECOND
        assert abs(end - start - 2 * 300) <= SECOND
        assert await quotas.gated("second") == 0  # Kueue let them pass: it is the node that they wait for
        await cluster.client.delete(f"{cluster.jobs}/first")
        await told(quotas, "PredictedFinish", "2 pods on nodes, expected to be done about ")


async def told(quotas: Quotas, reason: str, words: str) -> list[float]:
    """Return the moments that an event of a Workload names, once there is one that begins so."""

    async def so() -> list[str]:
        return [one for one in await quotas.told(reason) if one.startswith(words)]

    said = await quotas.cluster.until(f"a Workload says {words}", so)
    return [parse_timestamp(one) for one in re.findall(r"about (\S+Z)", said[0])]


def _finished(workload: dict[str, object]) -> bool:
    conditions = workload.get("status", {}).get("conditions", [])  # type: ignore[attr-defined]  # JSON
    return any(condition["type"] == "Finished" and condition["status"] == "True" for condition in conditions)
