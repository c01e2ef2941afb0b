"""`planned`: one plan of capacity for the cluster as the operator sees it.

Called by `controller`, in a thread of its own: it reads copies only. Invariant: it raises `InputError` with one
sentence when no plan is possible, and the caller keeps its last plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotide_core.events import Pod
from cotide_core.provisioning.node_orders import NodeView
from cotide_core.provisioning.overprovisioning import LearnedFactor
from cotide_core.provisioning.stabilization import Stabilization
from cotide_core.state.cluster_state import ClusterState
from cotide_core.units import RECLAIMED_CPU, RECLAIMED_MEMORY
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.provisioning.advice import Advice, Underway, advise, machine_types
from cotide_operator.provisioning.live_view import LiveView, live_view
from cotide_operator.provisioning.task_history import KnownTasks

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Input of a plan, copied in the loop's thread.

    Attributes
    ----------
    nodes : the nodes that count; ``unknown`` are names of nodes without a known type.
    slack : reclaimed millicores and bytes that are free on each open node.
    quiet_seconds : seconds since the last machine came; 0 while one is on its way.
    price : (W,) money for a kWh at each step of the horizon.
    young : nodes that may still be booting.
    """

    cache: ObjectCache
    pods: Mapping[str, Pod]
    nodes: Sequence[NodeView]
    unknown: Sequence[str]
    slack: Sequence[tuple[int, int]]
    tasks: KnownTasks
    underway: Underway
    factor: LearnedFactor
    quiet_seconds: float
    price: Floats
    now: float
    stabilization: Stabilization
    young: Set[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan and its view; for the next plan the factor of over-provisioning and the wanted nodes.

    ``least``: (M,) nodes of the plan without those that the window of stabilization keeps.
    """

    advice: Advice
    least: Floats
    seen: LiveView
    factor: LearnedFactor
    stabilization: Stabilization

    @property
    def nodes(self) -> dict[str, int]:
        """Return the nodes wanted, by type."""
        return {kind: int(count) for kind, count in zip(self.advice.kinds, self.advice.plan.machines[0], strict=True)}


def planned(settings: ProvisioningSettings, seen: Seen) -> Planned:
    """Return the plan.

    Raises
    ------
    InputError
        When there is no demand to plan for, or the solver did not end in time.
    """
    found = live_view(seen.cache, seen.pods, seen.nodes, seen.unknown, seen.slack, settings, seen.now, young=seen.young)
    advice = advise(
        settings,
        found.view,
        seen.tasks.read(seen.now, settings.run_seconds),
        seen.underway,
        overprovisioning=float(seen.factor.factor[0]),
        time_limit_seconds=settings.plan_timeout_seconds,
        price=seen.price,
    )
    coming = np.array([float(len(seen.underway.coming.get(kind, ()))) for kind in advice.kinds])
    least = advice.plan.machines[0]
    stabilization, kept = seen.stabilization.after(seen.now, least, advice.on + coming)
    return Planned(advice.keeping(kept), least, found, _learned(settings, seen, found), stabilization)


def _learned(settings: ProvisioningSettings, seen: Seen, found: LiveView) -> LearnedFactor:
    """Return the factor after this look: raised when a pod waits for longer than a boot although parts of nodes are
    free.

    It stays while machines come: a pod that waits for them does not wait because of losses in packing.
    """
    machines = {kind.name: kind.capacity for kind in machine_types(settings)}
    there = np.sum([machines[node.kind] for node in seen.nodes], axis=0) if seen.nodes else np.zeros(2)
    runs = found.view.need[~found.view.waiting].sum(axis=0)
    filled = float(np.max(np.divide(runs, there, out=np.ones(2), where=there > 0)))
    patience = max(settings.step_seconds, *(kind.boot_seconds for kind in settings.machine_types))
    waited = min(found.longest_wait_seconds, seen.quiet_seconds) > patience and bool(there.any())
    return seen.factor.after(np.array([waited]), np.array([filled]))


def slack_of(state: ClusterState, names: Sequence[str]) -> list[tuple[int, int]]:
    """Return the reclaimed millicores and bytes that are free on each open node; fast enough for the loop's thread."""
    columns = state.columns
    if RECLAIMED_CPU not in columns.resources or RECLAIMED_MEMORY not in columns.resources:
        return []
    rows = [columns.row_of[name] for name in names if name in columns.row_of]
    return [(columns.free_of(RECLAIMED_CPU, row), columns.free_of(RECLAIMED_MEMORY, row)) for row in rows]
