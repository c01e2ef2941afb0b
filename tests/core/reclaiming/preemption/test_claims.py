"""The room that is made for a pod: kept from pods that are not more important, and given up when it can't be had."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_objects import node, node_upserted
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_scene import BATCH, GRATIS, bound, comes, engine, evicted, gone, leaves, nominated, runs

from cotide_core.cycle import Scheduler
from cotide_core.events import EvictRefused, Gang, HostPort, NodeDeleted, NodeUpserted, PodPhase, PodUpserted
from cotide_core.instructions import Evict, Instruction

RUNNING = PodPhase.RUNNING
POLICIES = ("fifo", "qpsm", "random", "fifo-guarded", "predictive", "hierarchical", "easy")


def test_a_gang_that_finds_room_for_some_members_only_claims_none() -> None:
    """One node is one member short of a gang of two: the room of its first member is for the next pod."""
    gang = Gang("d/x", 2, 60.0)
    scheduler = engine(node_upserted("a"), runs("low", "a", 1000))
    members = [comes(f"x-{number}", 1000, 100, gang=gang) for number in range(2)]
    assert evicted(scheduler.handle(members, 1.0)) == []
    assert evicted(scheduler.handle([comes("p", 1000, 50)], 2.0)) == ["low"]


def test_a_member_of_a_gang_that_finds_a_free_node_claims_it_and_gives_up_its_former_room() -> None:
    """Its gang cannot start yet: the other member still waits for its victim."""
    gang = Gang("d/x", 2, 60.0)
    full = [runs("low-a", "a", 1000, 0), runs("low-b", "b", 1000, 1)]
    scheduler = engine(node_upserted("a"), node_upserted("b"), *full)
    members = [comes(f"x-{number}", 1000, 100, gang=gang) for number in range(2)]
    assert nominated(scheduler.handle(members, 1.0)) == {"x-0": "a", "x-1": "b"}
    out = scheduler.handle([node_upserted("c")], 2.0)
    assert (bound(out), nominated(out)) == ({}, {"x-0": "c", "x-1": "b"})
    out = scheduler.handle([gone("low-a"), comes("equal", 1000, 100)], 3.0)
    assert bound(out) == {"x-0": "c", "x-1": "a"}, "the former room is open, also to the other member"


def test_a_member_of_a_gang_keeps_a_free_node_from_less_important_pods_of_the_same_cycle() -> None:
    """The gang looks again since node d comes, and claims its rooms before the thief has its turn."""
    gang = Gang("d/x", 3, 60.0)
    full = [runs("low-a", "a", 1000), runs("low-b", "b", 1000, 1)]
    scheduler = engine(*(node_upserted(name) for name in "abc"), *full)
    members = [comes(f"x-{number}", 1000, 100, gang=gang) for number in range(3)]
    assert nominated(scheduler.handle(members, 1.0)) == {"x-0": "c", "x-1": "a", "x-2": "b"}
    out = scheduler.handle([node_upserted("d"), comes("thief", 1000, 50, preempts=False)], 2.0)
    assert (bound(out), nominated(out)["x-0"]) == ({}, "c")
    assert bound(scheduler.handle([gone("low-b")], 3.0)) == {"x-0": "c", "x-1": "d", "x-2": "b"}


def test_a_gang_whose_members_claim_every_free_node_starts_when_its_victims_are_gone() -> None:
    gang = Gang("d/x", 2, 60.0)
    scheduler = engine(node_upserted("a"), node_upserted("c"), runs("low", "a", 1000))
    members = [comes(f"x-{number}", 1000, 100, gang=gang) for number in range(2)]
    assert nominated(scheduler.handle(members, 1.0)) == {"x-0": "c", "x-1": "a"}
    assert bound(scheduler.handle([gone("low")], 2.0)) == {"x-0": "c", "x-1": "a"}


def test_a_gang_takes_the_room_that_is_kept_for_a_less_important_pod() -> None:
    """As a single pod does. No placed pod may be asked to leave any more."""
    gang = Gang("d/x", 2, 60.0)
    scheduler = engine(node_upserted("a"), runs("low", "a", 1000))
    assert evicted(scheduler.handle([comes("p", 1000, 50)], 1.0)) == ["low"]
    members = [comes(f"x-{number}", 500, 100, gang=gang) for number in range(2)]
    assert bound(scheduler.handle([gone("low"), *members], 2.0)) == {"x-0": "a", "x-1": "a"}


def test_a_claim_of_a_gang_that_goes_on_counts_on_pods_that_still_leave() -> None:
    """Of 1000 millicores 600 are claimed, and a pod that leaves holds 400: an equal pod gets what is free of these."""
    gang = Gang("d/x", 2, 60.0)
    going, low = runs("going", "a", 400), runs("low", "a", 600)
    scheduler = engine(node_upserted("a"), node_upserted("b", 1500), going, low, runs("low-b", "b", 1500, 1))
    members = [comes(f"x-{number}", cpu, 100, gang=gang) for number, cpu in enumerate((600, 1500))]
    assert nominated(scheduler.handle([leaves(going), *members], 1.0)) == {"x-0": "a", "x-1": "b"}
    out = scheduler.handle([gone("low"), comes("equal", 400, 100)], 2.0)
    assert bound(out) == {"equal": "a"}
    assert bound(scheduler.handle([gone("low-b"), gone("going")], 3.0)) == {"x-0": "a", "x-1": "b"}


def test_room_that_a_pod_gives_up_for_another_node_is_open_at_once() -> None:
    """Node a keeps 100 of its 200 free millicores for p. No event concerns the node when p goes elsewhere."""
    there = [runs("low", "a", 500), runs("high", "a", 300, 99)]
    scheduler = engine(node_upserted("a", labels=(("zone", "x"),)), *there)
    assert evicted(scheduler.handle([comes("p", 600, 10)], 1.0)) == ["low"]
    only_there = {"node_selector": (("zone", "x"),)}
    assert bound(scheduler.handle([comes("late", 200, 0, **only_there)], 2.0)) == {}
    out = scheduler.handle([node_upserted("b", 600)], 3.0)
    out += scheduler.handle([], 3.0)
    assert bound(out) == {"p": "b", "late": "a"}


def preempting(policy: str = "fifo") -> Scheduler:
    """Node a is full with a pod that leaves for ``p``, which asks for 600 of its 1000 millicores."""
    scheduler = engine(node_upserted(), runs("low", "a", 1000), policy=policy)
    assert evicted(scheduler.handle([comes("p", 600, 10)], 1.0)) == ["low"]
    return scheduler


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cls", [GRATIS, BATCH])
def test_no_less_important_pod_gets_the_room(policy: str, cls: object) -> None:
    scheduler = preempting(policy)
    fields = {"requested_seconds": 10.0}
    out = scheduler.handle([gone("low"), comes("job", 500, 99, cls, **fields)], 2.0)  # type: ignore[arg-type]
    assert bound(out) == {"p": "a"}


def test_neither_does_an_equal_but_what_is_left_is_open() -> None:
    scheduler = preempting()
    out = scheduler.handle([gone("low"), comes("equal", 500, 10), comes("small", 400, 1)], 2.0)
    assert bound(out) == {"p": "a", "small": "a"}


def test_a_more_important_pod_takes_it_and_the_other_looks_again_at_once() -> None:
    scheduler = preempting()
    out = scheduler.handle([gone("low"), comes("higher", 600, 20)], 2.0)
    assert (bound(out), nominated(out)) == ({"higher": "a"}, {"p": ""})
    assert bound(scheduler.handle([gone("higher")], 4.0)) == {"p": "a"}


def test_a_more_important_pod_that_waits_is_woken_by_room_that_is_kept_for_another() -> None:
    scheduler = engine(node_upserted(), runs("low", "a", 1000))
    scheduler.handle([comes("never", 700, 20, preempts=False), comes("p", 600, 10)], 1.0)
    assert bound(scheduler.handle([gone("low")], 2.0)) == {"never": "a"}


def test_a_more_important_pod_that_fits_beside_the_claim_ends_it_not() -> None:
    scheduler = preempting()
    assert bound(scheduler.handle([gone("low"), comes("higher", 400, 20)], 2.0)) == {"higher": "a", "p": "a"}


def test_a_more_important_pod_that_preempts_there_ends_the_claims_of_less_important_ones() -> None:
    scheduler = preempting()
    out = scheduler.handle([comes("higher", 900, 20)], 2.0)
    assert (evicted(out), nominated(out)) == ([], {"higher": "a"}), "what leaves already is counted on"
    assert nominated(scheduler.handle([], 2.0)) == {"p": ""}
    assert bound(scheduler.handle([gone("low")], 3.0)) == {"higher": "a"}


@pytest.mark.parametrize("change", ["gone", "cordoned", "shrunk"])
def test_a_pod_whose_node_is_closed_preempts_elsewhere_at_once(change: str) -> None:
    scheduler = engine(node_upserted("a"), node_upserted("b"), runs("low", "a", 1000), runs("low2", "b", 1000, 1))
    assert evicted(scheduler.handle([comes("p", 600, 10)], 1.0)) == ["low"]
    event = {
        "gone": NodeDeleted("a"),
        "cordoned": NodeUpserted(replace(node("a"), unschedulable=True)),
        "shrunk": node_upserted("a", 500),
    }[change]
    out = scheduler.handle([event], 2.0)
    assert (evicted(out), nominated(out)) == (["low2"], {"p": "b"})


def test_the_right_pod_of_many_alike_is_woken_when_its_node_is_closed() -> None:
    nodes = [node_upserted(f"n{number}") for number in range(4)]
    low = [runs(f"low{number}", f"n{number}", 1000) for number in range(4)]
    scheduler = engine(*nodes, *low)
    out = scheduler.handle([comes(f"p{number}", 600, 10) for number in range(3)], 1.0)
    (lost,) = [name for name, where in nominated(out).items() if where == "n2"]
    out = scheduler.handle([NodeUpserted(replace(node("n2"), unschedulable=True))], 2.0)
    assert (evicted(out), nominated(out)) == (["low3"], {lost: "n3"})


def test_the_pod_is_tried_when_its_victims_are_gone_and_not_after_its_back_off() -> None:
    scheduler = engine(node_upserted(), runs("one", "a", 500), runs("two", "a", 500), backoff_initial_seconds=60.0)
    assert evicted(scheduler.handle([comes("p", 1000, 10)], 1.0)) == ["one", "two"]
    assert bound(scheduler.handle([gone("one")], 1.1)) == {}
    assert bound(scheduler.handle([gone("two")], 1.2)) == {"p": "a"}


def test_room_on_another_node_is_taken_and_the_claim_given_up() -> None:
    scheduler = preempting()
    assert bound(scheduler.handle([node_upserted("b")], 2.0)) == {"p": "b"}
    assert bound(scheduler.handle([gone("low"), comes("late", 1000)], 3.0)) == {"late": "a"}


def test_a_victim_that_stays_ends_the_claim() -> None:
    scheduler = preempting()
    out = scheduler.handle([EvictRefused("d/low", "u-low", "a", 500, "no answer")], 2.0)
    assert nominated(out) == {"p": ""}
    assert evicted(scheduler.handle([], 62.0)) == ["low"], "asked again with the next turn"


def test_a_victim_with_a_long_grace_period_holds_the_claim_and_no_other_is_asked() -> None:
    low = runs("low", "a", 1000)
    scheduler = engine(node_upserted("a"), node_upserted("b"), low, runs("low2", "b", 1000, 1))
    scheduler.handle([comes("p", 600, 10)], 1.0)
    scheduler.handle([leaves(low)], 2.0)
    out: list[Instruction] = []
    for now in range(60, 1200, 60):
        out += scheduler.handle([], float(now))
    assert evicted(out) == []
    assert bound(scheduler.handle([gone("low")], 1200.0)) == {"p": "a"}


def test_a_claim_of_an_earlier_run_is_taken_up() -> None:
    low = runs("low", "a", 1000, terminating=True)
    scheduler = engine(node_upserted("a"), node_upserted("b"), low, runs("low2", "b", 1000))
    out = scheduler.handle([comes("p", 600, 10, nominated_node="a"), comes("equal", 600, 10)], 1.0)
    assert (evicted(out), nominated(out)) == (["low2"], {"p": "a", "equal": "b"})
    assert bound(scheduler.handle([gone("low")], 2.0)) == {"p": "a"}


def test_a_claim_of_an_earlier_run_whose_evictions_were_lost_asks_on_the_same_node() -> None:
    scheduler = engine(node_upserted("a"), node_upserted("b"), runs("low", "a", 1000, 5), runs("low2", "b", 1000))
    assert evicted(scheduler.handle([comes("p", 600, 10, nominated_node="a")], 1.0)) == ["low"]


def test_a_host_port_is_kept_with_the_room() -> None:
    port = (HostPort("TCP", "0.0.0.0", 80),)  # noqa: S104 - compared as data
    scheduler = engine(node_upserted(), runs("holder", "a", 900, host_ports=port))
    scheduler.handle([comes("p", 500, 9, host_ports=port)], 1.0)
    out = scheduler.handle([gone("holder"), comes("thief", 100, 8, host_ports=port), comes("plain", 100)], 2.0)
    assert bound(out) == {"p": "a", "plain": "a"}


def test_a_claim_ends_with_its_pod_and_its_room_is_open() -> None:
    scheduler = preempting()
    assert bound(scheduler.handle([gone("p"), gone("low"), comes("late", 1000)], 2.0)) == {"late": "a"}


def test_a_new_resource_of_a_node_moves_no_claim() -> None:
    scheduler = preempting()
    offers = {f"example.com/r{number}": 1 for number in range(40)}
    scheduler.handle([node_upserted("b", 100, offers=offers)], 2.0)
    scheduler.handle([NodeDeleted("b"), node_upserted("c", 100, offers={"example.com/new": 1})], 3.0)
    assert bound(scheduler.handle([gone("low"), comes("thief", 500)], 4.0)) == {"p": "a"}


PODS = st.lists(
    st.tuples(st.sampled_from([100, 200, 300, 500]), st.integers(0, 3), st.sampled_from(["online", "batch", "gratis"])),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(there=PODS, waiting=PODS, policy=st.sampled_from(["fifo", "qpsm", "predictive", "hierarchical"]))
def test_no_equal_goes_no_node_overflows_and_all_claims_are_met(
    there: list[tuple[int, int, str]], waiting: list[tuple[int, int, str]], policy: str
) -> None:
    kinds = {"online": comes("x", 1).pod.workload_class, "batch": BATCH, "gratis": GRATIS}
    used, placed = {"a": 0, "b": 0}, []
    for number, (cpu, priority, cls) in enumerate(there):
        name = "a" if number % 2 else "b"
        if used[name] + cpu <= 1000:
            used[name] += cpu
            placed.append(runs(f"r{number}", name, cpu, priority, kinds[cls]))
    scheduler = engine(node_upserted("a"), node_upserted("b"), *placed, policy=policy)
    pods = {one.pod.key: one.pod for one in placed}
    new = [comes(f"p{number}", cpu, priority, kinds[cls]) for number, (cpu, priority, cls) in enumerate(waiting)]
    pods |= {one.pod.key: one.pod for one in new}
    out = scheduler.handle(new, 1.0)
    for turn in range(40):
        asked = [one for one in out if isinstance(one, Evict)]
        for evict in asked:
            assert pods[evict.key].importance < pods[evict.nominee].importance
        free = scheduler.state.columns.free[:, :2] + scheduler.state.columns.reserved[:, :2]
        assert (free >= 0).all()
        done = [
            PodUpserted(pods[f"d/{name}"]._replace(node=where, phase=RUNNING)) for name, where in bound(out).items()
        ]
        out = scheduler.handle([*done, *(gone(one.key[2:]) for one in asked)], 2.0 + turn)
        if not out and not asked:
            break
    else:
        raise AssertionError("it does not come to rest")
    assert not scheduler.state.columns.reserved.any(), "every claim was met or given up"
