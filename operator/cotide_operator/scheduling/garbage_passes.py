"""Passes of Python's garbage collector that never hold up the deciding loop for long.

Set up by ``cotide operator`` once the first lists are in, and kept by `assembly` as two tasks. What has lived through a
full pass is left out of the next ones (`gc.freeze`), so that a pass looks at what came since the last one and not at
all that a cluster of 10,000 pods holds, which took half a second. What nobody refers to any more is freed at once as
ever; only circles among such old objects wait for a thorough pass, which is made at a calm moment. A full pass has a
turn of the event loop for itself: within another one it would come on top of that. Invariants: between two thorough
passes no pass looks at more than `MAX_FULL` objects, and what one turn of the event loop made; nothing here holds a
reference to an object of others. `gc.get_objects` would: CPython then cannot resize a tuple that another thread builds
from a generator, and raises SystemError there.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable
from typing import Final

THRESHOLDS: Final = (5_000, 1_000_000, 1_000_000)
"""New objects between two collections of the youngest, how many of those before one of the younger, and of these before
a full one in the midst of whatever runs: never. Chosen: a pass takes .4 us for each object, up to 1 us on a busy
machine, and most of what outlives the first is there to stay, so that a pass over the younger is one for nothing."""
FULL_OBJECTS: Final = 25_000
"""That may have outlived the collections of the youngest, before a full pass over them. Chosen: 10 to 45 ms, with what
is made until the turn that it has for itself."""
FULL_BLOCKS: Final = 2 * FULL_OBJECTS
"""Blocks of memory by which the process grew, at the least. Most of what is made dies young, so that a pass for each so
many that were made would be one for nothing. Chosen: a list with one number takes three blocks, a tuple one or two."""
MAX_FULL: Final = 3 * FULL_OBJECTS
"""That may have outlived those collections, before a full pass without growth: new objects may replace old ones that
no pass looks at. Chosen."""
THOROUGH_SECONDS: Final = 24 * 3600.0
"""From one thorough pass to the next at least (chosen: `benchmarks/days/soak.py` finds a day's churn flat without)."""
POLL_SECONDS: Final = 30.0
"""Between two looks for a calm moment (chosen)."""
_LOG = logging.getLogger("cotide.garbage")


def settle() -> None:
    """Collect garbage as usual from now on, but never again look at what is there and what comes to last."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    if _keep_out not in gc.callbacks:
        gc.callbacks.append(_keep_out)


async def full_passes() -> None:
    """Make full passes when they are due, each in a turn of the running loop for itself, until cancelled."""
    loop = asyncio.get_running_loop()
    due = asyncio.Event()
    outlived, blocks = 0, sys.getallocatedblocks()

    def count(phase: str, info: dict[str, int]) -> None:
        nonlocal outlived
        if phase != "stop" or info["generation"] or gc.get_threshold() != THRESHOLDS or loop.is_closed():
            return
        outlived += THRESHOLDS[0]  # no collection leaves more than it looked at
        if outlived < FULL_OBJECTS:
            return
        if outlived >= MAX_FULL or sys.getallocatedblocks() - blocks >= FULL_BLOCKS:
            loop.call_soon_threadsafe(due.set)  # any thread may have made the objects

    gc.callbacks.append(count)
    try:
        while True:
            await due.wait()
            due.clear()
            gc.collect()
            outlived, blocks = 0, sys.getallocatedblocks()
    finally:
        gc.callbacks.remove(count)


async def thorough_passes(is_calm: Callable[[], bool], every_seconds: float = THOROUGH_SECONDS) -> None:
    """Look at everything once in a while, for ever, when nothing waits to be decided."""
    last = time.monotonic()
    while True:
        await asyncio.sleep(min(POLL_SECONDS, every_seconds))
        if time.monotonic() - last < every_seconds or not is_calm():
            continue
        began = time.perf_counter()
        gc.unfreeze()
        found = gc.collect()
        last = time.monotonic()
        _LOG.info("thorough garbage collection: %d objects in %.0f ms", found, (time.perf_counter() - began) * 1e3)


def _keep_out(phase: str, info: dict[str, int]) -> None:
    """Leave out of later passes what has lived through a full one."""
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
