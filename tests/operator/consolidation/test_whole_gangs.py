"""A gang that leaves its node as a whole: all of it or nobody, and what stands in its way is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_cluster import SmallCluster, carry, freed, of_a_gang, pod_now

from cotide_core.consolidation.removal.drain_plan import Freed
from cotide_operator.consolidation.carrier import FREED, Carried, NodeNow

GANG = ("d/1", "d/2", "d/3")
BUDGET = "disruption budget d/b allows no further eviction now"


def whole(*more: str) -> Freed:
    """Node a, which a gang of three leaves as a whole, and other pods one by one."""
    return replace(freed("a", *more, "1", "2", "3"), together=(GANG,))


@pytest.fixture
def cluster() -> SmallCluster:
    return of_a_gang("a", "a", "a", minimum=3)


async def test_all_of_it_is_evicted_at_once_and_others_of_its_node_one_by_one(cluster: SmallCluster) -> None:
    cluster.there.append(pod_now("other", "a"))
    on_their_way = []
    cluster.on_sleep = lambda: on_their_way.append(len(cluster.due))
    assert await carry(cluster, whole("other")) == Carried(("a",), ("d/other", *GANG), "")
    assert [one for one, _ in cluster.evicted] == ["d/other", *GANG]
    assert set(on_their_way) <= {0, 1, 3}
    assert cluster.nodes["a"] == NodeNow(True, FREED)


async def test_nobody_is_evicted_while_a_budget_would_keep_one_of_it(cluster: SmallCluster) -> None:
    cluster.kept_back = [BUDGET] * 3
    seen = []
    cluster.on_sleep = lambda: seen.append((len(cluster.kept_back), len(cluster.evicted)))
    assert (await carry(cluster, whole())).surprise == ""
    assert seen[:2] == [(2, 0), (1, 0)]
    cluster = of_a_gang("a", "a", "a", minimum=3)
    cluster.kept_back = [BUDGET] * 99
    assert (await carry(cluster, whole(), timeout=5.0)).surprise == f"a: {BUDGET}, for 5 s"
    assert (cluster.evicted, cluster.nodes["a"]) == ([], NodeNow(False, ""))


async def test_one_that_stands_elsewhere_as_well_by_now_is_left_alone(cluster: SmallCluster) -> None:
    elsewhere = pod_now("4", "b")
    cluster.there.append(elsewhere)
    cluster.members.add(elsewhere.key)
    found = await carry(cluster, whole())
    assert found.surprise == "a: gang d/train is no longer complete on the node"
    assert (cluster.evicted, cluster.nodes["a"]) == ([], NodeNow(False, ""))


async def test_one_that_is_no_gang_any_more_is_left_alone(cluster: SmallCluster) -> None:
    cluster.members.clear()
    found = await carry(cluster, whole())
    assert found.surprise == "a: the gang of pod d/1 is no longer complete on the node"
    assert cluster.evicted == []


async def test_a_pod_that_was_replaced_since_is_a_surprise_before_anybody_is_evicted(cluster: SmallCluster) -> None:
    cluster.there[2] = replace(cluster.there[2], uid="another")
    assert (await carry(cluster, whole())).surprise == "a: pod d/3 was replaced since the plan was made"
    assert cluster.evicted == []


async def test_one_that_went_by_itself_needs_no_move(cluster: SmallCluster) -> None:
    cluster.there.clear()
    assert await carry(cluster, whole()) == Carried(("a",), (), "")


async def test_a_budget_that_refuses_half_way_is_asked_until_the_time_is_over(cluster: SmallCluster) -> None:
    cluster.answers = [201, 429, 429, 201, 201]
    assert (await carry(cluster, whole())).surprise == ""
    cluster = of_a_gang("a", "a", "a", minimum=3)
    cluster.answers = [201] + [429] * 99
    found = await carry(cluster, whole(), timeout=5.0)
    assert found.surprise == "a: a disruption budget refused the eviction of pod d/2, after 1 of 3 pods of its gang"
    assert cluster.nodes["a"] == NodeNow(False, ""), "open again: the one that left may come back to the others"


async def test_one_whose_pods_do_not_come_back_in_time_is_a_surprise(cluster: SmallCluster) -> None:
    cluster.again_after = 1e9
    found = await carry(cluster, whole(), timeout=5.0)
    assert found.surprise == "a: pod d/1 was evicted, and its owner had no pod ready again in 5 s"


async def test_pods_of_one_owner_are_waited_for_together(cluster: SmallCluster) -> None:
    cluster.there = [replace(one, owner="job") for one in cluster.there]
    ready = []
    cluster.on_sleep = lambda: ready.append(sum(one.ready for one in cluster.there))
    assert (await carry(cluster, whole())).surprise == ""
    assert sum(one.node == "target" for one in cluster.there) == 3
