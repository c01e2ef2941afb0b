"""Keys of many namespaces wait in turns, so that a crowd of one holds up nobody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotide_operator.cache.namespace_turns import NamespaceTurns


def taken(turns: NamespaceTurns[str]) -> list[str]:
    found = []
    while (namespace := turns.turn()) is not None:
        found.append(turns.take(namespace))
    return found


def test_a_namespace_that_is_passed_over_keeps_its_place() -> None:
    turns: NamespaceTurns[str] = NamespaceTurns()
    for key in ("a0", "a1", "b0"):
        turns.add(key, key[0])
    turns.add("a1", "b")  # waits already, where it was put first
    assert turns.turn(lambda namespace: namespace != "a") == "b"
    assert turns.turn(lambda _: False) is None
    turns.drop("a0")
    turns.drop("never added")
    assert (len(turns), turns.count("a"), "a0" in turns, taken(turns)) == (2, 1, False, ["a1", "b0"])


@given(st.lists(st.sampled_from("abcd"), max_size=60))
def test_nobody_is_served_twice_while_another_waits_and_each_namespace_in_its_own_order(who: list[str]) -> None:
    turns: NamespaceTurns[str] = NamespaceTurns()
    keys = [f"{namespace}{number}" for number, namespace in enumerate(who)]
    for key in keys:
        turns.add(key, key[0])
    order = taken(turns)
    assert [key for namespace in "abcd" for key in order if key[0] == namespace] == sorted(
        keys, key=lambda key: (key[0], int(key[1:]))
    )
    for number, key in enumerate(order):
        later = next((n for n in range(number + 1, len(order)) if order[n][0] == key[0]), len(order))
        waiting = {one[0] for one in order[number:]} - {key[0]}
        between = [one[0] for one in order[number + 1 : later]]
        assert later == len(order) or set(between) == waiting
        assert len(between) == len(set(between)) or later == len(order)
    assert len(turns) == 0
