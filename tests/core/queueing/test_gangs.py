"""Gangs at the present: all or nothing, released after a time-out, taken up by a new engine, evicted whole."""

from __future__ import annotations

import pytest
from live_cluster import Catalogue, bound, engine, node, pod

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    BindRefused,
    Event,
    EvictRefused,
    Gang,
    Namespace,
    NamespaceUpserted,
    NodeDeleted,
    PodDeleted,
    PodPhase,
    PodUpserted,
)
from cotide_core.instructions import Evict, EvictCause, Instruction, Wait, WaitReason
from cotide_core.limits import MAX_GANG_REQUESTS
from cotide_core.queueing.gangs import GangNeed, GangWait
from cotide_core.recording.ledger import LedgerWriter
from cotide_lab.commands.ledger_replay import replay

PRESENT = ("fifo", "qpsm", "random-guarded", "hierarchical", "predictive")
TIMEOUT = 60.0


def members(name: str, count: int, minimum: int = 0, cpu: int = 1000, **fields: object) -> list[PodUpserted]:
    rule = Gang(f"d/{name}", minimum or count, TIMEOUT)
    return [pod(f"{name}-{index}", cpu, 10.0, gang=rule, **fields) for index in range(count)]


def on(event: PodUpserted, where: str, phase: PodPhase = PodPhase.RUNNING) -> PodUpserted:
    return PodUpserted(event.pod._replace(node=where, phase=phase, started_seconds=0.0))


def refuse(event: PodUpserted, where: str) -> BindRefused:
    return BindRefused(event.pod.key, event.pod.uid, where, 500, "no", retry=True)


def waits(out: list[Instruction]) -> dict[str, Wait]:
    return {one.key.removeprefix("d/"): one for one in out if isinstance(one, Wait)}


def evicted(out: list[Instruction]) -> dict[str, EvictCause]:
    return {one.key.removeprefix("d/"): one.cause for one in out if isinstance(one, Evict)}


@pytest.mark.parametrize("policy", PRESENT)
def test_two_gangs_that_each_need_more_than_half_run_one_after_the_other(policy: str) -> None:
    """Eight cores, gangs of five and six: neither gets a part of what it needs while the other runs."""
    x, y = members("x", 6), members("y", 5)
    mixed: list[Event] = [one for pair in zip(y, x, strict=False) for one in pair] + x[5:]
    scheduler, out = engine(policy, node("a"), node("b"), *mixed)
    first = bound(out)
    assert {name.split("-")[0] for name in first} in ({"x"}, {"y"})
    assert len(first) == (6 if "x-0" in first else 5)
    of_first = {one.pod.key.removeprefix("d/"): one for one in mixed if isinstance(one, PodUpserted)}
    done = [on(of_first[name], where, PodPhase.SUCCEEDED) for name, where in first.items()]
    assert len(bound(scheduler.handle(done, 10.0))) == 11 - len(first)


@pytest.mark.parametrize("policy", PRESENT)
def test_a_gang_waits_for_its_last_pod_and_says_how_many_are_there(policy: str) -> None:
    x = members("x", 3)
    scheduler, out = engine(policy, node("a"), *x[:2])
    assert not bound(out)
    assert waits(out)["x-0"].reason is WaitReason.WAITING_FOR_GANG
    assert waits(out)["x-0"].message == "gang d/x: 2 of 3 are present and can start, waits for the others"
    assert len(bound(scheduler.handle(x[2:], 1.0))) == 3


@pytest.mark.parametrize("policy", PRESENT)
def test_a_gang_of_more_kinds_of_pods_than_start_together_says_so_until_they_are_alike(policy: str) -> None:
    """Pods of 1 to 128 millicores start at once; one of 129 keeps all of them, until one of 128 comes in its place."""
    count = MAX_GANG_REQUESTS + 1
    rule = Gang("d/x", count, TIMEOUT)
    unlike = [pod(f"x-{index}", 1 + index, 10.0, gang=rule) for index in range(count)]
    scheduler, out = engine(policy, node("a"), node("b"), node("c"), *unlike)
    assert not bound(out)
    assert {wait.reason for wait in waits(out).values()} == {WaitReason.MISCONFIGURED}
    words = "gang d/x: its pods have more than 128 kinds of requests and rules and can't start together"
    assert waits(out)["x-0"].message.startswith(words)
    scheduler.handle([PodDeleted(unlike[-1].pod.key, unlike[-1].pod.uid)], 1.0)
    alike = pod("x-alike", MAX_GANG_REQUESTS, 10.0, gang=rule)
    assert len(bound(scheduler.handle([alike], 2.0))) == count


