"""Capacity when something goes wrong: nodes that are refused, opened, left by somebody or lost."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import msgspec
import pytest
from manifests import node_manifest, pod_manifest
from provisioner_scene import CAME, LABEL, ORIGIN, Scene

from cotide_core.consolidation.removal.watching import Mark
from cotide_core.errors import ClusterError
from cotide_core.provisioning.node_orders import Action, Answer, NodeOrder, OrderBook
from cotide_kube.objects import NodeObject
from cotide_operator.leaderelection.lease import LeadershipLost
from cotide_operator.provisioning.cluster_view import ORDER_LABEL
from cotide_operator.provisioning.task_history import KnownTasks


async def test_a_machine_whose_node_somebody_has_opened_is_not_switched_off() -> None:
    scene = Scene()
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(1)
    scene.opened.append("gone")  # on the server; the cache shows it later
    await scene.look(2)
    scene.has("gone")  # now the cache, too, while its mark is there still
    await scene.look(2)
    assert scene.asked == []


async def test_a_node_that_can_not_be_written_keeps_no_other_from_coming() -> None:
    scene = Scene()
    scene.has("n", free=Mark.FREED)
    scene.runs(14)  # fourteen cores and a fifth: five machines of four

    async def refused(node: str, why: str) -> None:
        raise ClusterError(f"{node} is refused")

    scene.frees.give_back = refused  # type: ignore[method-assign]
    await scene.look(2)
    assert len(scene.asks()) == 3


async def test_of_who_leads_no_more_no_machine_is_asked() -> None:
    """An actuator's webhook or command knows nothing of the lease."""

    def lost() -> None:
        raise LeadershipLost("the lease may be another's by now")

    scene = Scene()
    scene.has("n")
    scene.runs(6)
    await scene.look()
    scene.fence = lost
    with pytest.raises(LeadershipLost):
        await scene.look()
    assert scene.asked == []
    scene.fence = None
    await scene.look()
    assert scene.asks() == [(Action.START, "capacity-a-1")]


async def test_a_plan_that_trips_while_it_is_prepared_is_followed_by_another() -> None:
    scene = Scene()
    scene.has("n")
    scene.runs(6)
    copied = scene.provisioner._history.copied
    scene.provisioner._history.copied = lambda *_: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with contextlib.suppress(ZeroDivisionError):
        await scene.look()
    scene.provisioner._history.copied = copied  # type: ignore[method-assign]
    await scene.look(2)
    assert scene.asks() == [(Action.START, "capacity-a-1")]


async def test_what_the_command_was_emptying_is_opened_again() -> None:
    scene = Scene()
    scene.book = OrderBook(draining=("left", "told"), opening=("half",), stopping=("told",))
    scene.has("n", left=Mark.NONE, half=Mark.NONE, told=Mark.NONE)
    scene.runs(1)
    await scene.look(3)
    assert scene.opened == ["half", "left"], "the machine of the third may be off at any moment"
    assert (scene.book.draining, scene.book.opening) == (("told",), ())


async def test_a_node_of_the_commands_that_can_not_be_opened_stays_in_the_book_and_holds_up_no_other() -> None:
    scene = Scene()
    scene.book = OrderBook(opening=("half", "left"))
    scene.has("n", half=Mark.NONE, left=Mark.NONE)
    scene.runs(14)  # fourteen cores and a fifth: five machines of four
    patch = scene.patch

    async def refuses_one(path: str, body: Any) -> None:
        if path.endswith("/half"):
            raise ClusterError("half is refused")
        await patch(path, body)

    scene.patch = refuses_one  # type: ignore[method-assign]
    await scene.look(2)
    assert (scene.opened, scene.book.opening) == (["left"], ("half",))
    assert scene.asks(), "machines are ordered all the same"


