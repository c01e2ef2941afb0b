"""How much cpu batch pods may use together, and each pod's share of it. Pure: time is an argument.

Called by `agent` once a tick. ``use`` is the use of services and the node itself, C the node's cpus, and s the share of
them that may be used at all::

    peak      <- max(use, use + (peak - use) 2^(-dt / half life))      up at once, down slowly
    allowance <- factor x max(s C - peak, min(published, s C - use))   room that was forecast is given back at once
    factor    <- factor / 2 while services wait for cpu, at most once in `CUT_SECONDS`
                 + recovery x dt, up to 1, once they have not for `calm_seconds`; between both thresholds it stays

So a rise of the services' use takes room away within one tick, and a fall gives it back by half each half life. The
idea of room that follows the measured use of services is Koordinator's (cpu suppress) and Crane's. The forecast room
and the factor are ours. Invariant: the allowance is never above the room that is left now, s C - use, except for the
floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

CUT_SECONDS: Final = 0.5
"""Between two cuts, so that one takes effect before the next is judged; chosen."""
CUT: Final = 0.5
"""Remaining share of the factor after a cut, as in TCP's congestion avoidance."""
LEAST_FACTOR: Final = 0.1
"""Least factor: below it only the floor is left anyway; chosen."""


@dataclass(frozen=True, slots=True)
class LawSettings:
    """What the law may do; shares are between 0 and 1, all defaults are chosen."""

    target_share: float = 0.95
    """Of the node's cpus that may be used by all pods together."""
    half_life_seconds: float = 5.0
    """Half of a reduction is given back in this time."""
    contended_share: float = 0.2
    """Share of their time that services wait for a cpu; from this share on batch is cut."""
    calm_share: float = 0.1
    """The same share, below which services count as undisturbed."""
    calm_seconds: float = 3.0
    """How long they must be undisturbed before a cut is undone."""
    recovery_per_second: float = 0.1
    """Of the whole allowance: given back each second then."""
    floor_cpus: float = 0.05
    """Batch's guaranteed amount together, so that it can give locks back."""


class LawState(NamedTuple):
    """What the law remembers from tick to tick."""

    peak_cpus: float = 0.0
    factor: float = 1.0
    calm_since: float = 0.0
    """Time at which services last began to be undisturbed, in the caller's seconds."""
    cut_at: float = float("-inf")
    at: float | None = None
    """Time of the last call; None before that."""


class Observation(NamedTuple):
    """What was measured since the last tick."""

    capacity_cpus: float
    used_cpus: float
    """By services and by the node itself: by everything except batch and gratis pods."""
    published_cpus: float = 0.0
    """Room that the operator forecast and published; 0 if it published none, or if the value is old."""
    waiting_share: float | None = None
    """Share of their time that services waited for a cpu; None if unknown."""


def next_allowance(settings: LawSettings, state: LawState, seen: Observation, now: float) -> tuple[LawState, float]:
    """Return the law's new state and what batch may use together, in cpus."""
    passed = max(0.0, now - state.at) if state.at is not None else 0.0
    faded = seen.used_cpus + (state.peak_cpus - seen.used_cpus) * 0.5 ** (passed / settings.half_life_seconds)
    peak = max(seen.used_cpus, faded) if state.at is not None else seen.used_cpus
    factor, calm_since, cut_at = state.factor, state.calm_since, state.cut_at
    waiting = seen.waiting_share or 0.0
    if state.at is None or waiting >= settings.calm_share:
        calm_since = now
    if waiting >= settings.contended_share and now - cut_at >= CUT_SECONDS:
        factor, cut_at = max(LEAST_FACTOR, factor * CUT), now
    elif now - calm_since >= settings.calm_seconds:
        factor = min(1.0, factor + settings.recovery_per_second * passed)
    target = settings.target_share * seen.capacity_cpus
    room = max(target - peak, min(seen.published_cpus, target - seen.used_cpus))
    return LawState(peak, factor, calm_since, cut_at, now), max(settings.floor_cpus, factor * room)


class Claim(NamedTuple):
    """The possible grant of one pod."""

    floor_cpus: float
    """Its guaranteed amount: its cpu request, or next to nothing."""
    needs_cpus: float
    """Its expected use; infinite for a pod that takes all it gets."""
    weight: float
    """Its part of the rest beyond the floors, above 0."""


def divide(allowance_cpus: float, claims: Sequence[Claim]) -> list[float]:
    """Share the allowance out: floors first, the rest by weight to pods that need more, then to all.

    Max-min fair by weight: take a pod that needs more. For its weight, it has at least as much beyond its floor as any
    other pod that got more than its floor. The sum is the allowance, or that of the floors where it is larger. Each
    round satisfies at least one pod: n rounds at most.
    """
    given = [claim.floor_cpus for claim in claims]
    left = allowance_cpus - sum(given)
    hungry = [number for number, claim in enumerate(claims) if claim.needs_cpus > claim.floor_cpus]
    while left > 0 and hungry:
        weight = sum(claims[number].weight for number in hungry)
        level = left / weight
        sated = [
            number for number in hungry if claims[number].needs_cpus - given[number] <= claims[number].weight * level
        ]
        for number in sated or hungry:
            more = claims[number].needs_cpus - given[number] if sated else claims[number].weight * level
            given[number] += more
            left -= more
        hungry = [number for number in hungry if number not in sated] if sated else []
    if left > 0 and claims:
        weight = sum(claim.weight for claim in claims)
        given = [amount + left * claim.weight / weight for amount, claim in zip(given, claims, strict=True)]
    return given
