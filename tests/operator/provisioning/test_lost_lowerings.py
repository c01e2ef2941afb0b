"""Replicas that were lowered without an answer: told once, by whoever leads when it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machine_fleet import TARGET, Fleet
from official_calls import around_scaling
from urllib3.exceptions import ProtocolError

from cotide_core.errors import ClusterError
from cotide_operator.provisioning.cluster_api import Removal
from cotide_sim.apiserver.testing import server_in_thread


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with server_in_thread() as server:
        yield Fleet(server, tmp_path, 4)


def lost(send: Callable[[], Any]) -> Any:
    send()
    raise ProtocolError("connection broken")


def test_an_answer_that_is_lost_lowers_nothing_twice(fleet: Fleet) -> None:
    fleet.remove(n1="m1")
    around_scaling(fleet.api, lost)
    with pytest.raises(ClusterError, match="no answer"):
        fleet.remove(n1="m1")
    assert fleet.remove(n1="m1") == Removal(frozenset({"n1"}), lowered=3), "told at the look that shows it"
    assert fleet.remove(n1="m1") == Removal(frozenset({"n1"}))
    assert fleet.replicas == 3


def test_lowering_that_comes_after_the_next_look_is_told_at_the_one_after_that(fleet: Fleet) -> None:
    late: list[Callable[[], Any]] = []

    def kept_back(send: Callable[[], Any]) -> Any:
        late.append(send)
        if len(late) == 1:
            raise ProtocolError("connection broken")
        late[0]()  # just before the next write, which is refused for it
        return send()

    fleet.remove(n1="m1")
    around_scaling(fleet.api, kept_back)
    for refused in ("no answer", "409"):
        with pytest.raises(ClusterError, match=refused):
            fleet.remove(n1="m1")
    assert fleet.remove(n1="m1").lowered == 3


def test_what_was_lowered_is_told_though_its_node_is_gone_by_the_next_look(fleet: Fleet) -> None:
    fleet.remove(n1="m1")
    around_scaling(fleet.api, lost)
    with pytest.raises(ClusterError, match="no answer"):
        fleet.remove(n1="m1")
    fleet.settle()
    assert fleet.remove() == Removal(frozenset(), lowered=3)


@pytest.mark.parametrize("settled", [False, True], ids=["it goes still", "it is gone"])
def test_what_was_lowered_without_an_answer_the_next_leader_tells_once(fleet: Fleet, settled: bool) -> None:
    fleet.remove(n1="m1")
    around_scaling(fleet.api, lost)
    with pytest.raises(ClusterError, match="no answer"):
        fleet.remove(n1="m1")
    if settled:
        fleet.settle()
    reported = []
    for _ in range(3):
        fleet.change_leader()
        reported += [fleet.remove(n1="m1").lowered, fleet.remove(n1="m1").lowered]
    assert reported == [3, None, None, None, None, None]
    assert (fleet.replicas, fleet.shelf.book.lowering) == (3, ())


def test_what_was_told_no_later_leader_tells_again(fleet: Fleet) -> None:
    fleet.remove(n1="m1")
    assert fleet.remove(n1="m1").lowered == 3
    fleet.change_leader()
    assert fleet.remove(n1="m1").lowered is None


def test_what_a_leader_that_ended_had_not_told_the_next_one_tells(fleet: Fleet) -> None:
    fleet.remove(n1="m1")
    assert fleet.remove(n1="m1", tells=False).lowered == 3
    fleet.change_leader()
    assert fleet.remove().lowered == 3, "the node may be gone by then"
    assert fleet.remove().lowered is None


def test_what_was_asked_for_and_never_came_is_not_told_when_somebody_else_lowers(fleet: Fleet) -> None:
    def dropped(_: Callable[[], Any]) -> Any:
        raise ProtocolError("connection broken")

    fleet.remove(n1="m1")
    around_scaling(fleet.api, dropped)
    with pytest.raises(ClusterError, match="no answer"):
        fleet.remove(n1="m1")
    fleet.change_leader()
    assert fleet.remove() == Removal(frozenset(), is_clean=False), "it may come yet: the version is still the same"
    fleet.call("PATCH", TARGET, {"spec": {"paused": True}})
    assert fleet.remove() == Removal(frozenset()), "now it can't"
    fleet.call("PATCH", TARGET, {"spec": {"replicas": 3}})
    assert fleet.remove().lowered is None


def test_where_the_book_can_not_be_written_machines_go_all_the_same_and_it_is_told_once(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.shelf.refuses = 1000
    fleet.remove(n1="m1")
    around_scaling(fleet.api, lost)
    with pytest.raises(ClusterError, match="no answer"):
        fleet.remove(n1="m1")
    assert [fleet.remove(n1="m1").lowered for _ in range(3)] == [3, None, None]
    assert fleet.replicas == 3
    assert len([record for record in caplog.records if "lacks the lowered replicas" in record.message]) == 1


def test_what_could_not_be_struck_out_is_struck_out_later_and_not_told_again(fleet: Fleet) -> None:
    fleet.remove(n1="m1")
    assert fleet.remove(n1="m1", tells=False).lowered == 3
    fleet.shelf.refuses = 2
    asyncio.run(fleet.removal.announced(TARGET))
    assert [(found := fleet.remove()).lowered, found.is_clean] == [None, False], "else nobody would look again"
    assert len(fleet.shelf.book.lowering) == 1
    fleet.settle()
    assert fleet.remove().lowered is None
    assert fleet.shelf.book.lowering == ()


def test_what_is_asked_for_is_written_before_it_is_asked(fleet: Fleet) -> None:
    seen: list[int] = []

    def watched(send: Callable[[], Any]) -> Any:
        seen.append(len(fleet.shelf.book.lowering))
        return send()

    fleet.remove(n1="m1")
    around_scaling(fleet.api, watched)
    fleet.remove(n1="m1")
    assert (seen, fleet.shelf.book.lowering) == ([1], ())
