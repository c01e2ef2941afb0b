"""How much cpu a running pod of phases should ask for now: the live side of a phase that grows or shrinks.

Called by the operator's resizer for each pod. Pure. A pod is bound with the largest need of its phases, so that its
node has room for each of them, and gives back what its phase does not need::

    needs no more than it asks for   -> ask for what it needs, at once
    needs more, and there is room    -> ask for it
    needs more, no room yet          -> ask for `HELD_MILLICORES` while it waits: those that wait hold nothing that
                                        others wait for, so that whoever runs comes to its end and makes room
    has waited too long for room     -> ask for it all the same: the kubelet puts it off, and the scheduler, which
                                        counts what is asked for, starts nothing else in that room

Memory stays at the largest need: below what a process uses a smaller limit kills it, and tasks that hold some memory
and wait for more could wait for each other (`safe_state`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HELD_MILLICORES: Final = 10
"""What a container asks for while it waits for room. Chosen: next to nothing, and no change of its QoS class."""
PAUSE_SECONDS: Final = 30.0
"""Chosen: as in the simulator (`utility.Weights`)."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A pod whose phase is known; millicores.

    Attributes
    ----------
    needs : of its phase.
    asks : what its spec asks for.
    waited_seconds : since it entered the phase.
    """

    needs: int
    asks: int
    waited_seconds: float


def cpu_to_ask(pod: Growth, room: int) -> int:
    """Return the millicores that a pod should ask for.

    Parameters
    ----------
    room : millicores of its node that nobody asks for, the pod itself left in; below 0 where wishes exceed the node.
    """
    if pod.needs <= pod.asks or pod.needs - pod.asks <= room or pod.waited_seconds > PAUSE_SECONDS:
        return pod.needs
    return min(pod.asks, HELD_MILLICORES)