async def test_a_node_that_is_lost_ends_its_order_and_is_replaced() -> None:
    scene = Scene()
    scene.runs(1)
    scene.pods |= {key: pod._replace(node=None) for key, pod in scene.pods.items()}
    await scene.look(2)
    assert scene.asks() == [(Action.START, "capacity-a-1")]
    scene.clock.wall += scene.settings.boot_deadline_seconds + 60.0  # nobody looks meanwhile; it joins and dies
    made = node_manifest("came", "4", memory="64Gi")
    made["metadata"] |= {"labels": {LABEL: "a", ORDER_LABEL: "capacity-a-1"}, "creationTimestamp": CAME}
    made["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": CAME}]
    scene.cache.apply("nodes", "ADDED", msgspec.convert(made, NodeObject))
    await scene.look(2)
    assert scene.asks()[1:] == [(Action.START, "capacity-a-2")]


async def test_a_machine_that_came_and_that_somebody_has_cordoned_is_no_late_one() -> None:
    """It is his: its order is over, nobody is told to cancel it, and others of its type are ordered all the same."""
    scene = Scene()
    scene.runs(1)
    scene.pods |= {key: pod._replace(node=None) for key, pod in scene.pods.items()}
    await scene.look(2)
    made = node_manifest("came", "4", memory="64Gi")
    made["metadata"] |= {"labels": {LABEL: "a", ORDER_LABEL: "capacity-a-1"}, "creationTimestamp": CAME}
    made["spec"] = {"unschedulable": True}
    scene.cache.apply("nodes", "ADDED", msgspec.convert(made, NodeObject))
    await scene.look(2)
    assert scene.asks() == [(Action.START, "capacity-a-1")], "what boots may be opened when that is done"
    scene.clock.wall += scene.settings.boot_deadline_seconds + 60.0
    await scene.look(2)
    assert scene.asks()[1:] == [(Action.START, "capacity-a-2")]
    assert "NodeLate" not in scene.instructions


async def test_a_pod_beside_a_node_that_takes_nobody_has_a_machine_ordered_once_and_not_while_that_node_may_boot() -> (
    None
):
    """An idle machine whose disk is full, or that somebody keeps for himself, is there and helps nobody."""
    for taints, pressure in (([{"key": "mine", "value": "", "effect": "NoSchedule"}], "False"), ([], "True")):
        scene = Scene()
        scene.has("n")
        made = node_manifest("n", "4", memory="64Gi")
        made["metadata"] |= {"labels": {LABEL: "a"}, "creationTimestamp": CAME}
        made["spec"] = {"taints": taints}
        made["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": CAME}]
        made["status"]["conditions"].append({"type": "DiskPressure", "status": pressure, "lastTransitionTime": CAME})
        scene.has("m")
        scene.runs(4, "m")
        scene.cache.apply("nodes", "MODIFIED", msgspec.convert(made, NodeObject))
        scene.runs(1)
        scene.pods["d/n-0"] = scene.pods["d/n-0"]._replace(node=None)
        await scene.look(3)
        assert scene.asks() == []
        scene.clock.wall = ORIGIN + scene.settings.boot_deadline_seconds + 60.0
        await scene.look(3)
        assert scene.asks() == [(Action.START, "capacity-a-1")]


async def test_a_machine_of_a_type_that_has_left_the_configuration_ends_its_order_all_the_same() -> None:
    scene = Scene()
    scene.book = OrderBook(orders=(NodeOrder("capacity-old-1", "old", ORIGIN, accepted=True),))
    joined(scene, {LABEL: "a", ORDER_LABEL: "capacity-old-1"})
    scene.runs(1, "came")
    await scene.look(2)
    assert scene.book.orders == ()
    assert "NodeCame" in scene.instructions


async def test_a_late_order_whose_node_came_without_its_type_says_so() -> None:
    for labels, said in (({}, "is not set"), ({LABEL: "b"}, "is 'b'")):
        scene = Scene()
        messages: list[str] = []
        scene.node_order = lambda *found, messages=messages: messages.append(found[-1])  # type: ignore[method-assign]
        scene.runs(1)
        scene.pods |= {key: pod._replace(node=None) for key, pod in scene.pods.items()}
        await scene.look(2)
        joined(scene, {**labels, ORDER_LABEL: "capacity-a-1"})
        scene.clock.wall += scene.settings.boot_deadline_seconds + 60.0
        await scene.look()
        words = f"came came, but its label {LABEL} {said}, which is no machine type: the order is cancelled"
        assert messages[-1] == words


