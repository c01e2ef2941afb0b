"""An object that the engine itself fails over is left out: a new engine is told everything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from manifests import pod_object

from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Event, NodeBackoffRestored, PodUpserted, Tick
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.forecasts import CompletionForecaster
from cotide_core.instructions import Bind, Instruction
from cotide_core.state.cluster_state import ClusterState
from cotide_kube import turns
from cotide_kube.objects import NodeObject, PodObject, PodSpec, SchedulingGate
from cotide_operator.cache.object_cache import KINDS, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.scheduling import scheduling_loop
from cotide_operator.scheduling.scheduling_loop import SchedulingLoop
from cotide_operator.translation import event_source as event_source_module
from cotide_operator.translation.event_source import EventSource


class Fragile(Scheduler):
    """Fails in the midst of its work over pods of one name."""

    def _apply(self, event: Event, now: float) -> None:
        if isinstance(event, PodUpserted) and event.pod.key == "shop/bad" and event.pod.priority == 0:
            raise OverflowError("too large for int64")
        super()._apply(event, now)


class Heard:
    """Takes whatever the loop publishes and carries nothing out."""

    def __init__(self) -> None:
        self.bound: list[str] = []
        self.records = 0

    def carry_out(self, instructions: list[Any], notes: Any) -> None:
        self.bound += [instruction.key for instruction in instructions if isinstance(instruction, Bind)]

    def renew(self) -> None:
        self.records += 1

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Learner:
    """Writes down what was decided, of what it had seen."""

    def __init__(self) -> None:
        self.seen = 0
        self.bound: list[tuple[str, int]] = []

    def feed(self, _state: ClusterState, events: Sequence[Event], _now: float) -> None:
        self.seen += len(events)

    def decided(self, instructions: Sequence[Instruction], _now: float) -> None:
        self.bound += [(instruction.key, self.seen) for instruction in instructions if isinstance(instruction, Bind)]


def pod(name: str, version: str = "1", priority: int = 0) -> PodObject:
    """A pod of a version and a priority."""
    return pod_object(name, namespace="shop", resourceVersion=version, spec={"priority": priority})


def operator() -> SimpleNamespace:
    cache, clock, heard, learner = ObjectCache(), ScaledClock(), Heard(), Learner()
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}}
    cache.apply("nodes", "ADDED", msgspec.convert(node, NodeObject))
    for kind in KINDS:
        cache.mark_synced(kind)
    engine = Fragile(SchedulerConfig(policy="fifo"), HeuristicCatalogue())

    def remake() -> Scheduler:
        engine.state.clear()
        return Fragile(engine.config, HeuristicCatalogue(), engine.state)

    loop = SchedulingLoop(
        engine,
        cache=cache,
        event_source=EventSource(cache, clock, ("cotide",)),
        outcomes=heard,
        clock=clock,
        record=heard,  # type: ignore[arg-type]  # answers everything
        watcher=learner,
        remake=remake,
    )

    def cycle() -> None:
        asyncio.run(loop._cycle(heard))  # type: ignore[arg-type]  # as above

    return SimpleNamespace(cache=cache, loop=loop, heard=heard, learner=learner, cycle=cycle)


def test_all_other_pods_are_bound_and_the_one_at_fault_is_once_it_changes() -> None:
    found = operator()
    for one in (pod("a"), pod("bad"), pod("c")):
        found.cache.apply("pods", "ADDED", one)
    found.cycle()  # fails over the pod
    found.cycle()
    assert found.heard.bound == ["shop/a", "shop/c"]
    entry = found.cache.quarantine.get("pods", "shop/bad")
    assert (entry.part, entry.fault) == ("engine", "too large for int64")
    assert found.heard.records == 1
    found.cache.apply("pods", "MODIFIED", pod("bad", "2", priority=1))
    found.cycle()
    assert found.heard.bound[2:] == ["shop/bad"]


def test_whoever_learns_hears_what_was_decided_behind_what_happened() -> None:
    found = operator()
    found.cache.apply("pods", "ADDED", pod("a"))
    found.cycle()
    assert found.learner.bound == [("shop/a", 2)]  # the node and the pod


def test_whoever_reads_the_state_reads_that_of_the_new_engine() -> None:
    found = operator()
    state = found.loop.scheduler.state
    found.cache.apply("pods", "ADDED", pod("bad"))
    found.cycle()
    found.cycle()
    assert found.loop.scheduler.state is state
    assert state.node("n1") is not None


def test_a_new_engine_leaves_a_node_alone_that_refused_pods() -> None:
    found = operator()
    found.cache.apply("pods", "ADDED", pod("a"))
    found.cycle()
    refused = {"phase": "Failed", "reason": "NodeShutdown"}
    failed = pod_object("a", namespace="shop", resourceVersion="2", spec={"nodeName": "n1"}, status=refused)
    found.cache.apply("pods", "MODIFIED", failed)
    found.cycle()
    for one in (pod("bad"), pod("c")):
        found.cache.apply("pods", "ADDED", one)
    found.cycle()  # fails over the pod
    found.cycle()
    assert found.heard.bound == ["shop/a"]


def test_what_the_last_leader_told_of_nodes_outlasts_a_failure_of_the_first_cycle() -> None:
    found = operator()
    found.loop.emit(NodeBackoffRestored("n1", "NodeShutdown", time.time() + 200.0))
    for one in (pod("bad"), pod("c")):
        found.cache.apply("pods", "ADDED", one)
    found.cycle()  # fails before it hears of the node
    found.cycle()
    assert found.heard.bound == []
    assert [backoff.node for backoff in found.loop.backoffs()] == ["n1"]


def asking(name: str, cpu: str, **status: str) -> PodObject:
    """A pod of some cpu, on the node if it has a phase."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], **({"nodeName": "n1"} if status else {})}
    return pod_object(name, namespace="shop", spec=spec, status=status)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_decided_on_a_part_of_what_there_is(*, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is full, as an engine knows only that was told of the last pod."""
    monkeypatch.setattr(event_source_module, "CHANGES_AT_ONCE", 1)
    found = operator()
    for one in (asking("a", "1"), asking("runs", "8", phase="Running")):
        found.cache.apply("pods", "ADDED", one)
    if fails:  # a new engine follows, to which everything is new
        while found.loop._event_source.waiting:
            found.cycle()
        found.cache.apply("pods", "ADDED", pod("bad"))
        found.cycle()
        assert found.heard.records == 1
    while found.loop._event_source.waiting:
        assert not found.loop.fully_synced
        found.cycle()
    assert found.loop.fully_synced
    assert found.heard.bound == []
    assert found.loop.scheduler.pending()["unschedulable"] == 1


def test_who_waits_for_the_first_cycle_waits_for_all_parts_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_source_module, "CHANGES_AT_ONCE", 1)
    found = operator()
    for one in (pod("a"), pod("b")):
        found.cache.apply("pods", "ADDED", one)

    async def both() -> None:
        waiting = asyncio.create_task(found.loop.caught_up())
        await asyncio.sleep(0)
        await found.loop._cycle(found.heard)
        assert (found.loop.cycles, found.heard.bound, waiting.done()) == (0, [], False)
        await found.loop._cycle(found.heard)
        await waiting

    asyncio.run(both())
    assert (found.loop.cycles, found.heard.bound) == (1, ["shop/a", "shop/b"])


def test_a_failure_that_names_no_object_is_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    found = operator()
    monkeypatch.setattr(Fragile, "_expire", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        found.cycle()


def test_others_have_their_turn_between_the_parts_of_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    found = operator()
    found.cycle()
    found.cache.apply("pods", "ADDED", pod("a"))
    seen: list[tuple[int, list[str]]] = []

    async def both() -> None:
        cycle = asyncio.create_task(found.loop._cycle(found.heard))
        while not cycle.done():
            await asyncio.sleep(0)
            seen.append((found.loop.cycles, list(found.heard.bound)))
        await cycle

    asyncio.run(both())
    assert (1, []) in seen, "after the pods were collected"
    assert (2, []) in seen, "after the engine decided"
    assert found.heard.bound == ["shop/a"]


def test_a_loop_that_is_stopped_in_the_middle_of_a_cycle_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    found = operator()
    found.cache.apply("pods", "ADDED", pod("a"))

    async def both() -> None:
        cycle = asyncio.create_task(found.loop._cycle(found.heard))
        await asyncio.sleep(0)
        found.loop.stop()
        await cycle

    asyncio.run(both())
    assert (found.loop.cycles, found.heard.bound) == (0, [])


def test_a_note_that_comes_back_on_a_pod_that_waits_makes_no_cycle() -> None:
    found = operator()
    waits = pod("a")
    found.cache.apply("pods", "ADDED", msgspec.structs.replace(waits, spec=gated(waits)))
    found.cycle()
    assert (found.loop.cycles, found.heard.bound) == (1, [])
    noted = msgspec.structs.replace(waits.metadata, resource_version="2", annotations={"cotide.dev/decision": "{}"})
    found.cache.apply("pods", "MODIFIED", msgspec.structs.replace(waits, spec=gated(waits), metadata=noted))
    found.cycle()
    assert (found.loop.cycles, found.loop._in_hand) == (1, False)
    found.cache.apply("pods", "MODIFIED", waits)
    found.cycle()
    assert (found.loop.cycles, found.heard.bound) == (2, ["shop/a"])


def gated(waits: PodObject) -> PodSpec:
    """Return a pod's spec with a gate."""
    return msgspec.structs.replace(waits.spec, scheduling_gates=(SchedulingGate("quota"),))


def test_who_waits_for_what_was_told_in_the_middle_of_a_cycle_waits_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    found = operator()
    found.cycle()
    found.cache.apply("pods", "ADDED", pod("a"))

    async def both() -> None:
        cycle = asyncio.create_task(found.loop._cycle(found.heard))
        while found.loop.cycles < 2:  # the engine has decided, and nothing is carried out yet
            await asyncio.sleep(0)
        found.loop.emit(Tick())
        waiting = asyncio.create_task(found.loop.caught_up())
        await cycle
        assert not waiting.done()
        assert found.loop._due()
        await found.loop._cycle(found.heard)
        await waiting

    asyncio.run(both())


class KnownRunTimes:
    """Tells nothing and notes how it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ahead(self, events: Sequence[Event], forecaster: CompletionForecaster) -> list[Event]:
        self.asked.append(forecaster.model_id)
        return [Tick()] if len(events) > 2 else []

    def decided(self, instructions: Sequence[Instruction]) -> None:
        self.asked.append("decided")

    def begin_anew(self) -> None:
        self.asked.append("anew")


def test_run_times_are_asked_for_before_each_call_and_told_anew_to_a_new_engine() -> None:
    found = operator()
    found.loop._event_forecaster = run_times = KnownRunTimes()
    found.cache.apply("pods", "ADDED", pod("bad"))
    found.cycle()  # fails over the pod
    found.cycle()
    assert run_times.asked == ["heuristic", "anew", "heuristic", "decided"]


class FailsOnce(Scheduler):
    """Fails over pods of one name for as long as its state is to blame."""

    is_to_blame = True

    def _apply(self, event: Event, now: float) -> None:
        if FailsOnce.is_to_blame and isinstance(event, PodUpserted) and event.pod.key == "shop/bad":
            FailsOnce.is_to_blame = False
            raise SystemError("bad argument to internal function")
        super()._apply(event, now)


@pytest.mark.parametrize("innocent", [True, False])
def test_an_object_that_an_engine_failed_over_is_tried_once_more(
    *, innocent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling_loop, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(FailsOnce, "is_to_blame", True)
    found = operator()
    if innocent:
        found.loop.scheduler = FailsOnce(SchedulerConfig(policy="fifo"), HeuristicCatalogue())
        found.loop._remake = lambda: FailsOnce(SchedulerConfig(policy="fifo"), HeuristicCatalogue())
    found.cache.apply("pods", "ADDED", pod("bad"))

    async def all_cycles() -> None:
        for _ in range(8):
            await found.loop._cycle(found.heard)
            await asyncio.sleep(0.001)

    asyncio.run(all_cycles())
    assert found.heard.bound == (["shop/bad"] if innocent else [])
    assert found.heard.records == (1 if innocent else 2)  # new engines
    assert (found.cache.quarantine.get("pods", "shop/bad") is None) is innocent
