"""Work over many pods, a few at a time: between two turns everything else in the loop has its own.

Called by the controllers for objects of up to 10,000 pods. Invariant: no turn is longer than `TURN_SECONDS` and one
item; the outcome is that of doing all at once, of items that do not change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

TURN_SECONDS: Final = 0.005
"""Chosen: a tenth of what one piece of work may take, since others may follow in the same turn of the loop."""
LOOKED_AT: Final = 16
"""Items between two looks at the clock; chosen: a look costs as much as a hundredth of them."""


async def in_turns(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what the work makes of each item."""
    done: list[R] = []
    until = time.perf_counter() + TURN_SECONDS
    for number, item in enumerate(items):
        if number % LOOKED_AT == 0 and time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + TURN_SECONDS
        done.append(work(item))
    return done
