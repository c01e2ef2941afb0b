"""What a Workload's status says of its queries, and how violations go on counting."""

from __future__ import annotations

from controllers_world import TEMPLATE, WORKLOADS, condition, workload, world

from cotide_operator.clock import ScaledClock
from cotide_operator.controllers.status_builder import ReconcileContext, with_query_fault
from cotide_operator.usage.service_readings import QueryFault, ServiceReading

WEB = f"{WORKLOADS}/web"
REFUSED = QueryFault("QueryRefused", "spec.qos.rpsQuery: offset and @ are not supported")


async def test_a_refused_query_is_a_condition_with_the_reason_until_it_is_mended() -> None:
    async with world() as one:
        await one.client.create(WORKLOADS, workload(template=TEMPLATE))
        await one.client.create(WORKLOADS, workload("other", template=TEMPLATE))
        one.readings.faults = {"default/web": REFUSED}
        status = await one.until_status(WEB, lambda status: condition(status, "Misconfigured"))
        found = condition(status, "Misconfigured")
        assert (found["status"], found["reason"], found["message"]) == ("True", "QueryRefused", REFUSED.message)
        one.readings.faults = {}
        status = await one.until_status(WEB, lambda status: condition(status, "Misconfigured")["status"] == "False")
        assert condition(status, "Misconfigured")["reason"] == "QueriesAsked"
        other = await one.client.get(f"{WORKLOADS}/other")
        assert "Misconfigured" not in [found["type"] for found in other["status"]["conditions"]]


def test_a_condition_for_another_reason_is_left_alone() -> None:
    context = ReconcileContext(ScaledClock(), 0.0, 1)
    other = [{"type": "Misconfigured", "status": "True", "reason": "Quarantined", "message": "nested too deep"}]
    assert with_query_fault(other, None, context) == other
    assert with_query_fault([], None, context) == []


async def test_violations_go_on_counting_when_the_readings_forgot_a_workload_of_the_same_name() -> None:
    async with world() as one:
        await one.client.create(WORKLOADS, workload(template=TEMPLATE))

        async def counted(shown: int) -> bool:
            assert one.controllers is not None
            known = one.controllers.workloads._known.get("default/web")
            return known is not None and known.counted == shown

        for shown, violations in ((3, 3), (0, 3), (1, 4), (2, 5)):  # from 3 to 0: they begin again
            one.readings.by_key["default/web"] = ServiceReading(violations=shown)
            await one.until(lambda shown=shown: counted(shown))
            await one.until_status(WEB, lambda status, wanted=violations: status.get("violations") == wanted)
