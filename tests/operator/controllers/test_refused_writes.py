"""What a quota or a policy webhook refuses: tried slowly, told in the status, and no reason to leave the rest."""

from __future__ import annotations

from typing import Any

import pytest
from controllers_world import JOBS, WORKLOADS, condition, job, workload, world
from job_builders import plan, plan_job, pod, spec

from cotide_operator.apis.names import TRACKING_FINALIZER
from cotide_operator.controllers.child_pods import ChildPod
from cotide_operator.controllers.job_controller import TROUBLE_SECONDS, trouble_seconds
from cotide_operator.controllers.job_reconciler import Progress, ReconcilerCache
from cotide_sim.apiserver.http.faults import Fault


async def test_a_quota_costs_a_few_refusals_and_not_one_for_each_missing_pod() -> None:
    async with world() as one:
        quota = one.server.faults.add(Fault(status=403, method="POST", path="/pods$", skip=5, count=-1))
        await one.client.create(JOBS, job(completions=300, parallelism=300))
        status = await one.until_status(
            f"{JOBS}/count", lambda status: condition(status, "Scheduled").get("reason") == "Misconfigured"
        )
        assert "is refused by the API server: injected fault: 403" in condition(status, "Scheduled")["message"]
        # 1, 2 and 2 of the next 4 are made, the other 2 of them refused; the pods that came may bring a second look.
        assert len(await one.pods()) == 5
        assert quota.met <= 4
        one.server.faults.clear()

        async def all_there() -> bool:
            return len(await one.pods()) == 300

        await one.until(all_there)
        await one.until_status(
            f"{JOBS}/count", lambda status: condition(status, "Scheduled").get("reason") != "Misconfigured"
        )


async def test_a_pod_that_ends_is_a_reason_to_try_again_at_once() -> None:
    async with world() as one:
        quota = one.server.faults.add(Fault(status=403, method="POST", path="/pods$", skip=1, count=-1))
        await one.client.create(JOBS, job(completions=3, parallelism=3))
        await one.until_pods("count-0")

        async def backs_off() -> bool:  # 1 s, 2 s: the next try is 4 s away
            return quota.met >= 3

        await one.until(backs_off)
        met = quota.met
        await one.set_status("count-0", phase="Succeeded")

        async def tried() -> bool:
            return quota.met > met

        await one.until(tried, seconds=2.0)


def test_refusals_in_a_row_are_tried_ever_later() -> None:
    assert [trouble_seconds(n) for n in (1, 2, 3, 4, 5, 6, 1000)] == [1, 2, 4, 8, 16, TROUBLE_SECONDS, TROUBLE_SECONDS]


async def test_one_refused_release_holds_back_no_other_and_is_told() -> None:
    async with world() as one:
        one.server.faults.add(Fault(status=422, method="PATCH", path="/pods/count-0$", count=-1))
        await one.client.create(JOBS, job(completions=40, parallelism=40))
        names = [f"count-{number}" for number in range(40)]
        await one.until_pods(*names)
        for name in names:
            await one.set_status(name, phase="Succeeded")

        async def kept() -> set[str]:
            pods = await one.pods()
            return {name for name in pods if TRACKING_FINALIZER in pods[name]["metadata"].get("finalizers", ())}

        async def only_one() -> bool:
            return await kept() == {"count-0"}

        await one.until(only_one)
        status = await one.until_status(f"{JOBS}/count", lambda status: condition(status, "PodsReleased"))
        released = condition(status, "PodsReleased")
        assert (released["status"], released["reason"]) == ("False", "Refused")
        assert released["message"] == "1 pod can't be released; the first: pod count-0: injected fault: 422"
        one.server.faults.clear()
        await one.client.patch(f"{JOBS}/count", {"metadata": {"labels": {"look": "again"}}})  # sooner than in 30 s
        await one.until_status(f"{JOBS}/count", lambda status: condition(status, "PodsReleased")["status"] == "True")
        assert await kept() == set()


async def test_one_refused_deletion_holds_back_no_other_and_is_told() -> None:
    async with world() as one:
        await one.client.create(JOBS, job(completions=40, parallelism=40))
        await one.until_pods(*(f"count-{number}" for number in range(40)))
        one.server.faults.add(Fault(status=403, method="DELETE", path="/pods/count-39$", count=-1))
        await one.client.patch(f"{JOBS}/count", {"spec": {"parallelism": 1}})
        status = await one.until_status(f"{JOBS}/count", lambda status: condition(status, "PodsReleased"))
        assert "pod count-39: injected fault: 403" in condition(status, "PodsReleased")["message"]

        async def others_gone() -> bool:
            return set(await one.pods()) == {"count-0", "count-39"}

        await one.until(others_gone)


async def test_a_workload_s_refused_deletion_is_told_too() -> None:
    async with world() as one:
        template: dict[str, Any] = {"spec": {"containers": [{"name": "work", "image": "none"}]}}
        await one.client.create(WORKLOADS, workload(template=template, replicas=3))
        await one.until_pods("web-0", "web-1", "web-2")
        one.server.faults.add(Fault(status=403, method="DELETE", path="/pods/web-1$", count=-1))
        await one.client.patch(f"{WORKLOADS}/web", {"spec": {"replicas": 1}})
        await one.until_status(f"{WORKLOADS}/web", lambda status: condition(status, "PodsReleased"))
        assert set(await one.pods()) == {"web-0", "web-1"}


def test_a_job_that_becomes_small_compares_no_pod_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    running = [pod(index, "Running", node="n") for index in range(3000)]
    compared: list[int] = []

    def equal(one: ChildPod, other: object) -> bool:
        compared.append(1)
        return one is other

    monkeypatch.setattr(ChildPod, "__eq__", equal)
    after = plan_job(spec(1, 3000), Progress(), running, ReconcilerCache(), 1000.0)
    assert (len(after.delete), len(compared)) == (2999, 0)  # it was 3000 * 2999 / 2
    assert plan([running[0]], completions=1).delete == ()
