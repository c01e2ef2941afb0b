"""kopf's handlers of our two resources: they own creation, update, resumption and deletion of Jobs and Workloads.

`kopf_thread` registers them, and they run in kopf's own thread and loop. The reconciliation runs in the operator's
loop, where the client and the cache live, and the handler waits for it. A reconciliation ends in one of three ways::

    done ------------------------------------------------------> handled, until the object changes
    the API server failed --TemporaryError, ever later--> again
    an invalid spec, or another error --PermanentError--> given up until the object changes; an event shows why

Invariants: a handler has seen each change of a spec once it is done. kopf writes only the time of a retry to our
objects, into the status. It writes no finalizer and no annotation: creating a Job costs no write, and a deletion does
not wait for kopf. For this reason deletion is an `on.event`, and no timer is used here: kopf's `on.delete`, timers and
daemons put a finalizer on every object. The work queue holds what is due at a time, see `reconciliation`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, cast

import aiohttp
import kopf

from cotide_core.errors import CotideError, InputError
from cotide_kube.credentials import Credentials
from cotide_kube.reflector import RECONNECT
from cotide_operator.apis.names import GROUP, VERSION
from cotide_operator.apis.types import read_job, read_workload
from cotide_operator.controllers.kopf_session import kopf_session
from cotide_operator.controllers.reconciliation import Ours

_LOG = logging.getLogger(__name__)

PREFIX: Final = "cotide.dev"
HANDOVER_SECONDS: Final = 0.2
"""Time for kopf's workers to finish when it stops; chosen: a reconciliation in progress goes on without them."""
RETRY_FIELD: Final = "lastRetryTime"
"""Field of the status with the time of a handler's retry after its back-off; the watch reports it to kopf, which calls
the handler."""
RETRY_BASE_SECONDS: Final = 0.5
"""Wall seconds before a failed reconciliation is repeated; doubled each time. Chosen."""
RETRY_MAX_SECONDS: Final = 30.0
"""Chosen: a recovered API server is noticed within half a minute."""
ERROR_BACKOFFS: Final = (1.0, 1.0, *[RECONNECT.cap_seconds] * 29)
"""Wall seconds before kopf repeats a failed request. Their sum is 54 s, as in kopf, where the longest is 21 s: kopf
continues as soon after a fault as Cotide's own watches."""

_READERS: Final[dict[Ours, Callable[[Any], object]]] = {"jobs": read_job, "workloads": read_workload}


class Reconciliation(Protocol):
    """Reconciles our objects: `Controllers`, in the operator's loop."""

    async def reconcile(self, kind: Ours, key: str, version: str = "", *, deleted: bool = False) -> None:
        """Reconcile one object and return when that is done; raises the error that it failed with."""
        ...

    async def health(self) -> dict[str, int]:
        """Answer from the operator's loop."""
        ...


class Bridge:
    """Calls into the operator's loop from kopf's, and waits for the answer."""

    def __init__(self, reconciliation: Reconciliation, loop: asyncio.AbstractEventLoop) -> None:
        self._reconciliation = reconciliation
        self._loop = loop

    async def reconcile(self, kind: Ours, key: str, version: str, *, deleted: bool = False) -> None:
        """Reconcile one object."""
        await self._call(self._reconciliation.reconcile(kind, key, version, deleted=deleted))

    async def health(self) -> dict[str, int] | None:
        """Ask the operator's loop for its health."""
        answer: dict[str, int] | None = await self._call(self._reconciliation.health())
        return answer

    async def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed: the operator ends, and kopf ends soon
            work.close()
            return None
        return await asyncio.wrap_future(asked)


