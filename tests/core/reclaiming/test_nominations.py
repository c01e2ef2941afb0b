"""Claims of pods on nodes: found by node, however many there are on others."""

from __future__ import annotations

from engine_objects import node_upserted, pod, pod_upserted

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import PodPhase
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Evict
from cotide_core.reclaiming.nominations import Nomination, Nominations
from cotide_core.reclaiming.reservations import Reservations
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import ShapeTable

STATE, SHAPES = ClusterState(), ShapeTable()


class Name(str):
    """A node's name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def claim(name: str, node: str, victims: frozenset[str] = frozenset()) -> Nomination:
    wanted = pod(name)
    return Nomination(wanted.key, SHAPES.of(wanted, STATE), node, 1000, 0, wanted.requests, victims, 100.0)


def test_claims_on_a_node_are_found_without_a_look_at_those_on_others() -> None:
    found = Nominations()
    for number in range(100):
        found.add(claim(f"p{number}", Name(f"n{number}")))
    Name.compared = 0
    assert [one.pod for one in found.on("n7")] == ["d/p7"]
    assert found.counted_on("n7", ["d/v"]) == frozenset()
    assert Name.compared < 10


def test_a_claim_that_ends_or_goes_elsewhere_is_on_its_node_no_more() -> None:
    found = Nominations()
    found.add(claim("p", "a"))
    found.add(claim("q", "a", frozenset({"d/v"})))
    kept = found.copy()
    found.add(claim("p", "b"))
    assert [one.pod for one in found.on("a")] == ["d/q"]
    assert [one.pod for one in found.on("b")] == ["d/p"]
    assert [one.pod for one in found] == ["d/p", "d/q"]  # who asked first keeps its turn
    assert [stay.pod for stay in found.drop_where_stays("d/v")] == ["d/q"]
    found.take_back(kept)
    assert [one.pod for one in found.on("a")] == ["d/p", "d/q"]
    assert list(found.on("b")) == []
    assert len(found.expire(100.0)) == 2
    assert list(found.on("a")) == []


def test_nodes_on_which_a_pod_does_not_fit_cost_it_no_look_at_their_claims(monkeypatch) -> None:
    """Each of 20 nodes is full with a gratis pod that leaves for a batch pod; a further batch pod fits on none."""
    scheduler = Scheduler(SchedulerConfig(policy="hierarchical"), HeuristicCatalogue())
    gratis = [
        pod_upserted(f"g{n}", 1000, WorkloadClass.GRATIS, node=f"n{n}", phase=PodPhase.RUNNING, started_seconds=0.0)
        for n in range(20)
    ]
    scheduler.handle([*(node_upserted(f"n{n}", 1000) for n in range(20)), *gratis], 0.0)
    out = scheduler.handle([pod_upserted(f"b{n}", 1000) for n in range(20)], 1.0)
    assert sum(isinstance(one, Evict) for one in out) == 20
    asked: list[int] = []
    leaves = Reservations.leaves

    def counted(self: Reservations, room: object, row: int, *args: object, **fields: object) -> bool:
        asked.append(row)
        return leaves(self, room, row, *args, **fields)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(Reservations, "leaves", counted)
    scheduler.handle([pod_upserted("late", 1000)], 2.0)
    assert asked == []
