"""Fits the ARMA parameters of many hosts in worker processes, off the hot path, and reports its progress.

Called by the operator's refit task and `benchmarks/predictors/bench_host_load.py`. Each worker fits whole hosts on one
thread; results come back as they are done and are put in host order. Invariant: the answer does not depend on the
number of workers; a host with a failed fit keeps the fallback's parameters.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.arma import ArmaParameters
from cotide_predictors.host_load.arma_fit import ArmaFit, fit_arma, stacked

_CHUNK: Final = 8
"""Hosts of a worker's chunk, after which it reports: a second or so of work (chosen)."""

_NICE: Final = 10
"""A fit gives way to the live loop on a small machine (chosen)."""

Progress = Callable[[int, int], None]


def refit(
    histories: Floats, *, workers: int = 1, order: tuple[int, int] = (1, 1),
    fallback: ArmaParameters | None = None, progress: Progress | None = None,
) -> ArmaParameters:  # fmt: skip
    """Fit each row of ``histories`` (n, m), nan where a slot is missing.

    Parameters
    ----------
    workers : processes; 0 fits in this one.
    order : see `arma_fit.fit_arma`.
    fallback : parameters of hosts without a fit; None: the defaults.
    progress : called with the hosts done and the hosts in all; an exception in it cancels the rest.
    """
    hosts = len(histories)
    fits: list[ArmaFit | None] = [None] * hosts
    starts = range(0, hosts, _CHUNK)
    done = 0
    if workers <= 0:
        for start in starts:
            fits[start : start + _CHUNK] = _fit_rows(histories[start : start + _CHUNK], order)
            done = min(hosts, start + _CHUNK)
            if progress is not None:
                progress(done, hosts)
    else:
        # Spawned, not forked: a fork would copy locks of the operator's threads in the held state.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(max_workers=workers, mp_context=context, initializer=_give_way)
        try:
            tasks = {pool.submit(_fit_rows, histories[start : start + _CHUNK], order): start for start in starts}
            for task in as_completed(tasks):
                found = task.result()
                fits[tasks[task] : tasks[task] + len(found)] = found
                done += len(found)
                if progress is not None:
                    progress(done, hosts)
        finally:
            # A cancelled refit waits for the running chunks only, not for the queued ones.
            pool.shutdown(cancel_futures=True)
    return stacked(fits, fallback if fallback is not None else ArmaParameters.default(hosts))


def _give_way() -> None:
    """In a worker: let the live loop go first, and let the operator end its workers, not the terminal."""
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _fit_rows(histories: Floats, order: tuple[int, int]) -> list[ArmaFit | None]:
    return [fit_arma(np.asarray(history), order=order) for history in histories]
