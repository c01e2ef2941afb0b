"""`plan_of`: a plan for the cluster as the operator sees it, and its predictions.

`controller` calls it in a thread of its own: it reads copies only. Host loads and request rates come from the
operator's engine. The picture next to them keeps the constraints of running pods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from cotide_core.consolidation.removal.columns import Outlook, RemovalColumns, columns_of
from cotide_core.consolidation.removal.drain_plan import DrainPlan, drain_plan
from cotide_core.consolidation.removal.not_freed import in_pools
from cotide_core.consolidation.removal.outlook import STALE_SECONDS, ServiceGuard
from cotide_core.consolidation.removal.stays import Stay
from cotide_core.events import Node, Pod, ServiceSampled
from cotide_core.forecasts import QosForecaster
from cotide_core.kernels.array_types import Floats
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.consolidation_settings import ConsolidationSettings
from cotide_operator.consolidation.picture import picture_of
from cotide_operator.consolidation.predictions import Refusal

MAX_REFUSALS = 50
"""Refused targets that one plan returns; chosen: a sample of them is enough for a score."""


@dataclass(frozen=True)
class EngineView:
    """The engine's knowledge that the API does not have; copied in the loop's thread.

    Attributes
    ----------
    room : by node, cpu and memory that its forecast leaves free; only for trusted forecasts.
    rates : requests per second of online pods, by key.
    forecaster : of latency limits. threshold : highest accepted probability.
    """

    room: Mapping[str, tuple[float, float]]
    rates: Mapping[str, float]
    forecaster: QosForecaster
    threshold: float


@dataclass(frozen=True)
class LivePlan:
    """A plan with its supplements.

    Attributes
    ----------
    uids : of all pods, by key. goes : pods that need no node. ending : uid, p50 and p90 of pods left because they end.
    refused : targets that only their forecast ruled out. warnings : what could not be read.
    """

    plan: DrainPlan
    uids: Mapping[str, str]
    goes: frozenset[str]
    ending: Mapping[str, tuple[str, float, float]]
    refused: tuple[Refusal, ...]
    warnings: tuple[str, ...]


def engine_view_of(state: ClusterState, forecaster: QosForecaster, threshold: float, now: float) -> EngineView:
    """Copy the engine's knowledge; fast, for the loop's own thread."""
    peaks, believed = state.host_load.online_peak(now, STALE_SECONDS)
    left = state.host_load.physical() - peaks - state.host_load.batch_load(now)
    columns = state.columns
    names = {row: node.name for row, node in enumerate(columns.nodes) if node is not None}
    room = {
        names[row]: (float(left[0, row]), float(left[1, row]))
        for row in np.flatnonzero(believed).tolist()
        if row in names
    }
    rows = np.flatnonzero(columns.service_counts > 0).tolist()
    rates = {
        record.pod.key: record.requests_per_second
        for row in rows
        for record in state.records_on(row)
        if record.requests_per_second is not None
    }
    return EngineView(room, rates, forecaster, threshold)


def plan_of(
    cache: ObjectCache,
    known: Mapping[str, Pod],
    engine_view: EngineView,
    settings: ConsolidationSettings,
    now: float,
    draining: Collection[str] = (),
) -> LivePlan:
    """Return the plan.

    Parameters
    ----------
    cache : a constant copy. known : pods in the engine's state. now : on the operator's clock.
    draining : nodes that are being drained; room is kept for the pods that are still on them.
    """
    picture = picture_of(cache, now, known)
    state, rules = picture.state, settings.moves()
    for key, rate in engine_view.rates.items():
        state.apply(ServiceSampled(key, rate))
    guard = ServiceGuard(engine_view.threshold, engine_view.forecaster) if state.columns.service_counts.any() else None
    nodes = state.columns.nodes
    pools = settings.excluded_nodes
    kept = picture.kept_nodes
    excluded = np.array(
        [node is None or node.unschedulable or node.name in kept or in_pools(node, pools) for node in nodes], np.bool_
    )
    columns = columns_of(state, picture.constraints(rules), now, Outlook(_room(engine_view, nodes), guard))
    excluded = excluded[: columns.nodes]
    drained = np.isin(np.array(columns.names), list(draining))
    plan = drain_plan(columns, rules, excluded, drained)
    refused: tuple[Refusal, ...] = ()
    if engine_view.room:
        free = columns_of(state, picture.constraints(rules), now, Outlook(None, guard))
        refused = _refused(columns, drain_plan(free, rules, excluded, drained))
    uids = {record.pod.key: record.pod.uid for record in state.records()}
    going = {record.pod.key for record in state.records() if record.pod.terminating}
    goes = frozenset(going | {key for key, facts in picture.facts.items() if facts.goes_with_node})
    ending = {
        columns.keys[pod]: (uids[columns.keys[pod]], float(columns.p50[pod]), float(columns.p90[pod]))
        for pod in np.flatnonzero(columns.stays == Stay.ENDS_SOON)
    }
    return LivePlan(plan, uids, goes, ending, refused, picture.warnings)


def _room(engine_view: EngineView, nodes: list[Node | None]) -> Floats | None:
    if not engine_view.room:
        return None
    room = np.full((2, len(nodes)), np.inf)
    for row, node in enumerate(nodes):
        if node is not None and node.name in engine_view.room:
            room[:, row] = engine_view.room[node.name]
    return room


def _refused(columns: RemovalColumns, plan: DrainPlan) -> tuple[Refusal, ...]:
    """Return the targets of a plan without forecasts that have no room for the pod by their forecast."""
    rows = {name: row for row, name in enumerate(columns.names) if name}
    pods = {key: pod for pod, key in enumerate(columns.keys)}
    forecast = len(columns.resources) + 2
    found = []
    for move in (move for step in plan.freed for move in step.moves):
        row, shape = rows[move.target], columns.shape_of[pods[move.pod]]
        added = columns.takes[shape, forecast], columns.takes[shape, forecast + 1]
        if any(more > columns.free[row, forecast + at] for at, more in enumerate(added)):
            capacity = columns.capacity[row, CPU_COLUMN], columns.capacity[row, MEMORY_COLUMN]
            found.append(
                Refusal(
                    move.target,
                    move.pod,
                    (float(capacity[0]), float(capacity[1])),
                    (float(added[0]), float(added[1])),
                )
            )
    return tuple(found[:MAX_REFUSALS])