@pytest.mark.parametrize("policy", PRESENT)
def test_a_gang_is_tried_again_when_a_smaller_pod_takes_the_place_of_one(policy: str) -> None:
    """Three pods of 1.5 cores don't fit into four; two and one of .5 do, though as many wait as before."""
    x = members("x", 3, cpu=1500)
    scheduler, out = engine(policy, node("a"), *x)
    assert not bound(out)
    scheduler.handle([PodDeleted(x[2].pod.key, x[2].pod.uid)], 1.0)
    smaller = pod("x-smaller", 500, 10.0, gang=x[0].pod.gang)
    assert len(bound(scheduler.handle([smaller], 2.0))) == 3


@pytest.mark.parametrize("policy", PRESENT)
def test_what_could_start_is_said_once_and_nothing_is_held_for_it(policy: str) -> None:
    """Four cores, one of them taken: three of four could start, and a single pod takes one of the free cores."""
    busy = on(pod("busy", 1000, 100.0), "a")
    scheduler, out = engine(policy, node("a"), busy, *members("x", 4))
    messages = [wait.message for wait in waits(out).values()]
    assert sum("gang d/x: 3 of 4 can start, waits for room for all at once" in message for message in messages) == 1
    assert sum("; see d/x-" in message for message in messages) == 3
    assert bound(scheduler.handle([pod("single", 1000, 10.0, 1.0)], 1.0)) == {"single": "a"}


def test_a_minimum_starts_the_gang_and_the_others_follow_one_by_one() -> None:
    """Two of four are enough; three fit."""
    busy = on(pod("busy", 1000, 100.0), "a")
    scheduler, out = engine("fifo", node("a"), busy, *members("x", 4, minimum=2))
    assert len(bound(out)) == 2
    assert scheduler.next_wakeup(0.0) == 0.0
    assert len(bound(scheduler.handle([], 0.0))) == 1, "the third fits, the fourth waits alone"


@pytest.mark.parametrize("policy", PRESENT)
def test_a_half_bound_gang_is_finished_where_there_is_room(policy: str) -> None:
    x = members("x", 3)
    scheduler, out = engine(policy, node("a"), *x)
    where = bound(out)
    scheduler.handle([on(x[0], where["x-0"]), on(x[1], where["x-1"]), refuse(x[2], where["x-2"])], 1.0)
    assert bound(scheduler.handle([], 3.0)) == {"x-2": "a"}
    assert scheduler.handle([on(x[2], "a")], 4.0) == []
    assert not evicted(scheduler.handle([], 500.0)), "whole again: no time-out"


def _half_bound(scheduler: Scheduler, out: list[Instruction], x: list[PodUpserted]) -> None:
    """Confirm two of three, refuse the third, and have its room taken by a pod of another scheduler at 1 s."""
    where = bound(out)
    thief = PodUpserted(pod("thief", 2000, 1e6).pod._replace(ours=False, node="a", phase=PodPhase.RUNNING))
    scheduler.handle([on(x[0], where["x-0"]), on(x[1], where["x-1"]), refuse(x[2], where["x-2"]), thief], 1.0)


