"""How a policy plans batch and gratis pods over time; read by `planning`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cotide_core.queueing.ordering import Order


class Machines(StrEnum):
    """Which node a pod is planned on (Naghshnejad 2019, section 3.2.2)."""

    EARLIEST = "ef"
    """The one on which it can start first; looked for anew in each plan."""
    LEAST_WORK = "lw"
    """The one that was given the least work, chosen once (see `plan_given`)."""
    RANDOM = "random"
    """Drawn once."""


class Sharing(StrEnum):
    """Who may use which part of the cluster."""

    ALL = "all"
    HIGH_DEMAND = "high-demand"
    """Pods of more than half a machine have nodes of their own (Naghshnejad 2019, section 3.3.3; see `plan_parts`)."""
    RELIABLE = "reliable"
    """Pods whose run time can be relied on hold at most a share of the capacity (section 4.4; see `plan_platform`)."""


@dataclass(frozen=True, slots=True)
class PlanRule:
    """What tells one planning policy from another, beside its order.

    Attributes
    ----------
    reservations : how many waiting pods get one, the first of the order; None for all that are planned.
    kept : whether a reservation is a promise: once given it only moves forward, as long as it can be kept at all.
    backfill : order in which pods behind the reservations are tried; None for the policy's own.
    machines : how a node is chosen.
    sharing : who may use which nodes, or how much of them.
    slack : whether a promise lies some slack behind its reservation (see `plan_slack`); kept reservations then may move
        back as far as that.
    behind : what is told to a pod that is planned without a reservation.
    """

    reservations: int | None = None
    kept: bool = False
    backfill: Order | None = None
    machines: Machines = Machines.EARLIEST
    sharing: Sharing = Sharing.ALL
    slack: bool = False
    behind: str = "is planned behind pods of smaller volume"
