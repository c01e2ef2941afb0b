"""Fifo and random with QPSM's check of the online services' limits, so that only the order differs (Ou 2024, Table 4).

fifo-guarded chooses nodes as QPSM does. random-guarded draws its nodes and takes the first that passes the check.
"""

from __future__ import annotations

from dataclasses import replace

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.policies.qpsm import qpsm
from cotide_core.policies.random_order import random_order
from cotide_core.qos.qos_guard import QosGuard
from cotide_core.queueing.ordering import ArrivalOrder


def fifo_guarded(config: SchedulerConfig) -> Policy:
    """QPSM in the order of arrival."""
    return replace(qpsm(config), name="fifo-guarded", order=ArrivalOrder())


def random_guarded(config: SchedulerConfig) -> Policy:
    """The random strategy, guarded."""
    return replace(random_order(config), name="random-guarded", guard=QosGuard(config.qos_risk_threshold))
