"""What room that is kept for a gang costs the others: starts worked out, kinds of pods, and work for a placement."""

from __future__ import annotations

import pytest
from counted_work import calls_of
from live_cluster import bound, engine, node, pod, running

from cotide_core.events import Gang, Namespace, NamespaceUpserted, PodDeleted, PodPhase, PodUpserted
from cotide_core.instructions import Bind
from cotide_core.limits import MAX_GANG_KINDS
from cotide_core.planning.gang_reservation import APART_SECONDS, GangReservation

AFTER = 30.0
FULL = (node("a"), running("r", 4000, 50.0))
"""Four cores that come back at 50 s."""


def gang_of(name: str, cpus: list[int]) -> list[PodUpserted]:
    rule = Gang(f"d/{name}", len(cpus), 600.0)
    return [pod(f"{name}-{at}", cpu, 10.0, gang=rule) for at, cpu in enumerate(cpus)]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Moments at which a start was worked out."""
    moments: list[float] = []
    original = GangReservation._planned

    def noted(self, standing, snapshot, now):
        moments.append(now)
        return original(self, standing, snapshot, now)

    monkeypatch.setattr(GangReservation, "_planned", noted)
    return moments


def test_whose_pods_come_and_go_has_a_start_worked_out_once_a_second_at_most(planned: list[float]) -> None:
    scheduler, _ = engine("fifo", *FULL, *gang_of("g", [2000, 1000]), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    last = gang_of("g", [2000, 1000])[0]
    for step in range(1, 41):
        gone = PodDeleted(last.pod.key, last.pod.uid)
        last = PodUpserted(last.pod._replace(uid=f"u{step}", requests=(("cpu", 2000 - step),)))
        scheduler.handle([gone, last], AFTER + step / 10)
    assert planned == [AFTER + at * APART_SECONDS for at in range(5)]


def test_a_start_that_had_to_wait_for_its_turn_is_worked_out_without_further_word(planned: list[float]) -> None:
    scheduler, _ = engine("fifo", *FULL, *gang_of("g", [2000, 1000]), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    first = gang_of("g", [2000, 1000])[0].pod
    other = PodUpserted(first._replace(uid="u", requests=(("cpu", 1500),)))
    scheduler.handle([PodDeleted(first.key, first.uid), other], AFTER + 0.5)
    due = scheduler.next_wakeup(AFTER + 0.5)
    assert due == AFTER + APART_SECONDS
    scheduler.handle([], due)
    assert planned == [AFTER, due]
    assert scheduler.predicted_starts(due)["d/g-0"] == 50.0


@pytest.mark.parametrize(("kinds", "kept"), [(MAX_GANG_KINDS, True), (MAX_GANG_KINDS + 1, False)])
def test_room_is_kept_for_gangs_of_few_kinds_of_pods(kinds: int, kept: bool, planned: list[float]) -> None:
    """All kinds are of some 230 millicores, so that a gang of 17 fits, too."""
    gang = gang_of("g", [220 + at for at in range(kinds)])
    scheduler, _ = engine("fifo", *FULL, *gang, gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    assert bool(planned) is kept


def test_a_gang_of_many_kinds_holds_up_no_other_gang(planned: list[float]) -> None:
    many = gang_of("a", [300 + at for at in range(MAX_GANG_KINDS + 1)])
    scheduler, _ = engine("fifo", *FULL, *many, *gang_of("b", [2000, 1000]), gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    assert planned == [AFTER]
    assert scheduler.predicted_starts(AFTER)["d/b-0"] == 50.0


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_under_a_plan_a_gang_of_many_kinds_starts_when_there_is_room_for_all_of_it(policy: str) -> None:
    gang = gang_of("g", [220 + at for at in range(MAX_GANG_KINDS + 1)])
    scheduler, out = engine(policy, *FULL, *gang)
    assert not bound(out)
    assert not scheduler.planned()
    ended = PodUpserted(FULL[1].pod._replace(phase=PodPhase.SUCCEEDED))
    assert len(bound(scheduler.handle([ended], 40.0))) == MAX_GANG_KINDS + 1


def test_a_placement_costs_as_much_whatever_number_of_nodes_is_kept() -> None:
    """A gang of all nodes but one; the others are asked about once in a cycle and not once for each pod."""

    def work(nodes: int, pods: int) -> int:
        there = [node(f"n{at}") for at in range(nodes)]
        busy = [running(f"r{at}", 3000, 50.0 + at, f"n{at}") for at in range(nodes)]
        gang = gang_of("g", [3500] * (nodes - 1))
        scheduler, _ = engine("fifo", *there, *busy, *gang, gang_reserve_seconds=AFTER)
        scheduler.handle([], AFTER)
        assert "d/g-0" in scheduler.predicted_starts(AFTER)
        others = [pod(f"o{at}", 10 + at, 1e6, AFTER, key=f"e/o{at}") for at in range(pods)]
        return calls_of(lambda: scheduler.handle(others, AFTER))

    work(4, 1)
    few = work(4, 60) - work(4, 30)
    many = work(40, 60) - work(40, 30)
    assert many < 1.2 * few


def limited(millicores: int | None) -> NamespaceUpserted:
    return NamespaceUpserted(Namespace("d", batch_millicores=millicores))


def test_no_room_is_kept_for_a_gang_that_its_namespace_may_not_hold(planned: list[float]) -> None:
    """The pod that runs is another namespace's, and so is the one that takes the room."""
    busy = running("r", 4000, 50.0, key="e/r")
    gang = gang_of("g", [1000] * 3)
    scheduler, _ = engine("fifo", node("a"), limited(2999), busy, *gang, gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    ended = PodUpserted(busy.pod._replace(phase=PodPhase.SUCCEEDED))
    out = scheduler.handle([ended, pod("other", 4000, 1e6, AFTER, key="e/other")], AFTER)
    assert not planned
    assert any(isinstance(one, Bind) and one.key == "e/other" for one in out)


def test_room_is_kept_once_the_limit_is_raised_and_given_back_once_it_is_lowered(planned: list[float]) -> None:
    busy = running("r", 4000, 500.0, key="e/r")
    gang = gang_of("g", [1000] * 3)
    scheduler, _ = engine("fifo", node("a"), limited(2999), busy, *gang, gang_reserve_seconds=AFTER)
    scheduler.handle([], AFTER)
    scheduler.handle([limited(3000)], AFTER + 1.0)
    scheduler.handle([], 2 * AFTER)
    assert planned == [2 * AFTER]
    ended = PodUpserted(busy.pod._replace(phase=PodPhase.SUCCEEDED))
    out = scheduler.handle([limited(2000), ended, pod("other", 4000, 1e6, AFTER, key="e/other")], 2 * AFTER + 1.0)
    assert any(isinstance(one, Bind) and one.key == "e/other" for one in out)
