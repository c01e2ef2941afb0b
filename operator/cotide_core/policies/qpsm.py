"""QPSM: shortest predicted job first, where the latency limits are predicted to hold (Ou 2024, section 4).

Batch and gratis pods go to a node without an online service while one has room. The paper needs no forecast there.
Otherwise the QoS model rates the best-ranked nodes with a service, and the pod goes to the least risky of the admitted
ones. Forecasts are monotone: every further job only raises a node's risk. Spreading over low risks therefore keeps room
for more jobs.

Online pods go to idle nodes. Nodes without a service come first (required if the Workload is exclusive, see
`feasibility`), then the one with the least batch work. The paper draws among idle servers at random; the least loaded
is equally good or better. Among equal risks the least pressure wins. The predicted slowdown, and so the completion
time, rises with the pressure.
"""

from __future__ import annotations

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.scoring import LeastAllocated, LowPressure, LowRate, Weighted, WithoutService
from cotide_core.qos.qos_guard import QosGuard
from cotide_core.queueing.ordering import PredictedShortestFirst

IDLE_WEIGHT = 8.0
"""More than all other terms together. A node without a service always comes before one with a service (section 4.3)."""
RATE_WEIGHT = 3.0
PRESSURE_WEIGHT = 2.0
FREE_WEIGHT = 0.5
"""Chosen: rate before pressure, as the measured risk depends mostly on the rate. The free share breaks ties."""


def qpsm(config: SchedulerConfig) -> Policy:
    """Compose the order by predicted completion, the rank above and the guard."""
    rank = Weighted(
        (
            (WithoutService(), IDLE_WEIGHT),
            (LowRate(), RATE_WEIGHT),
            (LowPressure(), PRESSURE_WEIGHT),
            (LeastAllocated(), FREE_WEIGHT),
        )
    )
    order = PredictedShortestFirst(config.age_back_seconds, config.overtaking_seconds)
    return Policy("qpsm", order, rank, QosGuard(config.qos_risk_threshold), lowest_risk=True)
