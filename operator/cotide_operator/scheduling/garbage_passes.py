"""Passes of Python's garbage collector that never block the deciding loop for long.

``cotide operator`` sets it up after the first lists, and `assembly` runs it as two tasks. Objects that survive a full
pass are exempt from the next ones (`gc.freeze`). A pass thus examines the objects since the last one, and not all
objects of a cluster of 10,000 pods, which took half a second. Unreferenced objects are freed at once as usual. Only
reference cycles among such old objects wait for a thorough pass, at a calm moment. A full pass has its own turn of the
event loop, since within another turn the times would add up.

Invariants: between two thorough passes no pass examines more than `MAX_FULL` objects plus those of one turn of the
event loop. This module holds no references to foreign objects. `gc.get_objects` would: CPython then cannot resize a
tuple that another thread builds from a generator, and raises SystemError there.
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
"""New objects between two collections of the youngest generation. Then the number of those before a collection of the
middle one, and number of these before an automatic full one: never. Chosen: a pass takes .4 us for each object, up to 1
us on a busy machine. Most objects that survive the first pass stay, so that a pass over the middle generation is
wasted."""
FULL_OBJECTS: Final = 25_000
"""Objects that may survive the youngest collections before a full pass over them. Chosen: 10 to 45 ms, with the
objects that are made until the pass has its turn."""
FULL_BLOCKS: Final = 2 * FULL_OBJECTS
"""Least growth of the process in blocks of memory. Most objects die young, so that a full pass for each so many new
objects would be wasted. Chosen: a list with one number takes three blocks, a tuple one or two."""
MAX_FULL: Final = 3 * FULL_OBJECTS
"""Objects that may survive those collections before a full pass without growth. New objects may replace old ones that
no pass examines. Chosen."""
THOROUGH_SECONDS: Final = 24 * 3600.0
"""Least time between thorough passes (chosen: `benchmarks/days/soak.py` finds a day's churn flat without them)."""
POLL_SECONDS: Final = 30.0
"""Seconds between two checks for a calm moment (chosen)."""
_LOG = logging.getLogger("cotide.garbage")


def settle() -> None:
    """Collect garbage as usual from now on, but exempt the present objects and all later long-lived ones."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    if _keep_out not in gc.callbacks:
        gc.callbacks.append(_keep_out)


async def full_passes() -> None:
    """Make full passes when they are due, each in its own turn of the running loop, until cancelled."""
    loop = asyncio.get_running_loop()
    due = asyncio.Event()
    outlived, blocks = 0, sys.getallocatedblocks()

    def count(phase: str, info: dict[str, int]) -> None:
        nonlocal outlived
        if phase != "stop" or info["generation"] or gc.get_threshold() != THRESHOLDS or loop.is_closed():
            return
        outlived += THRESHOLDS[0]  # no collection leaves more objects than it examined
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
    """Examine all objects once in a while, when no decision waits; runs until cancelled."""
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
    """Exempt the survivors of a full pass from later passes."""
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
