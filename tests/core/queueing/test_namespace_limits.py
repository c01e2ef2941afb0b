"""Limits of a namespace: what is above them waits and says why, nobody else does, and a ledger replays it."""

from __future__ import annotations

import pytest
from engine_objects import node_upserted, pod_upserted
from hypothesis import given, settings
from hypothesis import strategies as st
from live_cluster import node

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    Event,
    Namespace,
    NamespaceDeleted,
    NamespaceUpserted,
    Pod,
    PodDeleted,
    PodPhase,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Instruction, Wait, WaitReason
from cotide_core.policies import POLICIES
from cotide_core.recording.ledger import LedgerWriter
from cotide_lab.commands.ledger_replay import replay

GRATIS, BATCH, ONLINE = WorkloadClass.GRATIS, WorkloadClass.BATCH, WorkloadClass.ONLINE


def limits(name: str = "a", **fields: int) -> NamespaceUpserted:
    return NamespaceUpserted(Namespace(name, **fields))


def gone(key: str) -> PodDeleted:
    return PodDeleted(key, f"u-{key}")


def engine(*events: Event, policy: str = "fifo", cpu: int = 8000) -> tuple[Scheduler, list[Instruction]]:
    scheduler = Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())
    return scheduler, scheduler.handle([node("n", cpu), *events], 0.0)


def bound(out: list[Instruction]) -> list[str]:
    return [one.key for one in out if isinstance(one, Bind)]


def waits(out: list[Instruction]) -> dict[str, Wait]:
    return {one.key: one for one in out if isinstance(one, Wait)}


@pytest.mark.parametrize("policy", ["fifo", "qpsm", "easy", "conservative", "slack-guarded"])
def test_batch_above_its_cpu_waits_and_names_the_limit_while_others_start(policy: str) -> None:
    # 2 of 3 pods of 1000m are within 2500m; the namespace beside it has no limit.
    own = [pod_upserted(f"a/{number}") for number in range(3)]
    _, out = engine(limits(batch_millicores=2500), *own, pod_upserted("b/0"), policy=policy)
    assert sorted(bound(out)) == ["a/0", "a/1", "b/0"]
    wait = waits(out)["a/2"]
    assert (wait.reason, wait.cap) == (WaitReason.WAITING_FOR_TURN, "cotide.dev/max-batch-cpu")
    assert wait.message == (
        "its namespace may hold 2500m cpu in batch and gratis pods (cotide.dev/max-batch-cpu);"
        " it starts when others of the namespace end"
    )


@pytest.mark.parametrize("policy", ["fifo", "easy"])
def test_it_starts_when_another_of_its_namespace_ends(policy: str) -> None:
    scheduler, _ = engine(limits(batch_millicores=1000), pod_upserted("a/0"), pod_upserted("a/1"), policy=policy)
    assert bound(scheduler.handle([gone("a/0")], 1.0)) == ["a/1"]


def test_memory_counts_as_cpu_does_and_online_pods_count_for_nothing() -> None:
    mebi = 1 << 20
    own = [
        pod_upserted("a/0", 1, GRATIS, memory=300 * mebi),
        pod_upserted("a/1", 1, memory=300 * mebi),
        pod_upserted("a/web", 1, ONLINE, memory=400 * mebi),
    ]
    _, out = engine(limits(batch_memory_bytes=512 * mebi), *own)
    assert sorted(bound(out)) == ["a/1", "a/web"], "batch is tried before gratis"
    assert waits(out)["a/0"].cap == "cotide.dev/max-batch-memory"


def test_a_pod_that_alone_is_above_the_limit_is_told_so() -> None:
    _, out = engine(limits(batch_millicores=500), pod_upserted("a/0"))
    assert waits(out)["a/0"].message == (
        "its namespace may hold 500m cpu in batch and gratis pods (cotide.dev/max-batch-cpu),"
        " and this pod alone asks for 1"
    )


def test_a_large_pod_that_must_wait_does_not_hold_up_a_smaller_one() -> None:
    scheduler, _ = engine(
        limits(batch_millicores=2000), pod_upserted("a/0", 2000), pod_upserted("a/1", 3000), pod_upserted("a/2")
    )
    assert bound(scheduler.handle([gone("a/0")], 1.0)) == ["a/2"]