@pytest.mark.parametrize("policy", [*PRESENT, "easy", "conservative"])
def test_a_gang_that_stays_half_bound_is_released_after_its_timeout_and_not_before(policy: str) -> None:
    """Partial since 1 s, released at 61 s; those that were asked are gone at 62 s, and nobody starts before."""
    x = members("x", 3)
    scheduler, out = engine(policy, node("a"), *x)
    _half_bound(scheduler, out, x)
    assert not evicted(scheduler.handle([], 60.9))
    assert scheduler.next_wakeup(60.9) == 61.0
    out = scheduler.handle([], 61.0)
    assert evicted(out) == {"x-0": EvictCause.GANG, "x-1": EvictCause.GANG}
    assert scheduler.gangs.released == {GangNeed.ROOM: 1}
    assert not bound(scheduler.handle([PodDeleted("d/thief", "u-thief")], 61.5)), "two of it are on their way out"
    gone = [PodDeleted(one.pod.key, one.pod.uid) for one in x[:2]]
    again = [PodUpserted(one.pod._replace(uid=f"again-{one.pod.uid}")) for one in x[:2]]
    assert len(bound(scheduler.handle([*gone, *again], 80.0))) == 3


def test_what_a_gang_waits_for_is_known_with_the_moment_since_when() -> None:
    """Two of three from 0 s; all from 5 s on four cores of which two are taken; room from 9 s; confirmed at 10 s."""
    x = members("x", 3)
    busy = on(pod("busy", 2000, 100.0), "a")
    scheduler, _ = engine("fifo", node("a"), busy, *x[:2])
    assert scheduler.gangs.waits == {"d/x": GangWait(GangNeed.MEMBERS, 0.0)}
    scheduler.handle(x[2:], 5.0)
    assert scheduler.gangs.waits == {"d/x": GangWait(GangNeed.ROOM, 5.0)}
    where = bound(scheduler.handle([PodDeleted("d/busy", "u-busy")], 9.0))
    scheduler.handle([], 9.0)
    assert scheduler.gangs.waits == {"d/x": GangWait(GangNeed.BINDINGS, 9.0)}
    scheduler.handle([on(one, where[one.pod.key.removeprefix("d/")]) for one in x], 10.0)
    assert scheduler.gangs.waits == {}
    scheduler.handle([PodDeleted(one.pod.key, one.pod.uid) for one in x[:2]], 11.0)
    assert scheduler.gangs.waits == {"d/x": GangWait(GangNeed.MEMBERS, 11.0)}
    scheduler.handle([PodDeleted(x[2].pod.key, x[2].pod.uid)], 12.0)
    assert scheduler.gangs.waits == {}


def test_a_gang_of_which_a_member_never_came_is_released_for_want_of_members() -> None:
    """Two run, the third is gated from 1 s, the first goes: one holds a node and one of two that lack may start."""
    x = members("x", 3)
    scheduler, out = engine("fifo", node("a"), *x)
    where = bound(out)
    gone = [refuse(x[2], where["x-2"]), PodUpserted(x[2].pod._replace(gates=("later",)))]
    again = PodUpserted(x[0].pod._replace(uid="again"))
    scheduler.handle([on(x[1], where["x-1"]), PodDeleted("d/x-0", "u-x-0"), *gone, again], 1.0)
    assert scheduler.gangs.partial == 1
    assert evicted(scheduler.handle([], 61.0)) == {"x-1": EvictCause.GANG}
    assert scheduler.gangs.released == {GangNeed.MEMBERS: 1}


def test_a_refused_release_is_asked_again() -> None:
    x = members("x", 3)
    scheduler, out = engine("fifo", node("a"), *x)
    _half_bound(scheduler, out, x)
    assert len(evicted(scheduler.handle([], 61.0))) == 2
    refused = [EvictRefused(one.pod.key, one.pod.uid, "a", 429, "budget") for one in x[:2]]
    scheduler.handle(refused, 61.1)
    assert len(evicted(scheduler.handle([], 91.2))) == 2, "30 s later"


@pytest.mark.parametrize("policy", [*PRESENT, "easy"])
def test_a_new_engine_finishes_a_half_bound_gang_or_releases_it_within_its_timeout(policy: str) -> None:
    x = members("x", 3)
    half = [on(x[0], "a"), on(x[1], "a"), x[2]]
    scheduler, out = engine(policy, node("a"), *half)
    assert bound(out) == {"x-2": "a"}
    thief = PodUpserted(pod("thief", 2000, 1e6).pod._replace(ours=False, node="a", phase=PodPhase.RUNNING))
    scheduler, out = engine(policy, node("a"), thief, *half)
    assert not bound(out)
    assert set(evicted(scheduler.handle([], TIMEOUT))) == {"x-0", "x-1"}


