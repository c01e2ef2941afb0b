"""How a policy plans batch and gratis pods over time; read by `planning`."""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.orders import Order


@dataclass(frozen=True, slots=True)
class PlanRule:
    """What tells one planning policy from another, beside its order.

    Attributes
    ----------
    reservations : how many waiting pods get one, the first of the order; None for all within `planning.DEPTH`.
    kept : whether a reservation is a promise: once given it only moves forward, as long as it can be kept at all.
    backfill : order in which pods behind the reservations are tried; None for the policy's own.
    """

    reservations: int | None = None
    kept: bool = False
    backfill: Order | None = None
