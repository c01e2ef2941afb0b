"""The book of node orders: no node twice for one need, no online pod lost, through mishaps and restarts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cotide_core.errors import InputError
from cotide_core.provisioning.node_orders import Action, Answer, NodeView, OrderBook, Stage
from cotide_sim.kubelets.fake_nodes import FakeNodes, Mishaps

DEADLINE = 600.0


def actions(todo):
    return [(one.action, one.subject) for one in todo]


def test_a_need_is_asked_for_until_it_is_answered_and_with_one_id():
    book, todo = OrderBook().step({"a": 1}, [], 0.0, DEADLINE)
    assert actions(todo) == [(Action.START, "capacity-a-1")]
    book, todo = book.step({"a": 1}, [], 60.0, DEADLINE)
    assert actions(todo) == [(Action.START, "capacity-a-1")], "no answer came: the same once more"
    book, todo = book.answered("capacity-a-1", Answer.ACCEPTED).step({"a": 1}, [], 120.0, DEADLINE)
    assert actions(todo) == []
    book, todo = book.step({"a": 1}, [NodeView("n", "a", "capacity-a-1")], 180.0, DEADLINE)
    assert (book.orders, todo) == ((), ())


def test_a_boot_that_failed_is_a_new_need_with_a_new_id():
    book, _ = OrderBook().step({"a": 1}, [], 0.0, DEADLINE)
    book, todo = book.answered("capacity-a-1", Answer.FAILED).step({"a": 1}, [], 60.0, DEADLINE)
    assert actions(todo) == [(Action.START, "capacity-a-2")]


def test_a_late_boot_is_replaced_only_when_the_actuator_says_that_it_is_gone():
    book, _ = OrderBook().step({"a": 1}, [], 0.0, DEADLINE)
    book = book.answered("capacity-a-1", Answer.ACCEPTED)
    book, todo = book.step({"a": 1}, [], DEADLINE + 1, DEADLINE)
    assert actions(todo) == [(Action.CANCEL, "capacity-a-1")]
    silent, todo = book.step({"a": 1}, [], DEADLINE + 60, DEADLINE)
    assert actions(todo) == [(Action.CANCEL, "capacity-a-1")], "no answer: no second node"
    came, todo = silent.step({"a": 1}, [NodeView("n", "a", "capacity-a-1")], DEADLINE + 90, DEADLINE)
    assert (came.orders, todo) == ((), ()), "it came after all, and is what was wanted"
    _, todo = silent.answered("capacity-a-1", Answer.GONE).step({"a": 1}, [], DEADLINE + 90, DEADLINE)
    assert actions(todo) == [(Action.START, "capacity-a-2")]


def test_what_is_no_longer_wanted_is_cancelled_before_a_node_is_drained():
    book, _ = OrderBook().step({"a": 2}, [NodeView("n", "a")], 0.0, DEADLINE)
    book, todo = book.step({"a": 1}, [NodeView("n", "a")], 60.0, DEADLINE)
    assert actions(todo) == [(Action.CANCEL, "capacity-a-1")]
    assert book.orders[0].stage is Stage.CANCELLING


def test_a_node_is_cordoned_emptied_and_stopped_and_never_with_an_online_pod():
    nodes = [NodeView("online", "a", pods=1, online_pods=1), NodeView("busy", "a", pods=3), NodeView("idle", "a")]
    book, todo = OrderBook().step({"a": 1}, nodes, 0.0, DEADLINE)
    assert actions(todo) == [(Action.CORDON, "idle"), (Action.CORDON, "busy")]
    cordoned = [nodes[0], replace(nodes[1], cordoned=True), replace(nodes[2], cordoned=True)]
    book, todo = book.step({"a": 1}, cordoned, 60.0, DEADLINE)
    assert actions(todo) == [(Action.STOP, "idle")]
    # An online pod got onto the node that drains, from outside: it stays.
    _, todo = book.step({"a": 1}, [nodes[0], replace(cordoned[1], online_pods=1)], 90.0, DEADLINE)
    assert actions(todo) == [(Action.UNCORDON, "busy")]
    book, todo = OrderBook().step({"a": 0}, [nodes[0]], 0.0, DEADLINE)
    assert actions(todo) == []


def test_a_node_that_its_owner_keeps_is_not_drained_and_is_opened_where_it_was_being_drained():
    nodes = [NodeView("kept", "a", kept=True), NodeView("plain", "a", pods=2)]
    book, todo = OrderBook().step({"a": 0}, nodes, 0.0, DEADLINE)
    assert actions(todo) == [(Action.CORDON, "plain")]
    now_kept = replace(nodes[1], cordoned=True, pods=0, kept=True)
    _, todo = book.step({"a": 0}, [nodes[0], now_kept], 60.0, DEADLINE)
    assert actions(todo) == [(Action.UNCORDON, "plain")]


def test_a_draining_node_is_taken_back_before_another_is_started():
    nodes = [NodeView("busy", "a", pods=3), NodeView("other", "a", pods=9)]
    book, _ = OrderBook().step({"a": 1}, nodes, 0.0, DEADLINE)
    assert book.draining == ("busy",)
    book, todo = book.step({"a": 2}, [replace(nodes[0], cordoned=True), nodes[1]], 60.0, DEADLINE)
    assert actions(todo) == [(Action.UNCORDON, "busy")]
    assert book.orders == ()


def test_a_node_is_uncordoned_until_that_is_done_whenever_the_process_ends():
    node = NodeView("n", "a")
    book, _ = OrderBook().step({"a": 0}, [node], 0.0, DEADLINE)
    cordoned = replace(node, cordoned=True)
    for _ in range(2):  # the first process ends between its book and the API server
        book, todo = OrderBook.from_data(book.as_data()).step({"a": 1}, [cordoned], 60.0, DEADLINE)
        assert actions(todo) == [(Action.UNCORDON, "n")]
    assert book.opened({"n"}).step({"a": 1}, [cordoned], 90.0, DEADLINE)[1] == (), "now the cordon is somebody else's"
    assert book.step({"a": 1}, [node], 90.0, DEADLINE)[0].opening == ()


def test_a_node_whose_machine_was_told_to_go_is_not_taken_back_and_one_that_somebody_opened_is_his():
    node = NodeView("n", "a", cordoned=True)
    book = OrderBook(draining=("n",)).going(["n"])
    written = OrderBook.from_data(book.as_data())
    todo = written.step({"a": 1}, [node], 60.0, DEADLINE)[1]
    assert actions(todo) == [(Action.START, "capacity-a-1"), (Action.STOP, "n")]
    todo = written.stays("n").step({"a": 1}, [node], 60.0, DEADLINE)[1]
    assert actions(todo) == [(Action.UNCORDON, "n")], "the actuator said that it can't stop it"
    opened, todo = written.step({"a": 1}, [replace(node, cordoned=False)], 60.0, DEADLINE)
    assert (opened.draining, opened.stopping, todo) == ((), (), ())


def test_a_cordon_of_ours_is_not_forgotten_when_its_type_is_configured_no_more():
    book = OrderBook(draining=("half", "told"), opening=("back",), stopping=("told",))
    others = {"half": True, "told": True, "back": True, "persons": True}
    for _ in range(2):  # the first process ends between its book and the API server
        book, todo = OrderBook.from_data(book.as_data()).step({"b": 0}, [], 60.0, DEADLINE, others=others)
        assert actions(todo) == [(Action.UNCORDON, "back"), (Action.UNCORDON, "half")]
        assert (book.draining, book.stopping) == (("told",), ("told",)), "its machine may be off at any moment"
    book, todo = book.step({"b": 0}, [], 90.0, DEADLINE, others=dict.fromkeys(others, False))
    assert (book.draining, book.opening, book.stopping, todo) == ((), (), (), ())


def test_an_order_whose_node_is_there_and_can_not_be_counted_on_is_fulfilled_and_replaced():
    book, _ = OrderBook().step({"a": 1}, [], 0.0, DEADLINE)
    book, todo = book.step({"a": 1}, [], DEADLINE + 1, DEADLINE, arrived={"capacity-a-1"})
    assert actions(todo) == [(Action.START, "capacity-a-2")]


def test_an_order_whose_node_somebody_holds_cordoned_is_never_cancelled():
    """It joined: an actuator that takes a cancel at its word would switch off what he works on."""
    book, _ = OrderBook().step({"a": 1}, [], 0.0, DEADLINE)
    book = book.answered("capacity-a-1", Answer.ACCEPTED)
    held, todo = book.step({"a": 1}, [], DEADLINE, DEADLINE, closed={"capacity-a-1"})
    assert (held.orders, todo) == (book.orders, ()), "it may be opened when it has booted"
    _, todo = book.step({"a": 1}, [], DEADLINE + 1, DEADLINE, closed={"capacity-a-1"})
    assert actions(todo) == [(Action.START, "capacity-a-2")]
    after, todo = book.step({"a": 0}, [], 60.0, DEADLINE, closed={"capacity-a-1"})
    assert (after.orders, todo) == ((), ())


def test_the_book_survives_being_written_down_and_a_broken_one_is_no_empty_one():
    book, _ = OrderBook("east").step({"a": 2, "b": 1}, [], 5.0, DEADLINE)
    book = book.answered("east-a-1", Answer.ACCEPTED)
    assert OrderBook.from_data(json.loads(json.dumps(book.as_data()))) == book
    for broken in ({}, {**book.as_data(), "orders": [["x"]]}, {**book.as_data(), "issued": "many"}):
        with pytest.raises(InputError, match="can't be read"):
            OrderBook.from_data(broken)


@pytest.mark.parametrize("seed", range(50))
def test_through_mishaps_and_restarts_no_need_gets_two_nodes_and_no_online_pod_is_lost(seed):
    rng = np.random.default_rng(seed)
    chances = rng.uniform(0.0, 0.5, 4)
    pool = FakeNodes(rng, Mishaps(120.0, chances[0], chances[1], chances[2], chances[3], vanishes=0.01))
    book, written = OrderBook(), json.dumps(OrderBook().as_data())
    wanted = {"a": 0, "b": 0}
    for step in range(120):
        now = 60.0 * step
        if step % 15 == 0 and step < 90:
            wanted = {kind: int(rng.integers(0, 8)) for kind in wanted}
        book, todo = book.step(wanted, list(pool.nodes.values()), now, DEADLINE)
        written = json.dumps(book.as_data())  # before anything is done
        for index, instruction in enumerate(todo):
            if rng.uniform() < 0.02:
                # The process ends in the middle; the next one begins with what was written.
                assert index < len(todo)
                book = OrderBook.from_data(json.loads(written))
                break
            for answer in pool.do(instruction, now):
                book = book.answered(instruction.subject, answer)
            if instruction.action is Action.START:
                kind = instruction.kind
                there = sum(node.kind == kind and name not in book.draining for name, node in pool.nodes.items())
                begun = there + sum(what == kind for what, _ in pool.booting.values())
                assert begun <= wanted[kind], "more nodes were begun than are wanted"
        pool.let_pass(now + 30.0)
        for name, node in list(pool.nodes.items()):
            # An online pod may come to any node that is not cordoned, and stays a while.
            stays = node.online_pods and rng.uniform() < 0.9
            comes = not node.cordoned and rng.uniform() < 0.1
            online = int(stays or comes)
            pool.nodes[name] = replace(node, online_pods=online, pods=online)
    assert max(pool.started.values(), default=0) <= 1, "an order started two nodes"
    assert pool.killed_online == 0
