"""Fits the ARMA parameters of every node again from time to time, in worker processes.

It runs next to the loop. A fit takes about a tenth of a second per node, so it runs rarely and in other processes.
Meanwhile the forecasts use their present parameters. Invariant: a cancelled fit leaves no process behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from concurrent.futures import BrokenExecutor
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_operator.host_load.forecasters import NAMES, ONLINE, Forecasters
from cotide_predictors.host_load.arma import ArmaParameters
from cotide_predictors.host_load.arma_fit import SLOTS_MIN

_LOG = logging.getLogger(__name__)

PROGRESS_SECONDS: Final = 30.0
"""Wall seconds between two log lines on the progress of a fit (chosen)."""


class _CalledOff(Exception):
    """The operator stops."""


class Refits:
    """Fits until cancelled.

    Parameters
    ----------
    forecasters : accessed under the lock only.
    wall_seconds : between two fits.
    """

    def __init__(self, forecasters: Forecasters, lock: asyncio.Lock, wall_seconds: float) -> None:
        self._forecasters = forecasters
        self._lock = lock
        self._wall_seconds = wall_seconds
        self._stopping = threading.Event()
        self._logged_at = 0.0

    async def run(self, after: asyncio.Event) -> None:
        """Fit once the history is rebuilt (``after``), then again after each pause, until cancelled."""
        try:
            await after.wait()
            while True:
                try:
                    await self.refit()
                except Exception:  # noqa: BLE001 - the forecasts keep what they have; the next fit may do better
                    _LOG.exception("no load forecast was fitted this time")
                await asyncio.sleep(self._wall_seconds)
        finally:
            self._stopping.set()

    async def refit(self) -> int:
        """Fit all nodes with enough records; return their number."""
        async with self._lock:
            histories, tenants = await asyncio.to_thread(self._forecasters.histories)
        long_enough = np.isfinite(histories).sum(axis=2).min(axis=0) >= SLOTS_MIN
        rows = np.flatnonzero(long_enough)
        if not len(rows):
            return 0
        started = time.monotonic()
        for index, name in enumerate(NAMES[ONLINE]):
            _LOG.info("fitting %s of %d nodes in %d worker process(es)", name, len(rows), _workers())
            self._logged_at = time.monotonic()
            try:
                fitted = await asyncio.to_thread(self._fit, name, histories[index, rows].astype(np.float64))
            except (BrokenExecutor, OSError) as error:  # a worker was killed, most often for its memory
                _LOG.warning("%s was not fitted, the forecasts keep their parameters: %s", name, error)
                return 0
            async with self._lock:
                await asyncio.to_thread(self._forecasters.refit, index, fitted, rows, tenants)
        _LOG.info("the load forecasts of %d nodes were fitted in %.0f s", len(rows), time.monotonic() - started)
        return len(rows)

    def _fit(self, name: str, histories: Floats) -> ArmaParameters:
        """In a thread, which waits for the workers."""
        from cotide_predictors.host_load.refit import refit  # heavy: loads statsmodels in the workers

        def progress(done: int, hosts: int) -> None:
            if self._stopping.is_set():
                raise _CalledOff
            if time.monotonic() - self._logged_at >= PROGRESS_SECONDS:
                self._logged_at = time.monotonic()
                _LOG.info("fitting %s: %d of %d nodes", name, done, hosts)

        return refit(histories, workers=_workers(), progress=progress)


def _workers() -> int:
    """Return half of the processors, at least one: the live loop needs the others."""
    return max(1, (os.cpu_count() or 1) // 2)
