"""Who has room that was given back: a phase that waits on that node, before anybody new is bound into it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from manifests import pod_object

from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import MoreToCome
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.phases.growth import Amounts
from cotide_kube.objects import NodeObject
from cotide_operator.cache.object_cache import KINDS, CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.observability.metrics import Metrics
from cotide_operator.scheduling.phase_resizer import PhaseResizer
from cotide_operator.scheduling.scheduling_loop import SchedulingLoop
from cotide_operator.translation.event_source import EventSource

PHASES = [{"name": "read", "resources": {"cpu": "500m"}}, {"name": "count", "resources": {"cpu": "3"}}]
OWNER = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": "u", "controller": True}


class Operator:
    """A loop with a resizer over one node of four cores; a patch of a pod in ``silent`` gets no answer."""

    def __init__(self) -> None:
        self.cache, self.patches, self.bound, self.entries = ObjectCache(), [], [], []
        self.silent: set[str] = set()
        clock = ScaledClock()
        node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}
        self.cache.apply("nodes", "ADDED", msgspec.convert(node, NodeObject))
        job = {"metadata": {"namespace": "d", "name": "j", "uid": "u"}, "spec": {"phases": PHASES}}
        self.cache.apply("jobs", "ADDED", msgspec.convert(job, CustomObject))
        for kind in KINDS:
            self.cache.mark_synced(kind)
        event_source = EventSource(self.cache, clock, ("cotide",))
        engine = Scheduler(SchedulerConfig(policy="fifo"), HeuristicCatalogue())
        self.loop = SchedulingLoop(
            engine, cache=self.cache, event_source=event_source, outcomes=self, clock=clock, record=self
        )
        columns = engine.state.columns
        self.resizer = self.loop.growing = PhaseResizer(
            self,  # type: ignore[arg-type]  # it patches, and nothing else
            self.cache,
            lambda name: Amounts(columns.free_of("cpu", columns.row_of[name]), 1 << 30),
            event_source.expect_size,
            clock=clock,
            metrics=Metrics(),
            usage_of=lambda _: None,
        )

    def see(self, name: str, cpu: str, phase: str = "", *, runs: bool = True, change: str = "MODIFIED") -> None:
        """See a pod, of the Job where it is in a phase."""
        status: dict[str, Any] = {"phase": "Pending"}
        spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
        metadata: dict[str, Any] = {}
        if runs:
            status = {"phase": "Running", "containerStatuses": [{"name": "c"}]}
            spec["nodeName"] = "n"
        if phase:
            metadata = {"annotations": {"cotide.dev/phase": phase}, "ownerReferences": [OWNER]}
        self.cache.apply("pods", change, pod_object(name, namespace="d", spec=spec, status=status, **metadata))

    async def cycle(self) -> list[str]:
        """Run one cycle; return what was written to pods."""
        self.patches.clear()
        await self.loop._cycle(self)  # type: ignore[arg-type]  # as below
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.patches

    async def patch(self, path: str, body: Any, kind: str = "merge") -> None:
        del kind
        name, _, subresource = path.partition("/pods/")[2].partition("/")
        if name in self.silent:
            await asyncio.Event().wait()
        self.patches.append(f"{name} {_cpu(body) if subresource else 'granted'}")

    def carry_out(self, instructions: list[Any], notes: Any) -> None:
        self.bound += [instruction.key for instruction in instructions if isinstance(instruction, Bind)]

    def entry(self, now: float, events: Any, instructions: Any) -> None:
        self.entries.append(list(events))

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def _cpu(body: Any) -> str:
    cpu: str = body["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return cpu


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    found = Operator()
    await found.cycle()
    yield found
    for write in found.resizer._writes.values():
        write.cancel()


async def test_room_that_is_given_back_goes_to_a_phase_that_waits_and_not_to_a_new_pod(operator: Operator) -> None:
    operator.see("beside", "2", change="ADDED")
    operator.see("p", "500m", "count", change="ADDED")
    assert "p 10m" in await operator.cycle()
    operator.see("p", "10m", "count")
    operator.see("new", "2500m", runs=False, change="ADDED")
    await operator.cycle()
    operator.cache.apply("pods", "DELETED", operator.cache.pods["d/beside"])
    operator.resizer.look_at_all()
    assert await operator.cycle() == ["p 3"]
    assert operator.bound == []  # 3990 millicores were free, of which one of the two can have its part


async def test_a_change_of_a_phase_is_looked_at_in_the_next_cycle(operator: Operator) -> None:
    operator.see("p", "3", "read", change="ADDED")
    assert operator.resizer.wants()
    assert await operator.cycle() == ["p granted", "p 500m"]
    assert not operator.resizer.wants()


async def test_a_wait_is_looked_at_as_soon_as_a_pod_of_its_node_shrinks(operator: Operator) -> None:
    operator.see("beside", "2", change="ADDED")
    operator.see("p", "500m", "count", change="ADDED")
    await operator.cycle()
    operator.see("p", "10m", "count")
    await operator.cycle()
    operator.see("beside", "500m")
    assert "p 3" in await operator.cycle()


async def test_a_server_that_does_not_answer_for_one_pod_holds_up_no_other(operator: Operator) -> None:
    operator.silent.add("a")
    operator.see("a", "3", "read", change="ADDED")
    operator.see("b", "500m", "read", change="ADDED")
    assert await operator.cycle() == ["b granted"]
    assert await operator.cycle() == []


async def test_the_engine_is_told_in_two_calls_only_while_there_is_a_phase_to_look_at(operator: Operator) -> None:
    operator.see("p", "500m", "read", change="ADDED")
    operator.entries.clear()
    await operator.cycle()
    assert [MoreToCome() in events for events in operator.entries] == [True, False]
    operator.see("new", "1", runs=False, change="ADDED")
    operator.entries.clear()
    await operator.cycle()
    assert [MoreToCome() in events for events in operator.entries] == [False]
