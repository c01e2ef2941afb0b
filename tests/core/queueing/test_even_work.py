"""Twice as many pods are twice the work, whatever they have to do with one another: counted in calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counted_work import calls_of
from engine_objects import node_upserted
from live_cluster import bound, engine, pod

from cotide_core.cycle import Scheduler
from cotide_core.events import Event, Gang, PodDeleted, PodPhase, PodUpserted
from cotide_core.instructions import Evict, EvictCause, Instruction

EVEN = 1.3
"""Of twice the work of half as many; chosen: what is done once in a cycle may be rounded up, what is squared is 2."""


def members(name: str, count: int, minimum: int | None = None, cpu: int = 1) -> list[PodUpserted]:
    rule = Gang(f"d/{name}", minimum or count, 60.0)
    return [pod(f"{name}-{index}", cpu, 10.0, gang=rule) for index in range(count)]


def singles(count: int, cpu: int) -> list[PodUpserted]:
    return [pod(f"p-{index}", cpu, 10.0) for index in range(count)]


def node_of(name: str) -> Event:
    return node_upserted(name, 64_000, pods=5000)


def running(pods: list[PodUpserted]) -> list[PodUpserted]:
    there = {"node": "n0", "phase": PodPhase.RUNNING, "started_seconds": 0.0}
    return [PodUpserted(one.pod._replace(**there)) for one in pods]


def with_pods(policy: str, pods: list[PodUpserted]) -> Scheduler:
    """An engine that has decided on another pod before, so that nothing is done for the first time."""
    scheduler, _ = engine(policy, *(node_of(f"n{number}") for number in range(4)), *singles(1, 1))
    scheduler.handle(list(pods), 1.0)
    return scheduler


def work(count: int, prepare: Callable[[int], tuple[Scheduler, list[Event], float]]) -> tuple[int, list[Instruction]]:
    scheduler, events, now = prepare(count)
    out: list[Instruction] = []
    return calls_of(lambda: out.extend(scheduler.handle(events, now))), out


def assert_even(prepare: Callable[[int], tuple[Scheduler, list[Event], float]], count: int) -> list[Instruction]:
    work(count, prepare)  # what is imported or compiled at first
    once, _ = work(count, prepare)
    twice, out = work(2 * count, prepare)
    assert twice < 2 * EVEN * once, f"{count} cost {once} calls, {2 * count} {twice}"
    return out


@pytest.mark.parametrize("policy", ["fifo", "qpsm", "hierarchical", "easy"])
@pytest.mark.parametrize("placed", [False, True])
def test_deletions(policy: str, placed: bool) -> None:
    def prepare(count: int) -> tuple[Scheduler, list[Event], float]:
        pods = singles(count, 1 if placed else 10**6)
        scheduler = with_pods(policy, running(pods) if placed else pods)
        return scheduler, [PodDeleted(one.pod.key, one.pod.uid) for one in pods], 2.0

    assert_even(prepare, 200)


def test_members_beyond_the_least_of_their_gang() -> None:
    """Each may go alone once enough hold a node, and none has the others counted for it."""

    def prepare(count: int) -> tuple[Scheduler, list[Event], float]:
        pods = members("g", count, minimum=1)
        return with_pods("qpsm", running(pods[:1])), list(pods[1:]), 2.0

    assert len(bound(assert_even(prepare, 200))) == 399


def test_the_release_of_a_gang() -> None:
    """All but one hold a node, and that one finds none: all leave, and each is gone through once."""

    def prepare(count: int) -> tuple[Scheduler, list[Event], float]:
        pods = members("g", count, cpu=1)
        scheduler = with_pods("qpsm", running(pods[1:]))
        large = PodUpserted(pods[0].pod._replace(requests=(("cpu", 10**9),)))
        scheduler.handle([large], 2.0)
        return scheduler, [], 100.0

    out = assert_even(prepare, 200)
    assert [one.cause for one in out if isinstance(one, Evict)] == [EvictCause.GANG] * 399


@pytest.mark.parametrize("policy", ["qpsm", "hierarchical"])
def test_what_an_overload_asks_of_the_members_of_a_gang(policy: str) -> None:
    """How much work an eviction throws away is asked of each pod of an overloaded node, and is its whole gang's."""

    def asked(count: int) -> int:
        scheduler = with_pods(policy, running(members("g", count)))
        records = [record for record in scheduler.state.records() if record.pod.gang is not None]
        return calls_of(lambda: [scheduler._capacity._lost(record) for record in records])

    assert asked(400) < 2 * EVEN * asked(200)
