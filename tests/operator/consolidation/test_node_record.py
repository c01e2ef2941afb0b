"""What is written on a node: one rule for the operator and for a terminal that watches."""

from __future__ import annotations

from cotide_core.consolidation.removal.watching import Mark
from cotide_operator.consolidation.node_record import MAX_MOVES, NodeRecord, marked, moved, patch_of


def test_a_node_that_is_cordoned_keeps_when_it_was_given_back_and_one_given_back_keeps_its_forecast() -> None:
    emptying = marked(None, 10.0, cordoned=True, forecast=(60.0, 90.0))
    assert emptying == NodeRecord(since=10.0, p50_seconds=60.0, p90_seconds=90.0)
    back = marked(emptying, 20.0, cordoned=False, demanded=True)
    assert back == NodeRecord(since=20.0, p50_seconds=60.0, p90_seconds=90.0, given_back=20.0, demanded=True)
    again = marked(back, 30.0, cordoned=True)
    assert again == NodeRecord(since=30.0, given_back=20.0, demanded=True), "no forecast goes with a drain"


def test_an_eviction_is_written_once_and_forgotten_after_an_hour() -> None:
    first = moved(None, "u-a", 100.0)
    assert first is not None
    assert first.moved == {"u-a": 100.0}
    assert moved(first, "u-a", 200.0) is None
    later = moved(first, "u-b", 3700.0)  # an hour after the first
    assert later is not None
    assert later.moved == {"u-b": 3700.0}


def test_a_record_holds_the_latest_evictions_and_no_more_than_its_bound() -> None:
    full = NodeRecord(moved={f"u-{number}": 1.0 for number in range(MAX_MOVES)})
    after = moved(full, "u-new", 2.0)
    assert after is not None
    assert len(after.moved) == MAX_MOVES
    assert "u-0" not in after.moved
    assert after.moved["u-new"] == 2.0


def test_mark_record_and_cordon_are_one_patch_and_what_is_given_back_loses_mark_and_cordon() -> None:
    record = NodeRecord(since=1.0)
    assert patch_of(Mark.FREED, "name", record, cordoned=True) == {
        "metadata": {"annotations": {"cotide.dev/consolidation": "freed", "name": '{"since":1.0}'}},
        "spec": {"unschedulable": True},
    }
    back = patch_of(Mark.NONE, "name", record, cordoned=False)
    assert back["metadata"]["annotations"]["cotide.dev/consolidation"] is None
    assert back["spec"] == {"unschedulable": None}
