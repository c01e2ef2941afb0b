"""kopf in a thread of its own, with restarts and health checks.

`assembly` starts it on the leader; a standby runs none. It has a thread because kopf cancels foreign tasks in its loop.
The module kopf is loaded only at the start: loading takes as long as for all our own modules, and the first pods need
not wait. Invariant: at most one kopf runs at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Final

import aiohttp

from cotide_kube.backoff import Backoff
from cotide_kube.credentials import Credentials
from cotide_operator.observability.metrics import Metrics

if TYPE_CHECKING:
    from cotide_operator.controllers.kopf_handlers import Reconciliation

_LOG = logging.getLogger(__name__)

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10.0
AGAIN: Final = Backoff(initial_seconds=1.0, cap_seconds=300.0)
STEADY_SECONDS: Final = 600.0
"""A kopf that ran for at least this time is started again at once when it ends. Chosen."""
POLL_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 10.0
"""Wall seconds between two probes; kopf keeps an answer for as long."""
ANSWER_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 60.0
"""A kopf without a good answer for this time is stuck: only a new process can replace it. Chosen."""


class KopfThread:
    """One kopf in one thread."""

    def __init__(
        self, reconciliation: Reconciliation, credentials: Credentials, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._reconciliation = reconciliation
        self._credentials = credentials
        self._loop = loop
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self.endpoint = f"http://127.0.0.1:{_free_port()}/healthz"
        """URL of kopf's probe."""
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            from cotide_operator.controllers.kopf_handlers import Bridge, run_kopf

            run_kopf(
                Bridge(self._reconciliation, self._loop),
                self._credentials,
                # Given here, because kopf's own lookup needs the name of its user, and a container's uid has none.
                identity=f"cotide@{socket.gethostname()}/{os.getpid()}",
                liveness_endpoint=self.endpoint,
                stop_flag=self._stop,
                ready_flag=self._ready,
            )
        except BaseException as error:  # noqa: BLE001 - the thread ends here; `fault` and the log pass it on
            self._fault = error
            _LOG.error("kopf stopped: %s: %s", type(error).__name__, error)

    @property
    def ready(self) -> bool:
        """Whether kopf has started; the preflight checks whether the API server permits its watches."""
        return self._ready.is_set() and self.alive

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def fault(self) -> BaseException | None:
        """The error that stopped kopf, if it was not stopped on purpose."""
        return self._fault

    def wait_ready(self, seconds: float = READY_SECONDS) -> bool:
        """Wait (in a thread that may block) until kopf has started; False after the time limit."""
        return self._ready.wait(seconds) and self.alive

    async def well(self) -> bool:
        """Ask kopf's probe, which asks the operator's loop."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self.endpoint) as answer:
                return answer.status == 200
        return False

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop kopf and wait (in a thread that may block) for its end; False when it does not end in time."""
        self._stop.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()


class KopfSupervisor:
    """Keeps a kopf running.

    Attributes
    ----------
    thread : the kopf that runs, if one does.
    was_ready : whether one of them was ever ready.
    """

    def __init__(self, credentials: Credentials, metrics: Metrics) -> None:
        self._credentials = credentials
        self._metrics = metrics
        self.thread: KopfThread | None = None
        self.was_ready = False
        self._well_monotonic: float | None = None
        """Time of the last good answer of the running kopf, or of its start."""

    @property
    def ready(self) -> bool:
        """Whether kopf runs and has started."""
        return self.thread is not None and self.thread.ready

    @property
    def stuck(self) -> bool:
        """Whether kopf runs and has not answered for long."""
        return self._well_monotonic is not None and time.monotonic() - self._well_monotonic > SILENT_SECONDS

    async def run(self, reconciliation: Reconciliation) -> None:
        """Run kopf for ever."""
        # In a thread: kopf takes as long to load as all our own modules.
        await asyncio.to_thread(import_module, "cotide_operator.controllers.kopf_handlers")
        quiet_kopf(logging.ERROR)
        failures = 0
        while True:
            started = time.monotonic()
            thread = self.thread = KopfThread(reconciliation, self._credentials, asyncio.get_running_loop())
            thread.start()
            await self._watch(thread)
            # Our objects are also reconciled without kopf now and then: until a restart, changes of their specs are
            # late.
            failures = 1 if time.monotonic() - started > STEADY_SECONDS else failures + 1
            self._metrics.kopf_restarts.inc()
            wait = AGAIN.wait_seconds(failures, random.Random())
            _LOG.error("kopf ended (%s) and is started again in %.0f s", thread.fault or "by itself", wait)
            await asyncio.sleep(wait)

    async def _watch(self, thread: KopfThread) -> None:
        """Return when a kopf has ended; probe it regularly until then."""
        self._well_monotonic, next_probe = None, 0.0
        while thread.alive:
            self.was_ready = self.was_ready or thread.ready
            now = time.monotonic()
            if thread.ready and now >= next_probe:
                next_probe = now + PROBE_SECONDS
                if await thread.well() or self._well_monotonic is None:
                    self._well_monotonic = time.monotonic()
            await asyncio.sleep(POLL_SECONDS)
        self._well_monotonic = None

    async def stop(self, seconds: float) -> bool:
        """Stop kopf; False when it does not end in time and is left behind."""
        return self.thread is None or await asyncio.to_thread(self.thread.stop, seconds)


def quiet_kopf(level: int = logging.WARNING) -> None:
    """Keep kopf's own log, with a line for each object, out of ours."""
    for name in ("kopf", "kopf.objects", "kopf.activities"):
        logging.getLogger(name).setLevel(level)
    logging.getLogger("kopf.objects").addFilter(_worth_a_line)


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Drop lines about failed handlers, which an event on the object or a line of our own reports already.

    A failure of the API server while kopf writes the time of a retry becomes a warning of one line. The object is
    reconciled again when it changes, or within a minute.
    """
    text = record.getMessage()
    if "Throttling for " in text:
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = record.exc_text = None
    return " failed temporarily" not in text and " failed permanently" not in text


def _free_port() -> int:
    """Return a port of the loopback address that is free now; if it is taken later, kopf is started again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
