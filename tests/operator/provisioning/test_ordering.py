"""Orders of nodes as the operator keeps them: the book before the deed, asked again but never for a second node."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from cotide_core.errors import ClusterError
from cotide_core.provisioning.node_orders import Action, Answer, NodeInstruction, NodeView, OrderBook
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.provisioning.ordering import AT_ONCE, LONGEST_RETRY_SECONDS, Ordering

SETTINGS = ProvisioningSettings.model_validate(
    {
        "mode": "act",
        "machineTypes": [{"name": "a", "cpu": "4", "memory": "8Gi", "count": 9, "bootSeconds": 100}],
        "actuator": {"command": ["x"], "askAgainSeconds": 30, "retrySeconds": 60},
        "bootDeadlineSeconds": 500,
    }
)
FIRST = "capacity-a-1"


@dataclass
class Shelf:
    """The book as the cluster holds it."""

    book: OrderBook = field(default_factory=OrderBook)
    refuses: bool = False
    is_mute: bool = False
    """Carries out what it is sent, and no answer comes."""

    async def load(self) -> OrderBook:
        return self.book

    async def save(self, book: OrderBook) -> None:
        if self.refuses:
            raise ClusterError("refused")
        self.book = book
        if self.is_mute:
            raise ClusterError("no answer")


@dataclass
class Hand:
    """An actuator that answers as it is told to, and looks whether the book was written before."""

    shelf: Shelf
    answer: Answer = Answer.ACCEPTED
    asked: list[tuple[Action, str]] = field(default_factory=list)
    fails: bool = False

    async def do(self, instruction: NodeInstruction) -> Answer:
        if instruction.action is not Action.STOP:
            assert instruction.subject in {order.id for order in self.shelf.book.orders}, (
                "asked for what is not written"
            )
        self.asked.append(instruction[:2])
        if self.fails:
            raise asyncio.CancelledError
        return self.answer


class Scene:
    """One operator after the other at one book; seconds pass when a test says so."""

    def __init__(self) -> None:
        self.shelf, self.now, self.reports = Shelf(), 0.0, []
        self.hand = Hand(self.shelf)
        self.ordering = self.next()

    def next(self) -> Ordering:
        store: Any = self.shelf
        self.ordering = Ordering(
            store, self.hand, SETTINGS, lambda reason, order, _: self.reports.append((reason, order.id)),
            monotonic=lambda: self.now,
        )  # fmt: skip
        return self.ordering

    async def turn(self, wanted: int, *nodes: NodeView, after: float = 0.0) -> list[tuple[Action, str]]:
        """Return what was asked of the actuator."""
        self.now += after
        before = len(self.hand.asked)
        await self.ordering.turn({"a": wanted}, nodes, self.now)
        return self.hand.asked[before:]


async def test_what_is_not_answered_is_asked_again_after_a_pause_and_what_is_answered_never() -> None:
    scene = Scene()
    scene.hand.answer = Answer.UNKNOWN
    assert await scene.turn(1) == [(Action.START, FIRST)]
    assert await scene.turn(1, after=29.0) == [], "the pause is 30 seconds"
    scene.hand.answer = Answer.ACCEPTED
    assert await scene.turn(1, after=1.0) == [(Action.START, FIRST)]
    assert await scene.turn(1, after=300.0) == []
    assert await scene.turn(1, NodeView("n", "a", FIRST), after=1.0) == []
    assert scene.reports == [("NodeOrdered", FIRST), ("NodeCame", FIRST)]


async def test_an_operator_that_was_killed_while_it_asked_is_followed_by_one_that_asks_for_the_same() -> None:
    scene = Scene()
    scene.hand.fails = True
    with pytest.raises(asyncio.CancelledError):
        await scene.turn(2)
    scene.hand.fails = False
    scene.next()
    assert await scene.turn(2) == [(Action.START, FIRST), (Action.START, "capacity-a-2")]
    assert {one for _, one in scene.hand.asked} == {FIRST, "capacity-a-2"}, "no third id for two needs"


async def test_where_the_book_cannot_be_written_nothing_is_sent_and_the_next_turn_reads_it_anew() -> None:
    scene = Scene()
    scene.shelf.refuses = True
    with pytest.raises(ClusterError):
        await scene.turn(1)
    assert scene.hand.asked == []
    scene.shelf.refuses = False
    # Somebody else wrote meanwhile: his order counts.
    scene.shelf.book, _ = OrderBook().step({"a": 1}, [], 0.0, 500.0)
    assert await scene.turn(1) == [(Action.START, FIRST)]
    assert len(scene.shelf.book.orders) == 1


async def unanswered(scene: Scene, wanted: int, *nodes: NodeView, after: float = 0.0) -> None:
    """Take a turn whose book is written though no answer comes."""
    scene.shelf.is_mute = True
    with pytest.raises(ClusterError):
        await scene.turn(wanted, *nodes, after=after)
    scene.shelf.is_mute = False


async def test_an_order_that_was_written_without_an_answer_is_told_once() -> None:
    scene = Scene()
    await unanswered(scene, 1)
    for _ in range(2):
        await scene.turn(1, after=1.0)
    assert scene.reports == [("NodeOrdered", FIRST)]


async def test_a_node_whose_coming_was_written_without_an_answer_is_told_once_and_ends_the_rest() -> None:
    scene = Scene()
    scene.hand.answer = Answer.FAILED
    await scene.turn(1)
    scene.hand.answer = Answer.ACCEPTED
    await scene.turn(1, after=60.0)
    scene.reports.clear()
    came = NodeView("n", "a", "capacity-a-2")
    await unanswered(scene, 1, came, after=10.0)
    for _ in range(2):
        await scene.turn(1, came, after=1.0)
    assert scene.reports == [("NodeCame", "capacity-a-2")]
    await scene.turn(1)  # the node is gone, and its successor, which is late, is the first to fail again
    await scene.turn(1, after=501.0)
    assert scene.ordering.barred(scene.now + 59.0) == {"a"}
    assert scene.ordering.barred(scene.now + 60.0) == frozenset()


async def test_a_node_that_is_late_is_told_and_counted_once_though_its_cancelling_got_no_answer() -> None:
    scene = Scene()
    await scene.turn(1)
    await unanswered(scene, 1, after=501.0)
    for _ in range(2):
        await scene.turn(1, after=1.0)
    assert [reason for reason, _ in scene.reports] == ["NodeOrdered", "NodeLate"]
    assert scene.ordering.barred(scene.now) == {"a"}


async def test_a_node_that_came_is_told_though_the_answer_got_lost_and_another_wrote_the_book_since() -> None:
    scene = Scene()
    await scene.turn(1)
    came = NodeView("n", "a", FIRST)
    await unanswered(scene, 1, came, after=10.0)
    scene.shelf.book, _ = scene.shelf.book.step({"b": 1}, [], scene.now, 500.0)
    await scene.turn(1, came, after=1.0)
    assert ("NodeCame", FIRST) in scene.reports


async def test_after_boots_that_fail_a_type_rests_twice_as_long_each_time() -> None:
    scene = Scene()
    scene.hand.answer = Answer.FAILED
    assert await scene.turn(1) == [(Action.START, FIRST)]
    assert scene.ordering.barred(59.0) == {"a"}
    assert await scene.turn(1, after=59.0) == [], "a minute of rest"
    assert await scene.turn(1, after=1.0) == [(Action.START, "capacity-a-2")]
    assert await scene.turn(1, after=119.0) == [], "two minutes"
    assert await scene.turn(1, after=1.0) == [(Action.START, "capacity-a-3")]
    for _ in range(8):
        await scene.turn(1, after=LONGEST_RETRY_SECONDS)
    assert await scene.turn(1, after=LONGEST_RETRY_SECONDS) != [], "an hour is the longest"
    assert [reason for reason, _ in scene.reports[:4]] == ["NodeOrdered", "NodeFailed"] * 2


async def test_machines_that_fail_together_are_one_failure() -> None:
    """Five that are refused at once, or come late at once, say no more of the next one than one does."""
    scene = Scene()
    scene.hand.answer = Answer.FAILED
    await scene.turn(5)
    assert scene.ordering.barred(59.0) == {"a"}
    assert scene.ordering.barred(60.0) == frozenset()
    scene.hand.answer = Answer.ACCEPTED
    await scene.turn(5, after=60.0)
    scene.hand.answer = Answer.UNKNOWN
    await scene.turn(5, after=501.0)
    assert scene.ordering.barred(scene.now + 119.0) == {"a"}
    assert scene.ordering.barred(scene.now + 120.0) == frozenset(), "the second time in a row: two minutes"


async def test_a_type_that_fails_for_ever_is_tried_for_ever() -> None:
    scene = Scene()
    scene.hand.answer = Answer.FAILED
    for _ in range(1100):
        await scene.turn(1, after=LONGEST_RETRY_SECONDS)
    assert scene.shelf.book.orders == ()
    assert await scene.turn(1, after=LONGEST_RETRY_SECONDS) != []


async def test_a_node_that_comes_ends_the_rest() -> None:
    scene = Scene()
    scene.hand.answer = Answer.FAILED
    await scene.turn(1)
    scene.hand.answer = Answer.ACCEPTED
    await scene.turn(1, after=60.0)
    came = NodeView("n", "a", "capacity-a-2")
    await scene.turn(1, came, after=10.0)
    assert scene.ordering.barred(scene.now) == frozenset()
    assert (await scene.turn(2, came))[0][0] is Action.START


async def test_an_actuator_that_never_answers_gets_no_second_order_for_one_need() -> None:
    scene = Scene()
    scene.hand.answer = Answer.UNKNOWN
    for _ in range(100):
        await scene.turn(1, after=31.0)
    assert {one for _, one in scene.hand.asked} == {FIRST}
    assert {action for action, _ in scene.hand.asked} == {Action.START, Action.CANCEL}
    assert ("NodeLate", FIRST) in scene.reports
    scene.hand.answer = Answer.GONE
    await scene.turn(1, after=31.0)
    assert await scene.turn(1, after=31.0 + 60.0) == [(Action.START, "capacity-a-2")], "now it is known to be gone"


async def test_an_actuator_that_takes_as_long_as_the_pause_is_asked_for_every_order_in_turn() -> None:
    scene = Scene()
    scene.hand.answer = Answer.UNKNOWN
    for _ in range(3):
        await scene.turn(3 * AT_ONCE, after=31.0)
    assert len(set(scene.hand.asked)) == 3 * AT_ONCE


async def test_an_actuator_that_trips_over_one_order_loses_no_answer_to_another() -> None:
    scene = Scene()
    do = scene.hand.do

    async def trips(instruction: NodeInstruction) -> Answer:
        if instruction.subject == FIRST:
            raise ValueError("what nobody thought of")
        return await do(instruction)

    scene.hand.do = trips  # type: ignore[method-assign]
    await scene.turn(2)
    assert [order.accepted for order in scene.shelf.book.orders] == [False, True]


async def test_what_is_not_wanted_any_more_is_cancelled_before_it_comes() -> None:
    scene = Scene()
    await scene.turn(2)
    assert await scene.turn(1, after=1.0) == [(Action.CANCEL, "capacity-a-2")]
    assert ("NodeCancelled", "capacity-a-2") in scene.reports


async def test_the_book_stops_no_node_here_and_a_stop_is_asked_for_with_the_same_patience() -> None:
    scene = Scene()
    nodes = [NodeView("n", "a"), NodeView("m", "a")]
    assert await scene.turn(0, *nodes) == [], "nodes go through consolidation"
    scene.hand.answer = Answer.UNKNOWN
    assert await scene.ordering.stop(nodes[:1]) == {"n": Answer.UNKNOWN}
    scene.now += 10.0
    assert await scene.ordering.stop(nodes[:1]) == {}
    scene.now += 20.0
    assert await scene.ordering.stop(nodes[:1]) == {"n": Answer.UNKNOWN}


async def test_machines_on_their_way_are_expected_when_their_boot_is_over() -> None:
    scene = Scene()
    await scene.turn(2)
    assert scene.ordering.coming([], 30.0) == {"a": [70.0, 70.0]}
    # Counted twice, one that has just come would make the plan want a machine more.
    assert scene.ordering.coming([NodeView("n", "a", FIRST)], 30.0) == {"a": [70.0]}


async def test_a_dry_run_says_what_would_be_sent_and_leaves_the_book_as_it_is() -> None:
    scene = Scene()
    await scene.ordering.read()
    assert scene.ordering.would({"a": 1}, [], 0.0) == (NodeInstruction(Action.START, FIRST, "a"),)
    assert (scene.shelf.book, scene.hand.asked) == (OrderBook(), [])


async def test_a_dry_run_does_not_say_that_what_has_joined_would_be_cancelled() -> None:
    """Its node is there and lost, or held cordoned by somebody: a turn waits for it no more, and cancels nothing."""
    scene = Scene()
    await scene.ordering.turn({"a": 1}, [], 0.0)
    assert scene.ordering.would({}, [], 600.0) == (NodeInstruction(Action.CANCEL, FIRST, "a"),)
    assert scene.ordering.would({}, [], 600.0, lost={FIRST: "n"}) == ()
    assert scene.ordering.would({}, [], 600.0, closed={FIRST: "n"}) == ()