class MemoryDiffBase(kopf.DiffBaseStorage):
    """Remembers what kopf last handled in this process, and reads from the status what an earlier process handled.

    The generation in an object's status decides: with the present one it is resumed, with an earlier one it was changed
    while no operator ran, and without one it was created. The storage of kopf itself costs one or two writes for each
    object.

    The comparison covers the generation, which the API server raises with every change of a spec, and labels and
    annotations. By default kopf copies the whole object for each event, which took longer than the rest of its work.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, kopf.BodyEssence] = {}

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        """Return the compared part of an object."""
        del extra_fields
        return _essence(body, body.metadata.get("generation"))

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return the state that was handled last, or None for an object that was never handled."""
        seen = self._seen.get(str(body.metadata.uid))
        if seen is not None:
            return seen
        observed = body.status.get("observedGeneration")
        return None if observed is None else _essence(body, observed)

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Remember the handled state; the patch stays empty."""
        del patch
        self._seen[str(body.metadata.uid)] = essence

    def forget(self, uid: str) -> None:
        """Drop a deleted object."""
        self._seen.pop(uid, None)


class MemoryProgress(kopf.ProgressStorage):
    """Remembers the retries of handlers in this process: which, when, and how many so far.

    A new process starts all handlers again at once: a back-off need not survive the process.
    """

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, dict[str, kopf.ProgressRecord]] = {}

    def fetch(self, *, key: str, body: kopf.Body) -> kopf.ProgressRecord | None:
        """Return the progress of a handler of an object."""
        return self._records.get(str(body.metadata.uid), {}).get(key)

    def store(self, *, key: str, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Remember the progress; the patch stays empty."""
        del patch
        self._records.setdefault(str(body.metadata.uid), {})[key] = record

    def purge(self, *, key: str, body: kopf.Body, patch: kopf.Patch) -> None:
        """Forget a finished handler."""
        del patch
        records = self._records.get(str(body.metadata.uid), {})
        records.pop(key, None)
        if not records:
            self.forget(str(body.metadata.uid))

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Write that a handler is due again: the watch reports it to kopf, which calls the handler."""
        del body
        if value is not None:
            patch.status[RETRY_FIELD] = value

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the compared part of an object, which is all of it. It is never changed, so that it needs no copy."""
        return essence

    def forget(self, uid: str) -> None:
        """Drop a deleted object."""
        self._records.pop(uid, None)


def _essence(body: kopf.Body, generation: object) -> kopf.BodyEssence:
    metadata = {"labels": dict(body.metadata.labels), "annotations": dict(body.metadata.annotations)}
    return cast("kopf.BodyEssence", {"metadata": metadata, "spec": {"generation": generation}})


