"""`outlook_of`: the engine's own forecasts about nodes that might take moved pods.

Called by `cotide consolidate`. Host load: a node with a current forecast and fresh measurements takes no more than the
forecast leaves free; elsewhere requests decide. Latency limits: the engine's guard judges each kind of pod on each node
with a service, at the measured request rates.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.consolidation.removal.columns import Outlook
from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_core.forecasts import QosForecaster
from cotide_core.kernels.array_types import Booleans
from cotide_core.qos.qos_guard import QosGuard
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot

STALE_SECONDS: Final = 600.0
"""Age beyond which a measurement is ignored (chosen: two slots of five minutes)."""


class ServiceGuard:
    """Refuses nodes where the engine's guard sees a latency limit at risk.

    Parameters
    ----------
    threshold : highest probability that is accepted.
    forecaster : asked for it.
    """

    def __init__(self, threshold: float, forecaster: QosForecaster) -> None:
        self._guard = QosGuard(threshold)
        self._forecaster = forecaster

    def refused(self, shape: Shape, rows: NDArray[np.intp], snapshot: Snapshot) -> Booleans:
        """Return whether each row is refused for one pod of a shape; its own node is judged like any other."""
        found = np.zeros(len(rows), np.bool_)
        about = np.flatnonzero(self._guard.concerned(snapshot, shape, rows))
        if len(about):
            risks = self._guard.ask(snapshot, [(shape, int(rows[at])) for at in about], self._forecaster)
            found[about] = np.array(risks) > self._guard.threshold
        return found


def outlook_of(state: ClusterState, now: float, threshold: float, forecaster: QosForecaster | None = None) -> Outlook:
    """Return the outlook of a state; parts without a measurement or a promise stay empty."""
    peaks, believed = state.host_load.online_peak(now, STALE_SECONDS)
    room = None
    if believed.any():
        left = state.host_load.physical() - peaks - state.host_load.batch_load(now)
        room = np.where(believed, left, np.inf)
    services = bool(state.columns.service_counts.any())
    guard = ServiceGuard(threshold, forecaster or HeuristicQos()) if services else None
    return Outlook(room, guard)
