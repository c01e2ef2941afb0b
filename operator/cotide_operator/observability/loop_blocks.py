"""The longest block of an event loop: the longest time that one piece of work delayed everything else.

`assembly` runs it as a task of the watched loop and shows it as a metric. A timer that is due every `POLL_SECONDS` is
late by the time of the block. Invariant: a block that is longer than the period is measured at most one period too
short, and is shown for one to two windows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

POLL_SECONDS: Final = 0.01
"""Chosen: a check costs ten microseconds, a thousandth of the time; relevant blocks last 50 ms."""
WINDOW_SECONDS: Final = 120.0
"""Chosen: two scrapes of a slow Prometheus."""


class LoopBlocks:
    """Longest block of the current and of the last window."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._begun = monotonic()
        self._now = 0.0
        self._before = 0.0

    def note(self, late_seconds: float) -> None:
        """Record one measured delay."""
        now = self._monotonic()
        if now - self._begun >= WINDOW_SECONDS:
            self._before = self._now if now - self._begun < 2 * WINDOW_SECONDS else 0.0
            self._now, self._begun = 0.0, now
        self._now = max(self._now, late_seconds)

    def longest_seconds(self) -> float:
        """Return the longest block of the last one to two windows."""
        return max(self._now, self._before)

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = self._monotonic() + POLL_SECONDS
            await asyncio.sleep(POLL_SECONDS)
            self.note(max(0.0, self._monotonic() - due))