@pytest.mark.parametrize("policy", ["fifo", "easy"])
def test_hundreds_of_pods_that_are_above_the_limit_alone_do_not_hold_up_a_smaller_one(policy: str) -> None:
    large = [pod_upserted(f"a/large-{number}", 3000) for number in range(200)]
    scheduler, _ = engine(limits(batch_millicores=2000), pod_upserted("a/0", 2000), policy=policy)
    scheduler.handle(large, 1.0)
    scheduler.handle([pod_upserted("a/small")], 2.0)
    assert bound(scheduler.handle([gone("a/0")], 3.0)) == ["a/small"]
    # They are let in when the limit is raised: two of the 8 cores' worth, and one that was deleted meanwhile is not.
    scheduler.handle([gone("a/small"), gone("a/large-0")], 4.0)
    raised = scheduler.handle([limits(batch_millicores=6000)], 5.0)
    assert bound(raised) == ["a/large-1", "a/large-2"]


def test_a_pod_that_finds_no_node_keeps_no_other_of_its_namespace_waiting() -> None:
    picky = pod_upserted("a/1", node_selector=(("disk", "ssd"),))
    scheduler, _ = engine(limits(batch_millicores=1000), pod_upserted("a/0"), picky, pod_upserted("a/2"))
    assert bound(scheduler.handle([gone("a/0")], 1.0)) == []
    assert scheduler.next_wakeup(1.0) == 1.0
    assert bound(scheduler.handle([], 1.0)) == ["a/2"]


@pytest.mark.parametrize("policy", ["easy", "conservative", "sjf", "slack", "hybrid", "random-random", "sjf-lw"])
def test_a_pod_that_is_planned_nowhere_keeps_no_other_of_its_namespace_waiting(policy: str) -> None:
    picky = pod_upserted("a/1", node_selector=(("disk", "ssd"),))
    scheduler, out = engine(limits(batch_millicores=1000), picky, policy=policy)
    assert waits(out)["a/1"].message == "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector"
    seen = scheduler.handle([pod_upserted("a/2")], 1.0)
    while (again := scheduler.next_wakeup(1.0)) is not None and again <= 1.0:
        seen += scheduler.handle([], again)
    assert bound(seen) == ["a/2"]
    # A node that takes it comes when its namespace holds all that it may: then it waits for that.
    labelled = node_upserted("m", 8000, labels=(("disk", "ssd"),))
    assert waits(scheduler.handle([labelled], 2.0))["a/1"].cap == "cotide.dev/max-batch-cpu"
    assert bound(scheduler.handle([gone("a/2")], 3.0)) == ["a/1"]


def test_a_pod_that_must_wait_for_its_limit_keeps_no_other_namespace_from_the_room_it_was_woken_for() -> None:
    full = pod_upserted("x/full", 1000, ONLINE)
    scheduler, _ = engine(full, limits(batch_millicores=1000), pod_upserted("a/1"), pod_upserted("b/1"), cpu=1000)
    # Their first attempt found no room. Then the limit of one is used up on a node that takes no further pod.
    scheduler.handle([node("m", 1000), pod_upserted("a/other", node="m", phase=PodPhase.RUNNING)], 1.0)
    assert bound(scheduler.handle([gone("x/full")], 2.0)) == ["b/1"]


def test_more_than_the_queue_may_hold_of_a_namespace_waits_outside() -> None:
    full = pod_upserted("b/full", 8000, node="n", phase=PodPhase.RUNNING)
    own = [pod_upserted(f"a/{number}") for number in range(3)]
    scheduler, out = engine(full, limits(queued_pods=2), *own, pod_upserted("b/1"))
    assert {key: wait.cap for key, wait in waits(out).items() if wait.cap} == {"a/2": "cotide.dev/max-queued-pods"}
    out = scheduler.handle([gone("a/0")], 1.0)
    assert [wait.key for wait in waits(out).values() if not wait.cap] == ["a/2"], "tried now, and no node has room"


def test_a_full_queue_lets_in_no_more_of_a_namespace_than_its_limit() -> None:
    scheduler = Scheduler(SchedulerConfig(policy="fifo", max_queue=2), HeuristicCatalogue())
    scheduler.handle([node("n", 500), limits(queued_pods=1), pod_upserted("b/0"), pod_upserted("b/1")], 0.0)
    out = waits(scheduler.handle([pod_upserted(f"a/{number}") for number in range(3)], 1.0))
    assert {key: wait.cap for key, wait in out.items()} == {
        "a/0": "",
        "a/1": "cotide.dev/max-queued-pods",
        "a/2": "cotide.dev/max-queued-pods",
    }
    out = waits(scheduler.handle([gone("b/0"), gone("b/1")], 2.0))
    assert set(out) == {"a/0"}, "tried now; the next has its turn when this one is gone"


