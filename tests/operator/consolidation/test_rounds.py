"""`cotide consolidate --watch --apply`: a node whose write is refused holds up no other, and none is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from cotide_core.consolidation.removal.watching import Acts, GivenBack, Mark, WatchRules
from cotide_core.errors import ClusterError
from cotide_operator.clock import real_clock
from cotide_operator.consolidation.node_record import NodeRecord, Recorded
from cotide_operator.consolidation.rounds import Round, Rounds


class Hands:
    """A cluster of nodes that this command holds; it refuses to write one."""

    def __init__(self) -> None:
        self.marks = dict.fromkeys(("a", "b", "c"), Mark.EMPTYING)

    async def records(self) -> dict[str, Recorded]:
        return {name: Recorded(mark.value, NodeRecord(), "watch", cordoned=True) for name, mark in self.marks.items()}

    async def write(self, name: str, mark: Mark, **_: Any) -> None:
        if name == "a":
            raise ClusterError("refused")
        self.marks[name] = mark


def rounds(hands: Any) -> Rounds:
    none: Any = None
    return Rounds(hands, real_clock(), none, WatchRules(), carrier=object())  # type: ignore[arg-type]  # nothing is drained


async def test_at_the_end_every_node_is_opened_that_can_be_and_the_others_are_named() -> None:
    hands = Hands()
    with pytest.raises(ClusterError, match="starts again: a: refused"):
        await rounds(hands).leave()
    assert hands.marks == {"a": Mark.EMPTYING, "b": Mark.NONE, "c": Mark.NONE}


async def test_in_a_round_a_refused_node_is_told_and_the_others_are_given_back() -> None:
    hands = Hands()
    acts = Acts(give_back=(GivenBack("a", "pods wait"), GivenBack("b", "pods wait")), freed=("c",))
    carried = await rounds(hands).carry_out(Round(1, 0.0, None, 0, acts, 0, {}, {}))
    assert (carried.freed, carried.surprise) == (("c",), "a: refused")
    assert (hands.marks["b"], hands.marks["c"]) == (Mark.NONE, Mark.FREED)
