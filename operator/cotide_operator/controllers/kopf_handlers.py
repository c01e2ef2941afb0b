"""kopf's handlers of our custom resources, in a thread of their own.

Started by the operator's assembly; hands the keys of Jobs and Workloads to the controllers and decides nothing. Also
the first to read a new spec: what can't be followed becomes an event on the object, in the words of its rule.

kopf runs in its own thread because it cancels foreign tasks in its loop, and it never sees pods because it costs
0.65 ms of CPU an event. Invariants: kopf writes nothing to our objects (what it last saw is kept in memory,
deletion needs no finalizer), so that creating a Job costs no PATCH; no deletion waits for kopf (pods of Jobs wait for
the controllers, see `job_reconciler`).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

import kopf

from cotide_core.errors import InputError
from cotide_kube.credentials import Credentials
from cotide_operator.apis.names import GROUP, VERSION
from cotide_operator.apis.types import read_job, read_workload
from cotide_operator.controllers.kopf_session import kopf_session
from cotide_operator.controllers.reconciliation import Ours

_LOG = logging.getLogger(__name__)

Enqueue = Callable[[Ours, str], bool]
"""Hands a key over; False when nobody takes it."""

PREFIX: Final = "cotide.dev"
HANDOVER_SECONDS: Final = 0.2
"""What kopf's workers get to finish when it stops; chosen: handing a key over takes microseconds."""
READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10.0

_READERS: Final[dict[Ours, Callable[[Any], object]]] = {"jobs": read_job, "workloads": read_workload}


class MemoryDiffBase(kopf.DiffBaseStorage):
    """Remembers what kopf last handled in this process instead of in an annotation on the object.

    After a restart every object looks new, and its key is handed over once more: that is what we want, for the price
    of no PATCH at all (kopf's own storage takes one or two for each object).
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, kopf.BodyEssence] = {}

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return what was handled last, None for an object that this process has not seen."""
        return self._seen.get(str(body.metadata.uid))

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Remember what was handled; the patch stays empty."""
        del patch
        self._seen[str(body.metadata.uid)] = essence

    def forget(self, uid: str) -> None:
        """Drop an object that is gone."""
        self._seen.pop(uid, None)


class NoProgress(kopf.ProgressStorage):
    """Remembers nothing of a handler's progress: ours are done at once or not at all.

    kopf's own storage leaves a marker on each object even where there is no progress to keep.
    """

    def fetch(self, *, key: str, body: kopf.Body) -> kopf.ProgressRecord | None:
        """Know of no progress."""
        del key, body
        return None

    def store(self, *, key: str, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Keep nothing."""

    def purge(self, *, key: str, body: kopf.Body, patch: kopf.Patch) -> None:
        """Have nothing to forget."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Never wake kopf up by a write: no handler of ours is retried."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return what matters of an object, which is all of it."""
        return super().clear(essence=essence)


def build_registry(enqueue: Enqueue, credentials: Credentials, seen: MemoryDiffBase) -> kopf.OperatorRegistry:
    """Return kopf's handlers, bound to where they hand over."""
    registry = kopf.OperatorRegistry()

    used: list[kopf.AiohttpSession] = []

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        if used:  # kopf asks again when the server refused what it had: tokens are replaced from time to time
            credentials.token.forget()
        used[:] = [kopf_session(credentials)]
        return used[0]

    for plural in _READERS:
        _register(registry, plural, enqueue, seen)
    return registry


