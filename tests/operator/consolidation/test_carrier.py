"""Carrying a plan out on a cluster of a few lines: order, waiting, surprises, and no cordon left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from manifests import pod_object
from small_cluster import SmallCluster, carry, freed, of_a_gang, pod_now

from cotide_core.errors import ClusterError
from cotide_operator.clock import ScaledClock
from cotide_operator.consolidation.carrier import DRAINING, FREED, Carried, Carrier, NodeNow, PodNow
from cotide_operator.consolidation.carrier import pod_now as read


async def test_pods_move_one_by_one_and_the_node_stays_cordoned_as_freed() -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("2", "a"), pod_now("3", "b"))
    on_its_way = []
    cluster.on_sleep = lambda: on_its_way.append(len(cluster.due))
    found = await carry(cluster, freed("a", "1", "2"), freed("b", "3"))
    assert found == Carried(("a", "b"), ("d/1", "d/2", "d/3"), "")
    assert max(on_its_way) == 1
    assert cluster.nodes["a"] == NodeNow(True, FREED)


async def test_for_a_pod_without_an_owner_no_other_node_is_looked_at() -> None:
    """All pods of the cluster were: with 50,000 each look held the deciding loop, and one that waited was told of."""
    lone = replace(pod_now("1", "a"), owner="")
    cluster = SmallCluster(lone, PodNow("other/waits", "u", "", "", False, "0/3 nodes"), again_after=0.0)
    asked: list[tuple[str, str]] = []
    pods = cluster.pods

    async def noted(*, node: str = "", owner: str = "") -> list[PodNow]:
        asked.append((node, owner))
        return await pods(node=node, owner=owner)

    cluster.pods = noted  # type: ignore[method-assign]  # the same, noted
    assert await carry(cluster, freed("a", "1")) == Carried(("a",), ("d/1",), "")
    assert set(asked) == {("a", "")}


async def test_a_pod_that_is_evicted_and_does_not_go_is_told_as_that() -> None:
    cluster = SmallCluster(replace(pod_now("1", "a"), owner=""))

    async def accepted(_key: str, _uid: str) -> int:
        return 201

    cluster.evict = accepted  # type: ignore[method-assign]  # its finalizer keeps it
    found = await carry(cluster, freed("a", "1"))
    assert found.surprise == "a: pod d/1 was evicted, and still exists after 30 s"


async def test_a_budget_is_waited_for_and_then_is_a_surprise() -> None:
    cluster = SmallCluster(pod_now("1", "a"))
    cluster.answers = [429, 429]
    assert (await carry(cluster, freed("a", "1"))).surprise == ""
    assert cluster.evicted == [("d/1", "u-1")]
    cluster = SmallCluster(pod_now("1", "a"))
    cluster.answers = [429] * 99
    found = await carry(cluster, freed("a", "1"))
    assert found.surprise == "a: a disruption budget refused the eviction of pod d/1 for 30 s"
    assert cluster.nodes["a"] == NodeNow(False, "")


async def test_a_node_that_somebody_uncordons_is_his_and_no_more_pods_are_moved_off_it() -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("2", "a"))
    cluster.on_sleep = lambda: cluster.nodes.update(a=NodeNow(False, DRAINING))
    found = await carry(cluster, freed("a", "1", "2"))
    assert found == Carried((), ("d/1",), "a: the node was uncordoned during the drain")
    assert cluster.evicted == [("d/1", "u-1")]
    assert cluster.nodes["a"] == NodeNow(False, "")


async def test_a_node_that_somebody_uncordons_at_the_last_pod_is_not_cordoned_again() -> None:
    cluster = SmallCluster(pod_now("1", "a"))
    cluster.on_sleep = lambda: cluster.nodes.update(a=NodeNow(False, DRAINING))
    assert (await carry(cluster, freed("a", "1"))).freed == ()
    assert cluster.nodes["a"] == NodeNow(False, "")


async def test_a_pod_that_is_not_ready_again_stops_the_run_with_the_schedulers_reason() -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("2", "b"), again_after=1.0)
    made = cluster.evict

    async def evict(key: str, uid: str) -> int:
        status = await made(key, uid)
        at, again = cluster.due.pop()
        cluster.due.append((at, replace(again, ready=False, node="", refused="0/4 nodes are available")))
        return status

    cluster.evict = evict  # type: ignore[method-assign]  # this one's pods find no place
    found = await carry(cluster, freed("a", "1"), freed("b", "2"))
    assert found.freed == ()
    assert found.surprise.endswith("no pod ready again in 30 s: 0/4 nodes are available")
    assert await cluster.marked() == {}
    assert len(cluster.evicted) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.nodes.pop("a"), "the node is gone"),
        (lambda c: c.nodes.update(a=NodeNow(True, "")), "the node was cordoned since"),
        (lambda c: c.there.append(pod_now("new", "a")), "pod d/new came to the node"),
        (lambda c: c.there.__setitem__(0, replace(c.there[0], uid="other")), "pod d/1 was replaced"),
        (lambda c: c.there.__setitem__(0, replace(c.there[0], kept=True)), "pod d/1 must not be disrupted"),
        (
            lambda c: c.nodes.update(a=NodeNow(False, "", "its owner")),
            "the node was protected since the plan was made: its owner",
        ),
        (lambda c: c.answers.append(500), "answered 500"),
    ],
)
async def test_whatever_the_plan_did_not_know_stops_it_before_anything_is_evicted(
    change: Callable[[SmallCluster], object], words: str
) -> None:
    cluster = SmallCluster(pod_now("1", "a"))
    change(cluster)
    found = await carry(cluster, freed("a", "1"))
    assert words in found.surprise
    assert cluster.evicted == []
    assert not [name for name, mark in (await cluster.marked()).items() if mark == DRAINING]


async def test_a_pod_that_came_between_the_look_and_the_cordon_stops_it_and_the_node_is_open_again() -> None:
    """The scheduler may have bound it before it saw the cordon."""
    cluster = SmallCluster(pod_now("1", "a"))
    mark = cluster.mark

    async def bound_meanwhile(name: str, text: str | None, *, cordoned: bool) -> None:
        if cordoned:
            cluster.there.append(pod_now("new", name))
        await mark(name, text, cordoned=cordoned)

    cluster.mark = bound_meanwhile  # type: ignore[method-assign]  # what happens while the server is written to
    assert "a: pod d/new came to the node" in (await carry(cluster, freed("a", "1"))).surprise
    assert (cluster.evicted, cluster.nodes["a"]) == ([], NodeNow(False, ""))


async def test_a_node_that_its_owner_protects_meanwhile_is_open_again_before_the_next_pod_goes() -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("2", "a"))
    cluster.on_sleep = lambda: cluster.nodes.update(a=NodeNow(True, DRAINING, "its owner"))
    found = await carry(cluster, freed("a", "1", "2"))
    assert found == Carried((), ("d/1",), "a: the node was protected since the plan was made: its owner")
    assert len(cluster.evicted) == 1


@pytest.mark.parametrize("status", [404, 409])
async def test_a_pod_that_is_gone_or_replaced_at_its_eviction_is_no_surprise(status: int) -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("2", "a"))
    cluster.answers = [status]
    cluster.on_sleep = lambda: cluster.there.__setitem__(
        slice(None), [one for one in cluster.there if one.key != "d/1"]
    )
    found = await carry(cluster, freed("a", "1", "2"), timeout=100.0)
    assert (found.freed, found.surprise) == (("a",), "")
    assert [key for key, _ in cluster.evicted] == ["d/2"]


@pytest.mark.parametrize(("status", "freed_nodes"), [(199, ()), (200, ("a",)), (299, ("a",)), (300, ())])
async def test_any_answer_from_200_to_299_lets_a_pod_go(status: int, freed_nodes: tuple[str, ...]) -> None:
    cluster = SmallCluster(replace(pod_now("1", "a"), owner=""))
    cluster.answers = [status]
    cluster.on_sleep = cluster.there.clear
    assert (await carry(cluster, freed("a", "1"))).freed == freed_nodes


def test_a_carrier_reads_owner_readiness_and_refusal_of_a_pod() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web", "controller": True}
    ready = {"type": "Ready", "status": "True"}
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    clock = ScaledClock()
    runs = pod_object("p", ownerReferences=[owner], status={"conditions": [ready]}, spec={"nodeName": "n"})
    assert read(runs, clock) == PodNow("ns/p", "u-p", "n", "u-web", True)
    leaves = pod_object("p", deletionTimestamp="2026-11-20T13:00:00Z", status={"conditions": [ready]})
    assert read(leaves, clock) == PodNow("ns/p", "u-p", "", "", False)
    waits = pod_object("p", status={"conditions": [{**ready, "status": "False"}, refused]})
    assert read(waits, clock) == PodNow("ns/p", "u-p", "", "", False, "0/3 nodes")
    gated = pod_object("p", status={"conditions": [{**refused, "reason": "SchedulingGated"}]})
    assert read(gated, clock) == PodNow("ns/p", "u-p", "", "", False)
    kept = pod_object("p", annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert read(kept, clock).kept


async def test_a_pod_that_went_by_itself_needs_no_move_and_the_others_are_not_moved_for_nothing() -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("2", "a"), pod_now("3", "a"))

    def scaled_away() -> None:
        cluster.there = [one for one in cluster.there if one.key != "d/2"]

    cluster.on_sleep = scaled_away
    assert await carry(cluster, freed("a", "1", "2", "3")) == Carried(("a",), ("d/1", "d/3"), "")
    assert cluster.nodes["a"] == NodeNow(True, FREED)


async def test_an_owner_that_was_scaled_down_meanwhile_is_not_waited_for_until_the_time_is_over() -> None:
    one, two = (replace(pod_now(name, node), owner="same") for name, node in (("1", "a"), ("2", "b")))
    cluster = SmallCluster(one, two, again_after=1e9)  # nobody makes it again: one pod is enough now
    assert await carry(cluster, freed("a", "1"), timeout=900.0) == Carried(("a",), ("d/1",), "")
    assert cluster.time == 31.0, "one second until it is gone, and 30 in which the owner wants no more"


async def test_an_owner_with_a_pod_that_is_not_ready_yet_is_waited_for() -> None:
    one, two = (replace(pod_now(name, node), owner="same") for name, node in (("1", "a"), ("2", "b")))
    cluster = SmallCluster(one, replace(two, ready=False), again_after=1e9)

    def loses_its_other_pod() -> None:  # so that it had one ready pod, and has none, and one that starts
        cluster.there = [replace(pod, ready=False) for pod in cluster.there]

    cluster.on_sleep = loses_its_other_pod
    found = await carry(cluster, freed("a", "1"), timeout=100.0)
    assert found.surprise.startswith("a: pod d/1 was evicted, and its owner had no pod ready again in 100 s")


async def test_a_node_that_got_a_pod_since_is_not_even_cordoned() -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("new", "a"))
    marked = []
    mark = cluster.mark

    async def noted(name: str, text: str | None, *, cordoned: bool) -> None:
        marked.append((name, text))
        await mark(name, text, cordoned=cordoned)

    cluster.mark = noted  # type: ignore[method-assign]  # what is given back rests for an hour
    assert "pod d/new came" in (await carry(cluster, freed("a", "1"))).surprise
    assert marked == []


async def test_an_interrupt_undoes_the_cordon_and_keeps_what_was_freed() -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("2", "b"))

    def interrupt() -> None:
        if cluster.time > 4:
            raise asyncio.CancelledError

    cluster.on_sleep = interrupt
    with pytest.raises(asyncio.CancelledError):
        await carry(cluster, freed("a", "1"), freed("b", "2"))
    assert cluster.nodes["a"] == NodeNow(True, FREED)
    assert cluster.nodes["b"] == NodeNow(False, "")


async def test_each_step_is_reported() -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("2", "b"))
    await cluster.mark("left", DRAINING, cordoned=True)
    steps: list[str] = []
    carrier = Carrier(cluster, timeout_seconds=30, now=cluster.now, sleep=cluster.sleep, say=steps.append)
    await carrier.undo()
    cluster.there.pop()
    await carrier.carry_out((freed("a", "1"), freed("b", "2")), {"d/1": "u-1", "d/2": "u-2"})
    cluster.answers = [500]
    cluster.nodes["a"], cluster.there = NodeNow(False, ""), [pod_now("1", "a")]
    await carrier.carry_out((freed("a", "1"),), {"d/1": "u-1"})
    assert steps == [
        "left: uncordoned, an earlier run left it draining",
        "a: cordoned, 1 pod to move",
        "d/1: moved",
        "a: free",
        "b: cordoned, 1 pod to move",
        "d/2: went by itself",
        "b: free",
        "a: cordoned, 1 pod to move",
        "a: uncordoned again",
    ]


async def test_what_a_killed_run_left_draining_is_uncordoned_and_what_it_freed_is_not() -> None:
    cluster = SmallCluster()
    await cluster.mark("a", DRAINING, cordoned=True)
    await cluster.mark("b", FREED, cordoned=True)
    carrier = Carrier(cluster, timeout_seconds=1, now=cluster.now, sleep=cluster.sleep)
    assert await carrier.undo() == ["a"]
    assert cluster.nodes["a"] == NodeNow(False, "")
    assert cluster.nodes["b"] == NodeNow(True, FREED)


async def test_an_undo_that_is_refused_one_node_opens_the_others_and_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallCluster()
    for name in ("a", "b"):
        await cluster.mark(name, DRAINING, cordoned=True)
    mark = cluster.mark

    async def refusing(name: str, mark_: str | None, *, cordoned: bool) -> None:
        if name == "a":
            raise ClusterError("refused")
        await mark(name, mark_, cordoned=cordoned)

    monkeypatch.setattr(cluster, "mark", refusing)
    with pytest.raises(ClusterError, match="still cordoned: a: refused"):
        await Carrier(cluster, timeout_seconds=60.0, now=cluster.now, sleep=cluster.sleep).undo()
    assert cluster.nodes["b"] == NodeNow(False, "")


@pytest.mark.parametrize("killed_at", range(1, 12))
async def test_killed_at_any_call_the_next_run_finishes_and_evicts_nobody_twice(killed_at: int) -> None:
    cluster = SmallCluster(pod_now("1", "a"), pod_now("2", "a"), pod_now("3", "b"))
    calls = 0

    class KilledError(BaseException):
        pass

    class Dying:
        """Passes calls on until one kills the process: nothing runs after it, no clean-up either."""

        def __getattr__(self, name: str) -> Callable[..., object]:
            def call(*args: object, **kwargs: object) -> object:
                nonlocal calls
                calls += 1
                if calls >= killed_at:
                    raise KilledError
                return getattr(cluster, name)(*args, **kwargs)

            return call

    plan = (freed("a", "1", "2"), freed("b", "3"))
    uids = {"d/1": "u-1", "d/2": "u-2", "d/3": "u-3"}
    dying = Carrier(Dying(), timeout_seconds=30, now=cluster.now, sleep=cluster.sleep)
    with pytest.raises(KilledError):
        await dying.carry_out(plan, uids)
    await cluster.sleep(10)
    again = Carrier(cluster, timeout_seconds=30, now=cluster.now, sleep=cluster.sleep)
    await again.undo()
    left = tuple(
        replace(step, moves=tuple(move for move in step.moves if move.pod in {one.key for one in cluster.there}))
        for step in plan
        if cluster.nodes[step.node].mark != FREED
    )
    assert (await again.carry_out(left, uids)).surprise == ""
    assert await cluster.marked() == {"a": FREED, "b": FREED}
    assert len(cluster.evicted) == len(set(cluster.evicted)) == 3


async def test_two_nodes_that_are_drained_at_once_never_move_two_pods_of_one_owner_together() -> None:
    one, two = (replace(pod_now(name, node), owner="same") for name, node in (("1", "a"), ("2", "b")))
    cluster = SmallCluster(one, two)
    carrier = Carrier(cluster, timeout_seconds=30.0, now=cluster.now, sleep=cluster.sleep)
    on_its_way = []
    cluster.on_sleep = lambda: on_its_way.append(len(cluster.due))
    found = await asyncio.gather(
        carrier.carry_out((freed("a", "1"),), {"d/1": "u-1"}), carrier.carry_out((freed("b", "2"),), {"d/2": "u-2"})
    )
    assert [one.surprise for one in found] == ["", ""]
    assert max(on_its_way) == 1
    assert len(carrier._turns) == 0, "owners come and go for as long as an operator leads"


async def test_a_pod_that_nobody_owns_is_gone_when_it_is_gone() -> None:
    cluster = SmallCluster(replace(pod_now("1", "a"), owner=""), again_after=1e9)
    assert await carry(cluster, freed("a", "1")) == Carried(("a",), ("d/1",), "")


async def test_a_gang_that_lost_a_pod_since_the_plan_lets_none_go() -> None:
    cluster = of_a_gang("a", "b", minimum=1)
    cluster.there.pop()  # the plan counted two
    carried = await carry(cluster, freed("a", "1"), timeout=5.0)
    assert carried.surprise == ("a: gang d/train at its minimum (1 of 1 pods) refused the eviction of pod d/1 for 5 s")
    assert (cluster.evicted, cluster.nodes["a"].cordoned) == ([], False)


async def test_one_that_has_enough_again_in_time_lets_it_go() -> None:
    cluster = of_a_gang("a", "b", minimum=1)
    lost = cluster.there.pop()
    cluster.due.append((4.0, lost))
    assert (await carry(cluster, freed("a", "1"))).surprise == ""
    assert cluster.evicted == [("d/1", "u-1")]


async def test_pods_of_a_gang_with_a_spare_one_move_one_by_one() -> None:
    cluster = of_a_gang("a", "a", "b", minimum=2)
    standing = []
    cluster.on_sleep = lambda: standing.append(len(cluster.there))
    assert (await carry(cluster, freed("a", "1", "2"))).moved == ("d/1", "d/2")
    assert min(standing) == 2


async def test_two_nodes_that_are_drained_at_once_never_take_two_pods_of_one_gang_together() -> None:
    cluster = of_a_gang("a", "b", "c", minimum=2)
    carrier = Carrier(cluster, timeout_seconds=30.0, now=cluster.now, sleep=cluster.sleep)
    standing = []
    cluster.on_sleep = lambda: standing.append(len(cluster.there))
    found = await asyncio.gather(
        carrier.carry_out((freed("a", "1"),), {"d/1": "u-1"}), carrier.carry_out((freed("b", "2"),), {"d/2": "u-2"})
    )
    assert [one.surprise for one in found] == ["", ""]
    assert min(standing) == 2


async def test_a_gang_is_counted_again_after_a_budgets_refusal() -> None:
    cluster = of_a_gang("a", "b", minimum=1)
    cluster.answers = [429]
    cluster.on_sleep = lambda: cluster.there.__delitem__(slice(1, None))
    assert "gang d/train" in (await carry(cluster, freed("a", "1"), timeout=5.0)).surprise
    assert cluster.evicted == []