def joined(scene: Scene, labels: dict[str, str]) -> None:
    """Let a machine join as a node with these labels."""
    made = node_manifest("came", "4", memory="64Gi")
    made["metadata"] |= {"labels": labels, "creationTimestamp": CAME}
    scene.cache.apply("nodes", "ADDED", msgspec.convert(made, NodeObject))


def not_ready(scene: Scene, name: str) -> None:
    """Let a node's kubelet fall silent, a long time ago."""
    made = node_manifest(name, "4", memory="64Gi")
    made["metadata"] |= {"labels": {LABEL: "a"}, "creationTimestamp": CAME}
    made["spec"] = {"unschedulable": True}
    made["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": CAME}]
    scene.cache.apply("nodes", "MODIFIED", msgspec.convert(made, NodeObject))


async def test_a_machine_that_went_and_left_its_node_object_can_be_had_again_and_is_not_asked_again() -> None:
    scene = Scene(count=2)
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(1)
    await scene.look(2)
    assert scene.asks() == [(Action.STOP, "gone")]
    scene.clock.wall += scene.settings.boot_deadline_seconds + 60.0
    not_ready(scene, "gone")
    scene.provisioner._ordering._asked.clear()  # type: ignore[union-attr]  # the pause between two questions is over
    await scene.look(2)
    assert scene.asks() == [(Action.STOP, "gone")]
    assert 'cotide_provisioning_nodes{state="off",type="a"} 1.0' in scene.metrics.text().decode()
    scene.runs(5)  # five cores and a fifth: both machines of four
    await scene.look(2)
    assert scene.asks()[1:] == [(Action.START, "capacity-a-1")]


async def test_a_machine_of_which_nobody_said_that_it_goes_is_asked_to_go_however_silent_its_node_is() -> None:
    scene = Scene(count=2)
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(1)
    scene.clock.wall += scene.settings.boot_deadline_seconds + 60.0
    not_ready(scene, "gone")
    scene.answer = Answer.UNKNOWN
    await scene.look(2)
    scene.provisioner._ordering._asked.clear()  # type: ignore[union-attr]  # the pause between two questions is over
    scene.answer = Answer.GONE
    await scene.look()
    assert scene.asks() == [(Action.STOP, "gone")] * 2
    scene.provisioner._ordering._asked.clear()  # type: ignore[union-attr]
    await scene.look()
    assert scene.asks() == [(Action.STOP, "gone")] * 2


async def test_tasks_are_added_up_in_the_plans_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 of them held the deciding loop for a quarter of a second, at each plan."""
    read, threads = KnownTasks.read, list[int]()

    def noted(self: KnownTasks, now: float, run_seconds: float) -> Any:
        threads.append(threading.get_ident())
        return read(self, now, run_seconds)

    monkeypatch.setattr(KnownTasks, "read", noted)
    scene = Scene()
    scene.has("n")
    scene.runs(1)
    await scene.look()
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


async def test_of_many_nodes_that_are_to_stop_few_are_asked_about_at_one_look_and_each_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 500 of them a look asked a thousand questions, one after the other, while nothing else was ordered."""
    scene = Scene(count=99)
    scene.has("n")
    scene.has(**{f"gone{number}": Mark.STOPPING for number in range(40)})
    scene.runs(1)
    asked: list[list[str]] = [[]]
    listed = scene.list

    async def noted(path: str, params: Any) -> list[dict[str, Any]]:
        name = params["fieldSelector"].partition("=")[2]
        if path == "/api/v1/nodes":
            asked[-1].append(name)
            if name == "gone0":
                raise ClusterError("no answer")
        held = path == "/api/v1/pods" and name != "gone39"
        return [pod_manifest("late", namespace="d", uid="l")] if held else await listed(path, params)

    monkeypatch.setattr(scene, "list", noted)
    await scene.look()  # without a plan nothing goes
    for _ in range(3):
        asked.append([])
        await scene.look()
    assert max(map(len, asked)) == 16
    assert {name for one in asked for name in one} == {f"gone{number}" for number in range(40)}
    assert scene.asks() == [(Action.STOP, "gone39")], "the others are held up"