def build_registry(
    bridge: Bridge, credentials: Credentials, settings: kopf.OperatorSettings, used: list[kopf.AiohttpSession]
) -> kopf.OperatorRegistry:
    """Return kopf's handlers, bound to the reconciliation; ``used`` receives kopf's present session."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        if used:  # kopf logs in again after a refusal: tokens are replaced from time to time
            credentials.token.forget()
        used[:] = [kopf_session(credentials)]
        return used[0]

    @kopf.on.probe(registry=registry, id="reconciliation", errors=kopf.ErrorsMode.PERMANENT)
    async def reconciliation(**_: Any) -> dict[str, int] | None:
        return await bridge.health()

    for plural in _READERS:
        _register(registry, plural, bridge, settings)
    return registry


def _register(registry: kopf.OperatorRegistry, plural: Ours, bridge: Bridge, settings: kopf.OperatorSettings) -> None:
    where: dict[str, Any] = {"group": GROUP, "version": VERSION, "plural": plural, "registry": registry}

    async def changed(body: kopf.Body, namespace: str | None, name: str | None, retry: int, **_: Any) -> None:
        fault = _fault(plural, body)
        if fault is not None and retry == 0:
            kopf.warn(body, reason="Misconfigured", message=fault)
        try:
            await bridge.reconcile(plural, f"{namespace}/{name}", str(body.metadata.get("resourceVersion") or ""))
        except CotideError as error:
            delay = retry_seconds(retry)
            _LOG.warning("%s %s/%s is reconciled again in %.1f s: %s", plural, namespace, name, delay, error)
            raise kopf.TemporaryError(str(error), delay=delay) from error
        except Exception as error:  # the quarantine and the object show the error
            raise kopf.PermanentError(f"unexpected error: {type(error).__name__}") from error
        if fault is not None:  # by now the status shows it
            raise kopf.PermanentError(fault)

    async def went(event: kopf.RawEvent, namespace: str | None, name: str | None, uid: str | None, **_: Any) -> None:
        gone = event["type"] == "DELETED"
        if gone:
            for storage in (settings.persistence.diffbase_storage, settings.persistence.progress_storage):
                if isinstance(storage, MemoryDiffBase | MemoryProgress):
                    storage.forget(str(uid))
        metadata = event["object"].get("metadata") or {}
        if gone or metadata.get("deletionTimestamp"):
            version = str(metadata.get("resourceVersion") or "")
            try:
                await bridge.reconcile(plural, f"{namespace}/{name}", version, deleted=gone)
            except CotideError as error:  # its pods are deleted with it and lead to further reconciliations
                _LOG.info("%s %s/%s is deleted and was not reconciled: %s", plural, namespace, name, error)
            except Exception as error:  # noqa: BLE001 - it is in the quarantine; kopf would post an event
                _LOG.error("%s %s/%s is deleted, and its reconciliation failed: %r", plural, namespace, name, error)

    kopf.on.create(**where, id=f"{plural}-created")(changed)
    kopf.on.update(**where, id=f"{plural}-updated")(changed)
    kopf.on.resume(**where, id=f"{plural}-resumed")(changed)
    kopf.on.event(**where, id=f"{plural}-went")(went)


def retry_seconds(retry: int) -> float:
    """Return the wall seconds before a retry, counted from 0: doubled each time up to the maximum."""
    return float(min(RETRY_MAX_SECONDS, RETRY_BASE_SECONDS * 2.0 ** min(retry, 10)))


def _fault(plural: Ours, body: kopf.Body) -> str | None:
    """Return why a spec can't be followed, in the words of its rule."""
    if body.metadata.get("deletionTimestamp"):
        return None
    try:
        _READERS[plural](body)
    except InputError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - kopf would post an event with a traceback
        return f"can't be read: {type(error).__name__}"
    return None


def build_settings() -> kopf.OperatorSettings:
    """Return kopf's settings: our names, no events for objects, lists in chunks."""
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = f"{PREFIX}/kopf"
    settings.persistence.progress_storage = MemoryProgress()
    settings.persistence.diffbase_storage = MemoryDiffBase()
    settings.posting.level = logging.WARNING
    settings.posting.reporting_component = "cotide"
    settings.posting.reporting_instance = "cotide"
    settings.posting.event_name_prefix = "cotide-"
    settings.watching.chunk_size = 500
    settings.peering.standalone = True
    settings.queueing.exit_timeout = HANDOVER_SECONDS
    settings.networking.error_backoffs = ERROR_BACKOFFS
    # Our definitions are there before kopf starts, and a watch outlasts their absence, see `kopf_session`. kopf would
    # discover the resources again at each change of any definition, and end where that fails.
    settings.scanning.disabled = True
    return settings


def run_kopf(bridge: Bridge, credentials: Credentials, **how: Any) -> None:
    """Run kopf in this thread until ``stop_flag`` is set; ``how`` holds the arguments of `kopf.operator`."""
    settings = build_settings()

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(_left_behind)
        used: list[kopf.AiohttpSession] = []
        try:
            await kopf.operator(
                registry=build_registry(bridge, credentials, settings, used),
                settings=settings,
                standalone=True,
                clusterwide=True,
                **how,
            )
        finally:
            for session in used:  # kopf closes only sessions that have made a request
                await session.aiohttp_session.close()

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run())


def _left_behind(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore errors of abandoned requests of kopf: when it stops, it leaves those of a scan behind.

    kopf requests many lists at once and waits only for the first failure (1.45: ``clients/scanning.py``).
    """
    error = context.get("exception")
    if isinstance(error, aiohttp.ClientError | OSError | TimeoutError) and "future" in context:
        _LOG.debug("kopf left a request behind: %s", error)
        return
    loop.default_exception_handler(context)