def test_a_gang_whose_pods_succeed_one_after_another_is_not_partial() -> None:
    x = members("x", 3)
    scheduler, out = engine("fifo", node("a"), *x)
    where = bound(out)
    scheduler.handle([on(one, where[one.pod.key.removeprefix("d/")]) for one in x], 1.0)
    scheduler.handle([on(x[0], "a", PodPhase.SUCCEEDED), PodDeleted("d/x-0", "u-x-0")], 5.0)
    assert not evicted(scheduler.handle([], 500.0))


def test_a_gang_waits_while_a_member_is_gated() -> None:
    x = members("x", 3)
    gated = PodUpserted(x[2].pod._replace(gates=("kueue.x-k8s.io/admission",)))
    scheduler, out = engine("fifo", node("a"), *x[:2], gated)
    assert not bound(out)
    assert len(bound(scheduler.handle([x[2]], 1.0))) == 3


def test_a_limit_of_the_namespace_stops_the_whole_gang_without_a_busy_loop() -> None:
    """Three cores may be held; the gang needs four. It is asked about again when a limit changes."""
    limit = NamespaceUpserted(Namespace("d", batch_millicores=3000))
    scheduler, out = engine("fifo", node("a"), limit, *members("x", 4))
    assert not bound(out)
    assert any(wait.cap for wait in waits(out).values())
    for _ in range(4):
        scheduler.handle([], 0.0)
    assert scheduler.next_wakeup(0.0) is None or scheduler.next_wakeup(0.0) > 0.0
    out = scheduler.handle([NamespaceUpserted(Namespace("d", batch_millicores=4000))], 1.0)
    assert len(bound(out)) == 4


def _gratis(count: int, gang: Gang | None = None) -> list[PodUpserted]:
    gratis = [pod(f"g-{index}", 1000, 1e3, workload_class=WorkloadClass.GRATIS, gang=gang) for index in range(count)]
    return [on(one, "ab"[index % 2]) for index, one in enumerate(gratis)]


def test_gratis_pods_leave_for_a_gang_only_where_all_of_it_gets_room() -> None:
    """Eight cores, six held by gratis pods. Of a gang of four two fit and two get room. A gang of nine never fits."""
    _, out = engine("hierarchical", node("a"), node("b"), *_gratis(6), *members("big", 9))
    assert not evicted(out)
    scheduler, out = engine("hierarchical", node("a"), node("b"), *_gratis(6), *members("x", 4))
    assert not bound(out)
    leaves = evicted(out)
    assert len(leaves) == 2
    assert set(leaves.values()) == {EvictCause.PREEMPTED}
    single = pod("single", 1000, 10.0, 1.0)
    assert not bound(scheduler.handle([single], 1.0)), "the nodes that two members found are kept for them"
    gone = [PodDeleted(f"d/{name}", f"u-{name}") for name in leaves]
    out = scheduler.handle(gone, 2.0)
    assert {name.split("-")[0] for name in bound(out)} == {"x"}
    assert len(bound(out)) == 4


def test_a_victim_takes_its_gang_along() -> None:
    """One core is wanted; the gratis gang of eight would be useless without one of its pods."""
    rule = Gang("d/g", 8, TIMEOUT)
    wanted = pod("wanted", 1000, 10.0)
    _, out = engine("hierarchical", node("a"), node("b"), *_gratis(8, rule), wanted)
    assert len(evicted(out)) == 8
    _, out = engine("hierarchical", node("a"), node("b"), *_gratis(8, rule._replace(minimum=7)), wanted)
    assert len(evicted(out)) == 1, "seven are enough"


@pytest.mark.parametrize("policy", ["fifo", "predictive", "easy"])
def test_decisions_about_gangs_replay_byte_for_byte(policy: str) -> None:
    config = SchedulerConfig(policy=policy)
    scheduler, writer = Scheduler(config, Catalogue()), LedgerWriter(config)
    lines = [writer.header()]
    events: list[Event] = [node("a"), *members("x", 3), *members("y", 2)]
    for now in (0.0, 1.0, 70.0):
        out = scheduler.handle(events, now)
        lines.append(writer.entry(now, events, out))
        events = [members("y", 2)[0]] if now else [refuse(members("x", 3)[0], "a")]
    assert replay(lines, Catalogue()).difference is None


