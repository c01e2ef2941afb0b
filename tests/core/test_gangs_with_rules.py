"""Gangs whose pods have rules about one another: all or nothing holds, and who waits does not keep the engine busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import engine_objects
import pytest

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, Gang, NodeUpserted, PodRules, PodTerm, PodUpserted, Requirement
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Instruction

MATES = (Requirement("app", "In", ("mpi",)),)
APART = PodRules(anti_affinity=(PodTerm("zone", MATES),))
TOGETHER = PodRules(affinity=(PodTerm("zone", MATES),))

POLICIES = ("fifo", "qpsm", "predictive", "hierarchical", "easy", "conservative", "slack", "hybrid")


def in_zone(name: str, zone: str) -> NodeUpserted:
    return engine_objects.node_upserted(name, 4000, labels=(("zone", zone),))


def gang_of(count: int, rules: PodRules) -> list[PodUpserted]:
    rule = Gang("d/mpi", count, 60.0)
    labels = (("app", "mpi"),)
    names = [f"mpi-{index}" for index in range(count)]
    return [
        PodUpserted(engine_objects.pod(name, 100, uid=name, labels=labels, rules=rules, gang=rule)) for name in names
    ]


def engine(policy: str, *events: Event) -> tuple[Scheduler, list[Instruction]]:
    scheduler = Scheduler(replace(SchedulerConfig(), policy=policy), HeuristicCatalogue())
    return scheduler, list(scheduler.handle(list(events), 0.0))


def nodes_of(out: Sequence[Instruction]) -> list[str]:
    return sorted(one.node for one in out if isinstance(one, Bind))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gang_that_keeps_apart_starts_whole_when_there_are_zones_for_all(policy: str) -> None:
    """Three members, each in a zone of its own: with two zones nobody starts, with the third all do."""
    scheduler, out = engine(policy, in_zone("a", "a"), in_zone("b", "b"), *gang_of(3, APART))
    assert nodes_of(out) == []
    again = scheduler.next_wakeup(0.0)
    assert again is not None
    assert again > 0.0
    instructions = [*scheduler.handle([in_zone("c", "c")], again), *scheduler.handle([], again + 60.0)]
    assert nodes_of(instructions) == ["a", "b", "c"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_refused_gang_with_rules_is_tried_a_bounded_number_of_times(policy: str) -> None:
    """An hour without an event: trials that are taken back move counts, and must not wake the gang again at once."""
    scheduler, _ = engine(policy, in_zone("a", "a"), in_zone("b", "b"), *gang_of(3, APART))
    now, cycles = 0.0, 0
    while (wakeup := scheduler.next_wakeup(now)) is not None and wakeup < 3600.0 and cycles < 2000:
        now = max(now, wakeup)
        assert nodes_of(scheduler.handle([], now)) == []
        cycles += 1
    assert cycles < 1500  # a back-off of some seconds at most, twice for its two speakers


def test_a_gang_that_stays_together_starts_in_one_zone() -> None:
    """The first of a group may go anywhere, the others follow it: six of 100 millicores fit either node."""
    _, out = engine("fifo", in_zone("a", "a"), in_zone("b", "b"), *gang_of(6, TOGETHER))
    assert len(nodes_of(out)) == 6
    assert len(set(nodes_of(out))) == 1