def _register(registry: kopf.OperatorRegistry, plural: Ours, enqueue: Enqueue, seen: MemoryDiffBase) -> None:
    where: dict[str, Any] = {
        "group": GROUP,
        "version": VERSION,
        "plural": plural,
        "registry": registry,
        "errors": kopf.ErrorsMode.PERMANENT,  # a fault of ours is told once, as an event, and not repeated
    }

    async def changed(body: kopf.Body, namespace: str | None, name: str | None, **_: Any) -> None:
        _tell_faults(plural, body)
        # A key that nobody takes, because the controllers do not run yet, is not lost: they begin with everything.
        enqueue(plural, f"{namespace}/{name}")

    async def gone(event: kopf.RawEvent, namespace: str | None, name: str | None, uid: str | None, **_: Any) -> None:
        if event["type"] == "DELETED":
            seen.forget(str(uid))
            enqueue(plural, f"{namespace}/{name}")

    kopf.on.create(**where, id=f"{plural}-created")(changed)
    kopf.on.update(**where, id=f"{plural}-updated")(changed)
    kopf.on.resume(**where, id=f"{plural}-resumed")(changed)
    kopf.on.delete(**where, id=f"{plural}-deleted", optional=True)(changed)
    del where["errors"]
    kopf.on.event(**where, id=f"{plural}-gone")(gone)


def _tell_faults(plural: Ours, body: kopf.Body) -> None:
    """Put an event on an object whose spec can't be followed."""
    if body.metadata.get("deletionTimestamp"):
        return
    try:
        _READERS[plural](body)
    except InputError as error:
        kopf.warn(body, reason="Misconfigured", message=str(error))
    except Exception as error:  # noqa: BLE001 - an exception in a handler is an event of kopf's with a traceback in it
        kopf.warn(body, reason="Misconfigured", message=f"can't be read: {type(error).__name__}")


def build_settings(seen: MemoryDiffBase) -> kopf.OperatorSettings:
    """Return kopf's settings: ours in name, silent on objects, listing in chunks."""
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = f"{PREFIX}/kopf"
    settings.persistence.progress_storage = NoProgress()
    settings.persistence.diffbase_storage = seen
    settings.posting.level = logging.WARNING
    settings.posting.reporting_component = "cotide"
    settings.posting.reporting_instance = "cotide"
    settings.posting.event_name_prefix = "cotide-"
    settings.watching.chunk_size = 500
    settings.peering.standalone = True
    settings.queueing.exit_timeout = HANDOVER_SECONDS
    return settings


class KopfThread:
    """kopf in a thread; made by `start_kopf`."""

    def __init__(self, enqueue: Enqueue, credentials: Credentials) -> None:
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._identity = f"cotide@{socket.gethostname()}/{os.getpid()}"
        seen = MemoryDiffBase()
        self._registry = build_registry(enqueue, credentials, seen)
        self._settings = build_settings(seen)
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            kopf.run(
                registry=self._registry,
                settings=self._settings,
                # Said, since what kopf does to find out needs a name of its user, and a container's uid has none.
                identity=self._identity,  # type: ignore[arg-type]  # a NewType of str that kopf keeps to itself
                standalone=True,
                clusterwide=True,
                stop_flag=self._stop,
                ready_flag=self._ready,
            )
        except BaseException as error:  # noqa: BLE001 - the thread's last word; `fault` and the log pass it on
            self._fault = error
            _LOG.error("kopf stopped: %s: %s", type(error).__name__, error)

    @property
    def ready(self) -> bool:
        """Whether kopf has started; whether the API server lets it watch is for the preflight to find out."""
        return self._ready.is_set() and self.alive

    @property
    def alive(self) -> bool:
        """Whether the thread runs; if it does not and nobody stopped it, the operator should be restarted."""
        return self._thread.is_alive()

    @property
    def fault(self) -> BaseException | None:
        """What stopped kopf, if not we did."""
        return self._fault

    def wait_ready(self, seconds: float = READY_SECONDS) -> bool:
        """Wait (in a thread that may block) until kopf has started; False when it has not in time."""
        return self._ready.wait(seconds) and self.alive

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop kopf and wait (in a thread that may block) for its end; False when it does not end in time."""
        self._stop.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()


def start_kopf(enqueue: Enqueue, credentials: Credentials) -> KopfThread:
    """Start kopf in its own thread; ``enqueue`` is `Controllers.enqueue_threadsafe`."""
    thread = KopfThread(enqueue, credentials)
    thread.start()
    return thread


def quiet_kopf(level: int = logging.WARNING) -> None:
    """Keep kopf's own log, a line for each object, out of ours."""
    for name in ("kopf", "kopf.objects", "kopf.activities"):
        logging.getLogger(name).setLevel(level)
