"""What one leader writes of nodes that refused pods is what the next one reads, whatever else stands there."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.events import NodeBackoffRestored
from cotide_core.limits import BACKOFFS_BYTES, MAX_BACKOFFS
from cotide_operator.clock import ScaledClock
from cotide_operator.leaderelection.node_backoffs import read, written

NOW = 1_000.0
CLOCK = ScaledClock()
REQUESTS = (("cpu", 500), ("pods", 1))


def test_what_is_written_is_read() -> None:
    known = [
        NodeBackoffRestored("a", "OutOfcpu", NOW + 40.0, 3, REQUESTS, "d/p"),
        NodeBackoffRestored("b", "MemoryPressure", NOW + 5.0),
    ]
    assert read(written(known, CLOCK), CLOCK, NOW) == known


def test_nothing_known_is_nothing_written() -> None:
    assert (written([], CLOCK), read("", CLOCK, NOW)) == ("", [])


def test_times_are_the_machines() -> None:
    quick, slow = ScaledClock(0.0, 10.0), ScaledClock(0.0, 1.0)
    text = written([NodeBackoffRestored("a", "OutOfcpu", NOW + 50.0)], quick)
    # 1,050 s of a clock that is ten times as fast are 105 s of the machine.
    assert [one.until_seconds for one in read(text, slow, 100.0)] == [105.0]


def test_no_node_is_closed_for_longer_than_the_longest_back_off() -> None:
    text = written([NodeBackoffRestored("a", "OutOfcpu", NOW + 1e6, 10**6)], CLOCK)
    assert read(text, CLOCK, NOW) == [NodeBackoffRestored("a", "OutOfcpu", NOW + 300.0, 32)]


def test_what_the_last_leader_would_have_forgotten_by_now_is_not_taken_over() -> None:
    known = [NodeBackoffRestored(name, "OutOfcpu", NOW - ago) for name, ago in (("a", 300.0), ("b", 301.0))]
    assert [one.node for one in read(written(known, CLOCK), CLOCK, NOW)] == ["a"]


def test_of_too_many_the_longest_are_kept() -> None:
    known = [NodeBackoffRestored(f"n{number}", "OutOfcpu", NOW + number) for number in range(MAX_BACKOFFS + 50)]
    assert {one.node for one in read(written(known, CLOCK), CLOCK, NOW)} == {f"n{50 + n}" for n in range(MAX_BACKOFFS)}


def test_the_annotation_never_grows_beyond_what_is_read() -> None:
    named = tuple((f"example.com/{'r' * 63}-{number}", 1) for number in range(128))
    text = written([NodeBackoffRestored(f"n{n}", "OutOfcpu", NOW + n, requests=named) for n in range(50)], CLOCK)
    assert len(text) <= BACKOFFS_BYTES
    # Each takes 128 x 82 bytes and some: five fit into 64 KiB, and 49 ends last.
    assert [one.node for one in read(text, CLOCK, NOW)] == ["n49", "n48", "n47", "n46", "n45"]


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[" * 10_000,
        '[{"node": "a"}]',
        '[{"node": "a", "reason": "OutOfcpu", "until": "x"}]',
        '[{"node": "a", "reason": "OutOfcpu", "until": 1, "other": ' + "[" * 10_000,
        json.dumps([{"node": "a" * BACKOFFS_BYTES, "reason": "OutOfcpu", "until": 1}]),
    ],
)
def test_what_cannot_be_read_is_said_and_counts_as_not_written(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read(text, CLOCK, NOW) == []
    assert "cotide.dev/node-back-offs of the lease can't be read" in caplog.text


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda one: st.lists(one, max_size=3)
)
ENTRIES = st.fixed_dictionaries(
    {"node": st.text(), "reason": st.text(), "until": st.floats() | st.integers()},
    optional={
        "refusals": st.integers() | ANYTHING,
        "requests": st.lists(st.tuples(st.text(), st.integers()), max_size=3) | ANYTHING,
        "trying": st.text() | ANYTHING,
    },
)


@given(st.lists(ENTRIES, max_size=3) | ANYTHING, st.sampled_from([1.0, 0.1, 1000.0]))
def test_whatever_stands_there_no_node_is_closed_for_long(entries: Any, speed: float) -> None:
    for event in read(json.dumps(entries), ScaledClock(0.0, speed), NOW):
        assert NOW - 300.0 <= event.until_seconds <= NOW + 300.0
        assert 1 <= event.refusals <= 32
