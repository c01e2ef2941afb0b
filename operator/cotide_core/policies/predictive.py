"""All three predictions at once: forecast slack, the latency guard and the predicted order, under the monitor.

Batch and gratis pods come shortest predicted job first by priority (Ou 2024, section 4.2). They use the room that the
predicted peak of the online pods leaves (Jiang et al., Algorithm 1). The peak reaches to their own p90 end, if
forecasts reach so far. They go where the latency limits are predicted to hold: among the nodes with enough slack QPSM's
rank and its least risk decide. Batch may evict gratis, but not on a node that the guard refuses. Overloaded nodes are
relieved, and so are nodes with a service measured over its limit. Online pods go where QPSM puts them.
"""

from __future__ import annotations

from dataclasses import replace

from cotide_core.config import SchedulerConfig
from cotide_core.placement.capacity import Capacity
from cotide_core.placement.placer import Policy
from cotide_core.policies.qpsm import qpsm


def predictive(config: SchedulerConfig) -> Policy:
    """QPSM by forecast slack, with the monitor of loads and latencies."""
    return replace(
        qpsm(config),
        name="predictive",
        capacity=Capacity.SLACK,
        ranks_slack=True,
        monitor=True,
        relieves_latency=True,
        follows_run_time=True,
    )
