"""How a policy plans batch and gratis pods over time; read by `planning`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cotide_core.queueing.ordering import Order


class Machines(StrEnum):
    """Choice of the node that a pod is planned on (Naghshnejad 2019, section 3.2.2)."""

    EARLIEST = "ef"
    """The node with the earliest start; searched again in each plan."""
    LEAST_WORK = "lw"
    """The node with the least assigned work, chosen once (see `plan_given`)."""
    RANDOM = "random"
    """Drawn once."""


class Sharing(StrEnum):
    """The pods that may use each part of the cluster."""

    ALL = "all"
    HIGH_DEMAND = "high-demand"
    """Pods of more than half a machine have nodes of their own (Naghshnejad 2019, section 3.3.3; see `plan_parts`)."""
    RELIABLE = "reliable"
    """Pods of predictable run time hold at most a share of the capacity (section 4.4; see `plan_platform`)."""


@dataclass(frozen=True, slots=True)
class PlanRule:
    """The parameters of a planning policy, next to its order.

    Attributes
    ----------
    reservations : how many waiting pods get one, the first of the order; None for all planned pods.
    kept : whether a reservation is a promise: once given it only moves forward, as long as it can be kept at all.
    backfill : order of the pods behind the reservations; None for the policy's own.
    machines : how a node is chosen.
    sharing : which pods may use which nodes, or how much of them.
    slack : whether a promise lies some slack behind its reservation (see `plan_slack`); kept reservations then may move
        back as far as that.
    behind : the message for a pod that is planned without a reservation.
    """

    reservations: int | None = None
    kept: bool = False
    backfill: Order | None = None
    machines: Machines = Machines.EARLIEST
    sharing: Sharing = Sharing.ALL
    slack: bool = False
    behind: str = "is planned behind pods of smaller volume"
