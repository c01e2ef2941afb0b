"""How much work a piece of code does, counted in calls and not in seconds: a law that a busy machine can't refute.

Used by tests of what many objects cost together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls_of(action: Callable[[], object]) -> int:
    """Return how many Python and C functions an action calls; each turn of a generator counts as a call."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        del frame, argument
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count
