"""Limits of a namespace on a server: what is above waits, says why in every place, and starts when there is room."""

from __future__ import annotations

import contextlib
from typing import Any

from manifests import job_manifest
from operator_world import ALONE, World

from cotide_kube.answers import ApiError
from cotide_operator.explain.class_rule import ClassContext
from cotide_operator.explain.explanation import explain_pod

SPACE = "team-capped"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
JOBS = f"/apis/cotide.dev/v1alpha1/namespaces/{SPACE}/jobs"
WORDS = (
    "its namespace may hold 1500m cpu in batch and gratis pods (cotide.dev/max-batch-cpu);"
    " it starts when others of the namespace end"
)


async def limited(world: World, cpu: str) -> None:
    namespace = {"metadata": {"name": SPACE, "annotations": {"cotide.dev/max-batch-cpu": cpu}}}
    with contextlib.suppress(ApiError):  # there already, of an earlier test
        await world.client.create("/api/v1/namespaces", namespace)
    await world.client.patch(f"/api/v1/namespaces/{SPACE}", namespace)
    await world.server.until_accounts(world.client, SPACE)


async def test_a_job_above_the_limit_of_its_namespace_waits_and_says_so_until_the_limit_is_raised(world: World) -> None:
    await world.nodes(2)
    await limited(world, "1500m")
    async with world.operator(ALONE):
        await world.client.create(JOBS, job_manifest("j", "1", **{"class": "batch"}, completions=2, parallelism=2))

        async def waiting() -> dict[str, Any] | None:
            pods = await world.client.list(PODS)
            placed = [pod for pod in pods if pod["spec"].get("nodeName")]
            others = [pod for pod in pods if not pod["spec"].get("nodeName")]
            if len(placed) != 1 or len(others) != 1:
                return None
            said = [one.get("message") for one in others[0]["status"].get("conditions", [])]
            return others[0] if WORDS in said else None

        pod = await world.server.until("one pod runs and the other says in its condition why not", waiting)

        async def is_said() -> bool:
            events = await world.client.list(f"/api/v1/namespaces/{SPACE}/events")
            about = {(event["reason"], event["message"]) for event in events if event["involvedObject"].get("uid")}
            found = (await world.client.get(f"{JOBS}/j")).get("status", {}).get("conditions", [])
            scheduled = {(one["reason"], one["message"]) for one in found if one["type"] == "Scheduled"}
            return ("FailedScheduling", WORDS) in about and scheduled == {("WaitingForTurn", WORDS)}

        await world.server.until("so do an event and the Job's condition", is_said)
        facts = dict(explain_pod(pod, ClassContext(), 0.0).facts)
        assert facts["Why it waits"] == f"WaitingForTurn: {WORDS}"
        await limited(world, "2")

        async def both() -> bool:
            return all(one["spec"].get("nodeName") for one in await world.client.list(PODS))

        await world.server.until("with the limit raised it starts", both)
