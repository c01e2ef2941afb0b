"""What consolidation does at each look: budgets, patience, and nodes given back to whoever waits."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from engine_objects import node
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.consolidation.removal.drain_plan import DrainPlan, Emptying, Freed
from cotide_core.consolidation.removal.watching import (
    HOUR_SECONDS,
    Acts,
    Allowance,
    ClusterView,
    Mark,
    Standing,
    Watch,
    WatchRules,
    moves_left,
    within,
)
from cotide_core.consolidation.removal.what_if import Move

NOW = 10_000.0
RULES = WatchRules(moves_per_hour=6, stable_seconds=100.0, spare_nodes=0)


def frees(node: str, pods: int) -> Freed:
    return Freed(node, tuple(Move(f"d/{node}-{number}", node, "t") for number in range(pods)), 1000, 1)


def plan(*freed: Freed, emptying: tuple[Emptying, ...] = ()) -> DrainPlan:
    return DrainPlan(freed, emptying, (), 9, 9 - len(freed), 1)


def view(now: float, made: DrainPlan | None, **more: object) -> ClusterView:
    return replace(ClusterView(now, made, {}), **more)  # type: ignore[arg-type]  # fields are named by each test


def ripe(rules: WatchRules, made: DrainPlan, **more: object) -> Acts:
    """What is done when each look since `stable_seconds` could have done it."""
    watch = Watch(rules)
    assert watch.decide(view(NOW - rules.stable_seconds, made, **more)).drain == ()
    return watch.decide(view(NOW, made, **more))


def names(acts: Acts) -> list[str]:
    return [one.node for one in acts.drain]


def test_a_node_is_drained_when_each_plan_for_long_enough_could_free_it() -> None:
    watch, there, gone = Watch(RULES), plan(frees("a", 2)), plan()
    asked = [(0.0, there), (60.0, there), (99.0, gone), (100.0, there), (199.0, there), (200.0, there)]
    assert [names(watch.decide(view(NOW + at, made))) for at, made in asked] == [[], [], [], [], [], ["a"]]


def test_pods_that_were_moved_within_the_hour_count_against_its_budget_whoever_moved_them() -> None:
    moved = {"u1": NOW - 10.0, "u2": NOW - HOUR_SECONDS + 1, "u3": NOW - HOUR_SECONDS}
    standings = {"gone-by": Standing(moved=moved)}
    assert moves_left(standings, NOW, 6) == 4
    made = plan(frees("a", 3), frees("b", 2), frees("c", 1))
    # Three of the four; the next wants two and waits; the last takes the fourth.
    assert names(ripe(replace(RULES, moves_at_once=9), made, standings=standings)) == ["a", "c"]


def test_so_many_nodes_are_drained_at_once_as_pods_may_be_on_their_way() -> None:
    made = plan(frees("a", 1), frees("b", 1), frees("c", 1))
    rules = replace(RULES, moves_at_once=2)
    assert names(ripe(rules, made)) == ["a", "b"]
    assert names(ripe(rules, made, draining=frozenset({"x"}))) == ["a"]


def test_a_freed_node_is_opened_where_no_empty_one_is_and_only_then() -> None:
    rules = replace(RULES, spare_nodes=1)
    held = {name: Standing(Mark.FREED, since=NOW - age) for name, age in (("old", 90.0), ("young", 10.0))}
    full = Watch(rules).decide(view(NOW, plan(frees("a", 2)), standings=held))
    assert [(one.node, one.demanded) for one in full.give_back] == [("young", False)]
    assert Watch(rules).decide(view(NOW, plan(frees("empty", 0)), standings=held)).give_back == ()
    assert Watch(rules).decide(view(NOW, None, standings=held)).give_back == (), "pods wait: nobody knows what is open"
    assert Watch(RULES).decide(view(NOW, plan(frees("a", 2)), standings=held)).give_back == ()
    spreads = Watch(replace(rules, opens_spares=False))
    assert spreads.decide(view(NOW, plan(frees("a", 2)), standings=held)).give_back == (), "a's pods would go there"


def test_empty_nodes_are_freed_but_for_the_spare_ones() -> None:
    made = plan(frees("a", 0), frees("b", 0), frees("c", 0))
    assert names(ripe(replace(RULES, spare_nodes=2), made)) == ["c"]


def test_nothing_is_drained_while_pods_want_a_node_nor_for_long_after_one_was_given_back_to_them() -> None:
    made = plan(frees("a", 1))
    held = {"f": Standing(Mark.FREED, since=NOW - 50.0)}
    acts = ripe(RULES, made, standings=held, wanted=("f",))
    assert (names(acts), [one.node for one in acts.give_back], acts.give_back[0].demanded) == ([], ["f"], True)
    back = {"f": Standing(given_back=NOW - 3599.0, demanded=True)}
    assert names(ripe(RULES, made, standings=back)) == []
    assert names(ripe(RULES, made, standings={"f": replace(back["f"], given_back=NOW - 3600.0)})) == ["a"]
    # One that a surprise gave back is left alone itself; the others are not.
    surprised = {"a": Standing(given_back=NOW - 1.0)}
    assert names(ripe(RULES, plan(frees("a", 1), frees("b", 1)), standings=surprised)) == ["b"]


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (Standing(Mark.DRAINING, NOW - 1.0), "killed"),
        (Standing(Mark.FREED, NOW - 1.0, pods=1), "pods came"),
        (Standing(Mark.FREED, NOW - 3601.0), "it was not taken in"),
        (Standing(Mark.EMPTYING, NOW - 1000.0, 1, 200.0, 499.0), "is not empty after 1000 s"),
        (Standing(Mark.EMPTYING, NOW - 1000.0, 1, 200.0, 501.0), ""),
        (Standing(Mark.FREED, NOW - 3599.0), ""),
        (Standing(Mark.NONE, NOW - 9e9), ""),
    ],
)
def test_what_is_over_is_given_back(one: Standing, why: str) -> None:
    back = Watch(RULES).decide(view(NOW, None, standings={"n": one})).give_back
    assert [why in given.why for given in back] == ([True] if why else [])
    assert [given.late for given in back] == ([one.mark is Mark.EMPTYING] if why else [])


def test_what_this_process_drains_is_not_taken_for_left_behind() -> None:
    standings = {"n": Standing(Mark.DRAINING, NOW - 9e9, pods=3)}
    assert Watch(RULES).decide(view(NOW, None, standings=standings, draining=frozenset({"n"}))) == Acts()


def test_a_node_that_was_left_to_empty_is_freed_when_it_is_empty() -> None:
    leaves = ripe(RULES, plan(emptying=(Emptying("e", 300.0, 600.0),))).leave
    assert [leaf.node for leaf in leaves] == ["e"]
    standings = {"e": Standing(Mark.EMPTYING, NOW - 400.0, 0, 300.0, 600.0)}
    assert Watch(RULES).decide(view(NOW, None, standings=standings)).freed == ("e",)
    standings = {"e": replace(standings["e"], pods=1)}
    assert Watch(RULES).decide(view(NOW, None, standings=standings)) == Acts()


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 5)), min_size=1, max_size=40), st.integers(0, 8))
def test_no_hour_ever_holds_more_moves_than_its_budget(turns: list[tuple[int, int]], budget: int) -> None:
    rules = replace(RULES, moves_per_hour=budget, moves_at_once=9, stable_seconds=0.0, cooldown_seconds=0.0)
    watch, now = Watch(rules), NOW
    moved: dict[str, float] = {}
    for number, (pause, pods) in enumerate(turns):
        now += pause
        acts = watch.decide(view(now, plan(frees(f"n{number}", pods)), standings={"one": Standing(moved=dict(moved))}))
        for step in acts.drain:
            moved |= {move.pod: now for move in step.moves}
    times = sorted(moved.values())
    assert all(sum(at - HOUR_SECONDS < one <= at for one in times) <= budget for at in times)


def test_a_load_that_breathes_every_hour_for_a_day_costs_few_moves() -> None:
    # Ten of twenty nodes could be freed for the half of each hour; the other half of it pods want them back.
    watch = Watch(replace(RULES, moves_per_hour=100, moves_at_once=99))
    standings: dict[str, Standing] = {}
    moves = 0
    for minute in range(24 * 60):
        now, low = NOW + 60.0 * minute, minute % 60 < 30
        open_ones = [f"n{number}" for number in range(10) if standings.get(f"n{number}", Standing()).mark is Mark.NONE]
        held = tuple(name for name, standing in standings.items() if standing.mark is Mark.FREED)
        made = plan(*(frees(name, 3) for name in open_ones)) if low else None
        acts = watch.decide(view(now, made, standings=dict(standings), wanted=() if low else held))
        for step in acts.drain:
            moves += len(step.moves)
            standings[step.node] = Standing(Mark.FREED, now)
        for back in acts.give_back:
            standings[back.node] = Standing(Mark.NONE, now, given_back=now, demanded=back.demanded)
    # Without patience 10 nodes x 3 pods x 24 hours: 720. An hour of rest after each return leaves every second trough.
    assert 0 < moves <= 360


def test_nothing_is_known_of_a_node_that_was_never_ours() -> None:
    assert Standing().since == -inf
    assert moves_left({}, NOW, 5) == 5


def test_no_more_nodes_of_a_type_go_than_capacity_can_do_without() -> None:
    allowed = Allowance("type", {"a": 1, "b": 0})
    kinds = {name: allowed.kind_of(node(name, labels=(("type", name[0]),))) for name in ("a1", "a2", "b1", "c1")}
    assert kinds == {"a1": "a", "a2": "a", "b1": "b", "c1": None}, "c is a type that nobody counts"
    made = within(plan(*(frees(name, 1) for name in kinds), emptying=(Emptying("a3", 1.0, 2.0),)), allowed, kinds)
    assert [one.node for one in made.freed] == ["a1", "c1"]
    left = within(plan(emptying=(Emptying("a2", 1.0, 2.0), Emptying("b1", 1.0, 2.0))), allowed, kinds)
    assert [one.node for one in left.emptying] == ["a2"]


def test_a_node_that_was_handed_over_to_be_switched_off_is_given_back_to_nobody() -> None:
    standings = {"a": Standing(Mark.STOPPING, since=0.0, pods=1)}
    acts = Watch(RULES).decide(view(NOW, plan(), standings=standings))
    assert (acts.give_back, acts.freed) == ((), ())


def gang(node: str, size: int) -> Freed:
    """A node that a gang leaves as a whole."""
    made = frees(node, size)
    return replace(made, together=(tuple(move.pod for move in made.moves),))


def test_a_gang_that_leaves_as_a_whole_counts_with_all_its_pods() -> None:
    rules = replace(RULES, moves_per_hour=99, moves_at_once=4)
    made = plan(gang("a", 3), gang("b", 3), frees("c", 5), frees("d", 5))
    assert names(ripe(rules, made)) == ["a", "c"], "three and one are four"
    there = {"draining": frozenset({"x"}), "beside": 2}  # another gang of three
    assert names(ripe(rules, made, **there)) == ["c"]
    assert names(ripe(rules, plan(frees("c", 1), gang("a", 4)))) == ["c"]


def test_where_one_pod_is_moved_at_a_time_a_planned_gang_goes_alone() -> None:
    """As by the command: how many pods it may be at most was decided by the plan."""
    assert names(ripe(RULES, plan(gang("a", 3), frees("b", 1)))) == ["a"]
    assert names(ripe(RULES, plan(frees("b", 1), gang("a", 3)))) == ["b"]