def test_limits_that_are_raised_or_taken_away_let_pods_start() -> None:
    scheduler, _ = engine(limits(batch_millicores=1000), *(pod_upserted(f"a/{number}") for number in range(4)))
    assert len(bound(scheduler.handle([limits(batch_millicores=2000)], 1.0))) == 1
    assert len(bound(scheduler.handle([NamespaceDeleted("a")], 2.0))) == 2


def test_limits_that_come_later_count_what_runs_already() -> None:
    scheduler, _ = engine(pod_upserted("a/0"))
    assert bound(scheduler.handle([limits(batch_millicores=1500), pod_upserted("a/1")], 1.0)) == []


def test_a_limit_that_is_lowered_holds_for_what_is_planned() -> None:
    full = pod_upserted("b/full", 8000, node="n", phase=PodPhase.RUNNING, started_seconds=0.0)
    scheduler, _ = engine(full, limits(batch_millicores=2000), pod_upserted("a/0"), pod_upserted("a/1"), policy="easy")
    out = scheduler.handle([limits(batch_millicores=1000)], 1.0)
    assert {key: wait.cap for key, wait in waits(out).items()} == {"a/1": "cotide.dev/max-batch-cpu"}
    assert bound(scheduler.handle([gone("b/full")], 2.0)) == ["a/0"]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(("a", "b", "c")), st.integers(1, 4)),
        st.tuples(st.just("end"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("limit"), st.sampled_from(("a", "b")), st.integers(0, 8)),
        st.tuples(st.just("free"), st.sampled_from(("a", "b")), st.just(0)),
        st.tuples(st.just("time"), st.integers(0, 70), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), steps)
def test_no_pod_starts_above_a_limit_all_start_in_the_end_and_the_ledger_replays(policy, acts) -> None:
    config = SchedulerConfig(policy=policy, assume_timeout_seconds=1e9)  # nobody confirms what is bound here
    scheduler, writer = Scheduler(config, HeuristicCatalogue()), LedgerWriter(config)
    lines, now = [writer.header()], 0.0
    most: dict[str, int] = {}
    waiting: dict[str, Pod] = {}
    running: dict[str, Pod] = {}

    def cycle(*events: Event) -> None:
        out = scheduler.handle(events, now)
        lines.append(writer.entry(now, events, out))
        for key in bound(out):
            running[key] = waiting.pop(key)
        for name, limit in most.items():
            started = [key for key in bound(out) if key.startswith(f"{name}/")]
            held = sum(one.requests[0][1] for key, one in running.items() if key.startswith(f"{name}/"))
            assert not started or held <= limit, f"{started} took {name} to {held} of {limit}"

    cycle(node("n", 8000))
    for number, (act, what, much) in enumerate(acts):
        if act == "submit":
            arrival = pod_upserted(f"{what}/{number}", 1000 * much, (BATCH, GRATIS)[number % 2])
            waiting[arrival.pod.key] = arrival.pod
            cycle(arrival)
        elif act == "end" and running:
            one = running.pop(sorted(running)[what % len(running)])
            cycle(gone(one.key))
        elif act == "limit":
            most[what] = 1000 * much
            cycle(limits(what, batch_millicores=1000 * much))
        elif act == "free":
            most.pop(what, None)
            cycle(NamespaceDeleted(what))
        elif act == "time":
            now += what
            cycle()
    for name in list(most):
        del most[name]
        cycle(NamespaceDeleted(name))
    for _ in range(200):
        if not (waiting or running):
            break
        now += 61.0
        cycle(*(gone(running.pop(key).key) for key in list(running)))
    assert not waiting
    result = replay(lines, HeuristicCatalogue())
    assert result.difference is None


def test_the_queue_counts_the_pods_that_wait_outside() -> None:
    scheduler, _ = engine(limits(batch_millicores=1000), pod_upserted("a/0"), pod_upserted("a/1"))
    assert scheduler.pending()["unschedulable"] == 1
    assert scheduler.queue_positions() == {"a/1": 1}
    assert scheduler.next_wakeup(0.0) == scheduler.config.assume_timeout_seconds, "nothing to do but wait"
