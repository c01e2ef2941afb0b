"""One operator that answers for two schedulers' names: pods of both are placed, those of a third are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from manifests import job_manifest
from operator_world import ALONE, PODS, QUICK_QUEUE, World

EVENTS = "/api/v1/namespaces/default/events"
JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
OURS = ("cotide", "default-scheduler")
TEXT = f"policy: fifo\nschedulerNames: [{', '.join(OURS)}]\n{ALONE}{QUICK_QUEUE}"


async def reported(world: World, reason: str) -> dict[str, tuple[str, str]]:
    """Component by pod, as the event's source and as its reporter, of the events with a reason."""
    events = await world.client.list(EVENTS)
    return {
        event["involvedObject"]["name"]: (event["source"]["component"], event["reportingComponent"])
        for event in events
        if event["reason"] == reason and event["involvedObject"]["kind"] == "Pod"
    }


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("fifo", "predictive")], ids=["fifo", "predictive"])
async def test_pods_of_both_names_are_placed_and_one_of_a_third_name_is_left_alone(world: World, text: str) -> None:
    await world.nodes(2, cpu="8")
    async with world.operator(text) as operator:
        await world.pods(1, prefix="third", schedulerName="third-scheduler")
        await world.pods(2, prefix="own")
        await world.pods(2, prefix="plain", schedulerName="default-scheduler")
        await world.client.create(JOBS, job_manifest("count", "1"))
        await world.until_placed(5)
        assert set(await world.placed()) == {"own0", "own1", "plain0", "plain1", "count-0"}
        assert (await world.client.get(f"{PODS}/count-0"))["spec"]["schedulerName"] == "cotide"

        async def all_reported() -> bool:
            return len(await reported(world, "Scheduled")) == 5

        await world.until("an event for each binding", all_reported)
        found = await reported(world, "Scheduled")
        assert found == {
            name: ("default-scheduler",) * 2 if name.startswith("plain") else ("cotide",) * 2 for name in found
        }
        attempts = [
            operator.metrics.registry.get_sample_value(
                "cotide_schedule_attempts_by_profile_total", {"result": "scheduled", "profile": name}
            )
            for name in OURS
        ]
        assert attempts == [3.0, 2.0]
        third = await world.client.get(f"{PODS}/third0")
    annotations: dict[str, Any] = third["metadata"].get("annotations") or {}
    assert not third["spec"].get("nodeName")
    assert not [name for name in annotations if name.startswith("cotide.dev/")]
    assert "cotide.dev/class" not in (third["metadata"].get("labels") or {})


async def test_why_a_pod_waits_is_reported_under_its_own_schedulers_name(world: World) -> None:
    await world.nodes(1, cpu="1")
    async with world.operator(TEXT):
        await world.pods(1, cpu="2", prefix="own")
        await world.pods(1, cpu="2", prefix="plain", schedulerName="default-scheduler")

        async def both() -> bool:
            return len(await reported(world, "FailedScheduling")) == 2

        await world.until("an event for each refusal", both)
        assert await reported(world, "FailedScheduling") == {
            "own0": ("cotide",) * 2,
            "plain0": ("default-scheduler",) * 2,
        }
