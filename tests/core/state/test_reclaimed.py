"""Who holds what of a node, and what of an offer is left to publish."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.events import Node, NodeUpserted, Pod, PodUpserted
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.reclaimed import Holdings, beside_requests, holdings, publishable

ONLINE, BATCH, GRATIS = WorkloadClass.ONLINE, WorkloadClass.BATCH, WorkloadClass.GRATIS


def having(*pods: tuple[WorkloadClass, dict[str, int]], allocatable: dict[str, int]) -> ClusterState:
    state = ClusterState()
    state.apply(NodeUpserted(Node("n", tuple(sorted(allocatable.items())))))
    for number, (cls, requests) in enumerate(pods):
        asked = tuple(sorted(requests.items()))
        state.apply(PodUpserted(Pod(f"d/{number}", f"u{number}", cls, asked, 0.0, node="n")))
    return state


def test_plain_and_reclaimed_requests_are_told_apart_by_class() -> None:
    state = having(
        (ONLINE, {"cpu": 1000, "memory": 10}),
        (ONLINE, {"cotide.dev/reclaimed-cpu": 7}),
        (BATCH, {"cpu": 200, "memory": 20}),
        (BATCH, {"cotide.dev/reclaimed-cpu": 300, "cotide.dev/reclaimed-memory": 30}),
        (GRATIS, {"cotide.dev/reclaimed-cpu": 40, "cpu": 1}),
        allocatable={"cpu": 8000, "memory": 900},
    )
    found = holdings(state, "n")
    assert found == Holdings(physical=(8000, 900), online=(1007, 10), plain_batch=(201, 20), reclaimed=(347, 30))
    assert beside_requests(found) == (6993, 890)
    assert publishable((5000, 15), found) == (4799, 0)


def test_a_node_that_is_unknown_or_of_unknown_size_has_no_holdings() -> None:
    assert holdings(having(allocatable={"cpu": 8000, "memory": 900}), "other") is None
    for allocatable in ({}, {"cpu": 8000}, {"memory": 900}, {"cpu": 0, "memory": 900}):
        assert holdings(having(allocatable=allocatable), "n") is None


amounts = st.tuples(st.integers(0, 10**6), st.integers(0, 10**15))
offers = st.tuples(st.integers(-(10**9), 10**9), st.integers(-(10**18), 10**18))


@given(held=st.builds(Holdings, amounts, amounts, amounts, amounts), offered=offers)
def test_nothing_negative_and_nothing_above_the_physical_amount_is_published(
    held: Holdings, offered: tuple[int, int]
) -> None:
    for published in (publishable(offered, held), beside_requests(held)):
        for amount, there in zip(published, held.physical, strict=True):
            assert 0 <= amount <= there
