"""Which phase a running pod of a live Job is in, where its work does not report it.

Called by the operator's resizer. Pure. Work that reports its phase is believed, and this module is not used. Other work
goes through its phases in order, one at a time, and leaves a phase only once that phase has its size::

    measured usage distinguishes the two phases   -> next, after `READINGS_TO_MOVE` readings on its side of the middle
    it cannot, or nothing is measured             -> next, when the stated seconds are over
    neither                                       -> the phase lasts until the pod ends

Some work shows by its readiness that it wants the next phase, but not which one. Its probe compares the phase that it
wrote into a file with the granted one. It was ready since the grant and is no longer ready -> next.

A wrong step costs speed and never the pod: requests follow phases, and limits stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

READINGS_TO_MOVE: Final = 3
"""Consecutive readings. Chosen: a pause for a file or a lock is no new phase."""
SETTLED_SECONDS: Final = 60.0
"""Before a reading belongs to one phase alone. Chosen: a usual Prometheus rate is the mean of a minute."""
APART_SHARE: Final = 0.25
"""Least difference of two needs, as a share of the larger, at which usage distinguishes them. Chosen: above the noise
of a minute.
"""
CLOCKS_APART_SECONDS: Final = 5.0
"""Largest lead of a node's clock over ours. Chosen: well above what time servers leave."""
UNSEEN_SECONDS: Final = 30.0
"""After which work that runs and was never seen ready in its phase counts as finished with it. Chosen: three probes at
Kubernetes' own period of 10 s, each able to see it ready.
"""


@dataclass(frozen=True, slots=True)
class StatedPhase:
    """A phase as a Job states it.

    Attributes
    ----------
    millicores, memory_bytes : its need; 0 bytes if none is stated.
    seconds : expected duration with that need; None if unknown.
    """

    name: str
    millicores: int
    memory_bytes: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """The measured usage of a pod; nan for a missing measurement.

    Attributes
    ----------
    at_seconds : time of the measurement.
    """

    millicores: float
    memory_bytes: float
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a pod is ready, since when, and since when its container runs, by its node's clock (seconds)."""

    is_ready: bool
    since_seconds: float
    started_seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """Position of a pod; seconds of one clock.

    Attributes
    ----------
    position : of its phase among the stated ones, from 0.
    since_seconds : when it entered it.
    granted_seconds : when it had its size; None while it waits.
    ahead : consecutive readings that look like the next phase.
    read_seconds : time of the last counted reading.
    was_ready : whether it was seen ready since it had its size.
    """

    position: int
    since_seconds: float
    granted_seconds: float | None = None
    ahead: int = 0
    read_seconds: float = 0.0
    was_ready: bool = False

    def entered(self, position: int, now_seconds: float) -> Progress:
        """Return the position of a pod that has just entered a phase."""
        return Progress(position, now_seconds)


def advanced(progress: Progress, phases: Sequence[StatedPhase], now_seconds: float, usage: Usage | None) -> Progress:
    """Return the present position of a pod that does not report its phase.

    Parameters
    ----------
    usage : the last fresh reading; None where there is none.
    """
    granted, position = progress.granted_seconds, progress.position
    if granted is None or position + 1 >= len(phases):
        return progress
    is_ahead = None if usage is None else looks_like_next(phases[position], phases[position + 1], usage)
    if usage is None or is_ahead is None:
        seconds = phases[position].seconds
        is_over = seconds is not None and now_seconds - granted >= seconds
        return progress.entered(position + 1, now_seconds) if is_over else progress
    if usage.at_seconds <= progress.read_seconds or usage.at_seconds < granted + SETTLED_SECONDS:
        return progress
    ahead = progress.ahead + 1 if is_ahead else 0
    if ahead >= READINGS_TO_MOVE:
        return progress.entered(position + 1, now_seconds)
    return replace(progress, ahead=ahead, read_seconds=usage.at_seconds)


def shown(progress: Progress, phases: Sequence[StatedPhase], now_seconds: float, readiness: Readiness) -> Progress:
    """Return the present position of a pod that shows by its readiness that its work wants the next phase.

    A pod that is not ready at the grant of its phase has not seen the grant yet: it must become ready first. If that
    stayed unseen, two signs are proof enough. One is readiness that ended after the grant (the operator was away). The
    other is `UNSEEN_SECONDS` without readiness, since work that finishes a phase before its probe looks would otherwise
    wait for ever.
    """
    granted = progress.granted_seconds
    if granted is None or progress.position + 1 >= len(phases):
        return progress
    if readiness.is_ready:
        return progress if progress.was_ready else replace(progress, was_ready=True)
    unseen_seconds = now_seconds - max(granted, readiness.started_seconds)
    ended_since = readiness.since_seconds > granted + CLOCKS_APART_SECONDS
    if progress.was_ready or ended_since or unseen_seconds >= UNSEEN_SECONDS:
        return progress.entered(progress.position + 1, now_seconds)
    return progress


def looks_like_next(phase: StatedPhase, following: StatedPhase, usage: Usage) -> bool | None:
    """Return whether usage is on the next phase's side of the middle; None where their needs are too similar.

    Cpu decides where it differs. Otherwise memory decides, if the next phase needs more of it: few programs give memory
    back.
    """
    if _apart(phase.millicores, following.millicores) and not math.isnan(usage.millicores):
        middle = (phase.millicores + following.millicores) / 2
        return usage.millicores > middle if following.millicores > phase.millicores else usage.millicores < middle
    grows = 0 < phase.memory_bytes < following.memory_bytes and _apart(phase.memory_bytes, following.memory_bytes)
    if grows and not math.isnan(usage.memory_bytes):
        return usage.memory_bytes > (phase.memory_bytes + following.memory_bytes) / 2
    return None


def memory_from(phases: Sequence[StatedPhase], position: int) -> int:
    """Return the most memory that a phase or any later one needs; 0 if no phase states any.

    A phase without a stated need may use as much as the largest.
    """
    largest = max((phase.memory_bytes for phase in phases), default=0)
    return max((phase.memory_bytes or largest for phase in phases[position:]), default=largest)


def _apart(left: int, right: int) -> bool:
    return abs(left - right) >= APART_SHARE * max(left, right, 1)
