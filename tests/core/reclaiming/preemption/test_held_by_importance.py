"""What pods of each importance hold follows events and time, and only the rows that these concern are counted."""

from __future__ import annotations

import pytest
from engine_objects import node_upserted
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_scene import BATCH, ONLINE, gone, runs

from cotide_core.reclaiming.preemption.held_by_importance import HeldByImportance, Level
from cotide_core.state.cluster_state import ClusterState

NODES = ("a", "b")


def two_nodes() -> ClusterState:
    state = ClusterState()
    for name in NODES:
        state.apply(node_upserted(name, 10_000))
    return state


def amounts(held: HeldByImportance, now: float) -> dict[Level, list[list[int]]]:
    """What is held now, without levels of which nothing is there any more."""
    held.refresh(now)
    return {level: of.tolist() for level, of in held.levels.items() if of.any()}


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(NODES),
            st.integers(1, 2),
            st.sampled_from([ONLINE, BATCH]),
            st.sampled_from([None, 3.0]),
        ),
        st.integers(0, 2),
    ),
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, every=st.integers(1, 4))
def test_what_is_held_is_what_a_recount_gives_whatever_comes_and_goes(steps: list[object], every: int) -> None:
    state, now = two_nodes(), 0.0
    held = HeldByImportance(state)
    for number, step in enumerate(steps):
        now += 1.0
        if isinstance(step, tuple):
            name, on, priority, cls, seconds = step
            kept = {"protected_seconds": seconds, "started_seconds": now}
            state.apply(runs(f"p{name}", on, 100, priority, cls, **kept))
        else:
            state.apply(gone(f"p{step}"))
        if number % every == 0:
            assert amounts(held, now) == amounts(HeldByImportance(state), now)
    assert amounts(held, now + 9.0) == amounts(HeldByImportance(state), now + 9.0)


def test_a_row_is_counted_once_when_a_protection_ends_and_not_at_each_later_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, counted = two_nodes(), list[int]()
    state.apply(runs("kept", "b", 100, protected_seconds=30.0, started_seconds=0.0))
    records_on = ClusterState.records_on

    def counting(self: ClusterState, row: int) -> object:
        counted.append(row)
        return records_on(self, row)

    monkeypatch.setattr(ClusterState, "records_on", counting)
    held = HeldByImportance(state)
    held.refresh(1.0)
    assert counted == [0, 1]
    for now in (29.0, 30.0, 31.0, 32.0):
        held.refresh(now)
    assert counted[2:] == [1]