@pytest.mark.parametrize("policy", PRESENT)
def test_an_online_pod_of_a_gang_is_never_asked_to_leave_with_it(policy: str) -> None:
    """Of a leader and two workers one worker is not bound: the other leaves after the time-out, the leader stays."""
    lead, *workers = members("x", 3)
    lead = PodUpserted(lead.pod._replace(workload_class=WorkloadClass.ONLINE))
    scheduler, out = engine(policy, node("a"), lead, *workers)
    assert len(bound(out)) == 3
    _half_bound(scheduler, out, [lead, *workers])
    assert evicted(scheduler.handle([], 3.0 + TIMEOUT)) == {"x-1": EvictCause.GANG}


def _lost_one(policy: str, *more: Event) -> Scheduler:
    """A gang of three that came at 0 s and runs on two nodes; the node of one of them goes at 102 s."""
    x = members("x", 3, cpu=2000)
    scheduler, out = engine(policy, node("a"), node("b"), *x)
    where = bound(out)
    scheduler.handle([on(one, where[one.pod.key.removeprefix("d/")]) for one in x], 1.0)
    (lost,) = (one for one in x if list(where.values()).count(where[one.pod.key.removeprefix("d/")]) == 1)
    replacement = pod("x-new", 2000, 10.0, 101.0, gang=lost.pod.gang)
    gone: list[Event] = [NodeDeleted(where[lost.pod.key.removeprefix("d/")]), PodDeleted(lost.pod.key, lost.pod.uid)]
    assert not bound(scheduler.handle([*more, *gone, replacement], 102.0))
    return scheduler


@pytest.mark.parametrize("policy", [*PRESENT, "easy", "conservative", "svf"])
def test_a_time_out_for_starting_ends_nothing_that_runs(policy: str) -> None:
    scheduler = _lost_one(policy)
    assert not evicted(scheduler.handle([], 103.0 + TIMEOUT))
    assert not evicted(scheduler.handle([], 1000.0))
    assert bound(scheduler.handle([node("c")], 1001.0)) == {"x-new": "c"}


@pytest.mark.parametrize("policy", ["fifo", "easy", "hierarchical"])
def test_a_replacement_has_the_place_of_its_gang_in_the_queue(policy: str) -> None:
    """The single pod came at 50 s, after the gang and before the replacement; the new node holds one of them."""
    single = pod("single", 4000, 10.0, 50.0)
    scheduler = _lost_one(policy, single)
    assert bound(scheduler.handle([node("c")], 103.0)) == {"x-new": "c"}


def test_a_member_that_its_gang_does_not_lack_has_its_own_place() -> None:
    """A gang of one on a, and a member more that came at 60 s: the single pod of 50 s is first."""
    x = members("x", 1, cpu=4000)
    scheduler, _ = engine("fifo", node("a"), *x)
    scheduler.handle([on(x[0], "a")], 1.0)
    more = pod("x-more", 4000, 10.0, 60.0, gang=x[0].pod.gang)
    assert not bound(scheduler.handle([more, pod("single", 4000, 10.0, 50.0)], 61.0))
    assert bound(scheduler.handle([node("b")], 62.0)) == {"single": "b"}


def test_a_new_engine_ends_nothing_of_a_gang_that_lost_a_member() -> None:
    """What waits came after the others ran: it is a replacement, and the gang had started."""
    x = members("x", 3)
    replacement = PodUpserted(x[2].pod._replace(created_seconds=50.0))
    thief = PodUpserted(pod("thief", 2000, 1e6).pod._replace(ours=False, node="a", phase=PodPhase.RUNNING))
    scheduler, _ = engine("fifo", node("a"), thief, on(x[0], "a"), on(x[1], "a"), replacement)
    assert not evicted(scheduler.handle([], TIMEOUT + 1.0))
    assert not evicted(scheduler.handle([], 10 * TIMEOUT))
