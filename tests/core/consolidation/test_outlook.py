"""What forecasts say about the nodes that might take moved pods."""

from __future__ import annotations

import numpy as np
from engine_objects import running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.consolidation.removal.columns import columns_of
from cotide_core.consolidation.removal.outlook import outlook_of
from cotide_core.consolidation.removal.stays import Constraints
from cotide_core.consolidation.removal.what_if import without
from cotide_core.events import (
    Node,
    NodeForecasted,
    NodeUpserted,
    NodeUsageSampled,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.state.cluster_state import ClusterState

NOW = 10_000.0


def cluster() -> ClusterState:
    """Batch pods on a, b and c: b is the fuller and would take what a has."""
    state = ClusterState()
    for name in ("a", "b", "c"):
        state.apply(NodeUpserted(Node(name, (("cpu", 1000), ("memory", 1000), ("pods", 9)))))
    for name, cpu in (("a", 200), ("b", 500), ("c", 300)):
        state.apply(PodUpserted(running_pod(f"batch-{name}", name, cpu)))
    return state


def target(state: ClusterState) -> list[str]:
    columns = columns_of(state, Constraints(), NOW, outlook_of(state, NOW, 0.1))
    return [move.target for move in without(columns, columns.rows(["a"])).moves]


def test_without_measurements_and_promises_requests_decide() -> None:
    state = cluster()
    outlook = outlook_of(state, NOW, 0.1)
    assert outlook.room is None
    assert outlook.guard is None
    assert target(state) == ["b"]


def test_a_node_takes_no_more_than_its_forecast_leaves_free() -> None:
    state = cluster()
    # On b online pods will use 400 beside the 500 of batch: 100 is left, 200 is asked for.
    state.apply(NodeUsageSampled("b", NOW, 350.0, 10.0))
    state.apply(NodeForecasted("b", NOW + 300, 400.0, 10.0, 500.0, 10.0))
    room = outlook_of(state, NOW, 0.1).room
    assert room is not None
    assert room[0].tolist() == [np.inf, 100.0, np.inf]
    assert target(state) == ["c"]


def test_a_forecast_that_is_over_says_nothing() -> None:
    state = cluster()
    state.apply(NodeUsageSampled("b", NOW, 350.0, 10.0))
    state.apply(NodeForecasted("b", NOW - 1, 400.0, 10.0, 500.0, 10.0))
    assert target(state) == ["b"]


def test_a_service_whose_limit_would_break_keeps_batch_pods_off_its_node() -> None:
    state = cluster()
    state.apply(WorkloadUpserted(Workload("d/web", latency_p95_milliseconds=10.0)))
    service = running_pod("web", "b", 100)._replace(workload_class=WorkloadClass.ONLINE, workload="d/web")
    state.apply(PodUpserted(service))
    state.apply(ServiceSampled("d/web", 100_000.0))
    # Pressure .7 of cpu by jobs at twice the busy rate: (.7 + .1) x 3 is far above the load of an even chance, .6.
    assert target(state) == ["c"]
