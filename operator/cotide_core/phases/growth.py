"""The request of a running pod of phases: the live side of a phase that grows or shrinks.

Called by the operator's resizer for each pod. Pure. A pod is bound with the largest need of its phases, so that its
node has room for each of them. It gives back what its phase does not need:

- Needs no more than it asks for: ask for its needs, at once (memory: see below).
- Needs more, and there is room: ask for it.
- Needs more, no room yet: ask for `HELD_MILLICORES` while it waits. Waiting pods hold no cpu that others need, so
  running pods come to their end and make room.
- Has waited too long for room: ask for it anyway. The kubelet defers it, and the scheduler, which counts requests,
  starts nothing else in that room.

Memory is given back only permanently. The need of a phase is the largest of itself and of all that follow. So pods
never hold some memory and wait for each other for more (a deadlock). It is given back only when it is free already. A
request below what a process still holds would let the node promise the same memory twice. Only work that goes back to
an earlier phase can want memory again. It waits for it as for cpu, and keeps what it has. Limits are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

HELD_MILLICORES: Final = 10
"""Request of a container while it waits for room. Chosen: next to nothing, and no change of its QoS class."""
PAUSE_SECONDS: Final = 30.0
"""Chosen: as in the simulator (`utility.Weights`)."""
MEMORY_MARGIN: Final = 1.1
"""Factor on the usage, which must then fit into a smaller request. Chosen: use rises a little without a new phase."""


class Amounts(NamedTuple):
    """Cpu and memory; both may be below 0 for room, where wishes exceed the node."""

    millicores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """A pod with a known phase.

    Attributes
    ----------
    needs : of its phase; memory the largest of this phase and all later ones, 0 if none is stated.
    asks : what its spec asks for.
    waited_seconds : since it entered the phase.
    used_bytes : its measured memory; None without a fresh measurement.
    """

    needs: Amounts
    asks: Amounts
    waited_seconds: float
    used_bytes: float | None = None


def size_to_ask(pod: Growth, room: Amounts) -> Amounts:
    """Return the request that a pod should have.

    Parameters
    ----------
    room : of its node that no request takes; the pod's own request counts as room.
    """
    size = Amounts(pod.needs.millicores, _memory_to_ask(pod))
    fits = all(want <= has or want - has <= free for want, has, free in zip(size, pod.asks, room, strict=True))
    if fits or pod.waited_seconds > PAUSE_SECONDS:
        return size
    return Amounts(min(pod.asks.millicores, HELD_MILLICORES), min(size.memory_bytes, pod.asks.memory_bytes))


def _memory_to_ask(pod: Growth) -> int:
    needs, asks = pod.needs.memory_bytes, pod.asks.memory_bytes
    if not needs:
        return asks
    # Written so that nan keeps the present request.
    if needs < asks and not (pod.used_bytes is not None and pod.used_bytes * MEMORY_MARGIN <= needs):
        return asks
    return needs
