"""Jobs of one namespace, however many and however slowly the server takes their pods, keep no other's waiting."""

from __future__ import annotations

from controllers_world import JOBS, SOON_SECONDS, job, world

from cotide_operator.cache.decision_store import Decision
from cotide_operator.controllers.child_pod_writer import AT_ONCE
from cotide_operator.controllers.reconciliation import AT_ONCE_EACH, REFRESHES_PER_SECOND
from cotide_sim.apiserver.http.faults import Fault

CROWD = JOBS.replace("/default/", "/crowd/")


async def test_a_namespace_whose_pods_are_taken_slowly_holds_up_no_other_job() -> None:
    async with world() as one:
        await one.client.create("/api/v1/namespaces", {"metadata": {"name": "crowd"}})
        slow = Fault(delay_seconds=120.0, method="POST", path="/namespaces/crowd/pods$", count=-1)
        one.server.faults.add(slow)
        for number in range(2 * AT_ONCE_EACH):
            made = job(completions=4, parallelism=4)
            await one.client.create(CROWD, {**made, "metadata": {"name": f"crowd-{number}"}})

        async def all_wait() -> bool:
            return slow.met >= AT_ONCE_EACH

        await one.until(all_wait)
        await one.client.create(JOBS, job(completions=1, parallelism=1))
        await one.until_pods("count-0")
        assert slow.met <= AT_ONCE, "in flight for one namespace"


async def test_a_crowd_of_new_decisions_does_not_keep_another_jobs_status_waiting() -> None:
    async with world() as one:
        await one.client.create(JOBS, job(completions=1, parallelism=1))
        await one.until_pods("count-0")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Queued")
        assert one.controllers is not None
        for number in range(int(60 * REFRESHES_PER_SECOND)):  # a minute's looks at Jobs that are not even there
            one.controllers._refresh_soon(("jobs", f"crowd/job-{number}"))
        uid = (await one.pods())["count-0"]["metadata"]["uid"]
        decision = Decision("default/count-0", uid, 1000.0, None, "InsufficientResources", "no node has 1 cpu free")
        one.decisions.publish(decision)

        async def shown() -> bool:
            found = await one.client.get(f"{JOBS}/count")
            return "no node has 1 cpu free" in str(found["status"])

        await one.until(shown, SOON_SECONDS)  # and not only with the next look at what was made, after ten seconds
