"""kopf's handlers of our two resources: they own creation, update, resumption and deletion of Jobs and Workloads.

Registered by `kopf_thread`, and run in kopf's own thread and loop; the look itself runs in the operator's, where the
client and the cache live, and the handler waits for it. What becomes of a look::

    done ------------------------------------------------------> handled, until the object changes
    the API server failed --TemporaryError, ever later--> again
    the spec can't be followed, or it trips us --PermanentError--> given up until the object changes; an event says why

Invariants: a handler has seen each change of a spec once it is done; kopf writes nothing to our objects but the time of
a retry, into the status (no finalizer, no annotation: creating a Job costs no write, and no deletion waits for kopf).
That is why deletion is an `on.event` and why nothing here is a timer: kopf's `on.delete`, timers and daemons put a
finalizer on every object. What is due at a time is the work queue's, see `reconciliation`.
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
"""What kopf's workers get to finish when it stops; chosen: a look that began goes on without them."""
RETRY_FIELD: Final = "lastRetryTime"
"""Of the status: written when a handler is due again after its back-off; the watch tells kopf, which calls it."""
RETRY_BASE_SECONDS: Final = 0.5
"""Wall seconds before a look that failed is repeated; doubled each time. Chosen."""
RETRY_MAX_SECONDS: Final = 30.0
"""Chosen: an API server that is back is noticed within half a minute."""
ERROR_BACKOFFS: Final = (1.0, 1.0, *[RECONNECT.cap_seconds] * 29)
"""Wall seconds before kopf repeats a request that failed. They sum up to 54 s, as kopf's own do, whose longest is 21 s:
kopf goes on as soon after a fault as our own watches."""

_READERS: Final[dict[Ours, Callable[[Any], object]]] = {"jobs": read_job, "workloads": read_workload}


class Reconciliation(Protocol):
    """Who looks at our objects: `Controllers`, in the operator's loop."""

    async def reconcile(self, kind: Ours, key: str, version: str = "", *, deleted: bool = False) -> None:
        """Look at one object and return when that is done; raises what it failed with."""
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
        """Look at one object."""
        await self._call(self._reconciliation.reconcile(kind, key, version, deleted=deleted))

    async def health(self) -> dict[str, int] | None:
        """Ask the operator's loop how it is."""
        answer: dict[str, int] | None = await self._call(self._reconciliation.health())
        return answer

    async def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop was closed: the operator ends, and kopf is about to
            work.close()
            return None
        return await asyncio.wrap_future(asked)


class MemoryDiffBase(kopf.DiffBaseStorage):
    """Remembers what kopf last handled in this process, and takes from the status what an earlier process did.

    An object whose status speaks of its present generation is resumed, one whose status speaks of an earlier one was
    changed while no operator ran, and one without was created. kopf's own storage takes a write or two for each object.

    What is compared is the generation, which the API server raises with every change of a spec, beside labels and
    annotations. kopf's own way copies the whole object for each event, which took longer than all else it does of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, kopf.BodyEssence] = {}

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        """Return what of an object matters."""
        del extra_fields
        return _essence(body, body.metadata.get("generation"))

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return what was handled last, None for an object that nobody handled."""
        seen = self._seen.get(str(body.metadata.uid))
        if seen is not None:
            return seen
        observed = body.status.get("observedGeneration")
        return None if observed is None else _essence(body, observed)

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Remember what was handled; the patch stays empty."""
        del patch
        self._seen[str(body.metadata.uid)] = essence

    def forget(self, uid: str) -> None:
        """Drop an object that is gone."""
        self._seen.pop(uid, None)


class MemoryProgress(kopf.ProgressStorage):
    """Remembers which handlers are to be retried, when, and how often they were, in this process.

    A new process begins with all handlers anew, at once: a back-off need not outlive it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, dict[str, kopf.ProgressRecord]] = {}

    def fetch(self, *, key: str, body: kopf.Body) -> kopf.ProgressRecord | None:
        """Return how far a handler of an object is."""
        return self._records.get(str(body.metadata.uid), {}).get(key)

    def store(self, *, key: str, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Remember it; the patch stays empty."""
        del patch
        self._records.setdefault(str(body.metadata.uid), {})[key] = record

    def purge(self, *, key: str, body: kopf.Body, patch: kopf.Patch) -> None:
        """Forget a handler that is done."""
        del patch
        records = self._records.get(str(body.metadata.uid), {})
        records.pop(key, None)
        if not records:
            self.forget(str(body.metadata.uid))

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Write that a handler is due again: kopf hears of it, and calls the handler."""
        del body
        if value is not None:
            patch.status[RETRY_FIELD] = value

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return what matters of an object, which is all of it; nobody changes it, so that it need not be copied."""
        return essence

    def forget(self, uid: str) -> None:
        """Drop an object that is gone."""
        self._records.pop(uid, None)


def _essence(body: kopf.Body, generation: object) -> kopf.BodyEssence:
    metadata = {"labels": dict(body.metadata.labels), "annotations": dict(body.metadata.annotations)}
    return cast("kopf.BodyEssence", {"metadata": metadata, "spec": {"generation": generation}})


def build_registry(
    bridge: Bridge, credentials: Credentials, settings: kopf.OperatorSettings, used: list[kopf.AiohttpSession]
) -> kopf.OperatorRegistry:
    """Return kopf's handlers, bound to who looks at our objects; ``used`` is given the session that kopf has now."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        if used:  # kopf asks again when the server refused what it had: tokens are replaced from time to time
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
            _LOG.warning("%s %s/%s is looked at again in %.1f s: %s", plural, namespace, name, delay, error)
            raise kopf.TemporaryError(str(error), delay=delay) from error
        except Exception as error:  # what it was is in the quarantine, and on the object
            raise kopf.PermanentError(f"it trips us: {type(error).__name__}") from error
        if fault is not None:  # its status says so by now
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
            except CotideError as error:  # its pods, which go with it, lead to further looks
                _LOG.info("%s %s/%s goes, and was not looked at: %s", plural, namespace, name, error)
            except Exception as error:  # noqa: BLE001 - of one object, and in the quarantine: kopf would post it as an event
                _LOG.error("%s %s/%s goes, and the look at it failed: %r", plural, namespace, name, error)

    kopf.on.create(**where, id=f"{plural}-created")(changed)
    kopf.on.update(**where, id=f"{plural}-updated")(changed)
    kopf.on.resume(**where, id=f"{plural}-resumed")(changed)
    kopf.on.event(**where, id=f"{plural}-went")(went)


def retry_seconds(retry: int) -> float:
    """Return the wall seconds before a retry, counted from 0: doubled each time up to the longest."""
    return float(min(RETRY_MAX_SECONDS, RETRY_BASE_SECONDS * 2.0 ** min(retry, 10)))


def _fault(plural: Ours, body: kopf.Body) -> str | None:
    """Return why a spec can't be followed, in the words of its rule."""
    if body.metadata.get("deletionTimestamp"):
        return None
    try:
        _READERS[plural](body)
    except InputError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - an exception in a handler is an event of kopf's with a traceback in it
        return f"can't be read: {type(error).__name__}"
    return None


def build_settings() -> kopf.OperatorSettings:
    """Return kopf's settings: ours in name, silent on objects, listing in chunks."""
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
    """Run kopf in this thread until it is told to stop; ``how`` is `kopf.operator`'s."""
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
            for session in used:  # kopf closes those only of which it has made a request
                await session.aiohttp_session.close()

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run())


def _left_behind(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Pass over requests of kopf's that nobody waits for any more: when it stops it leaves those of a scan behind.

    kopf asks for many lists at once and hears of the first that fails only (1.45: ``clients/scanning.py``).
    """
    error = context.get("exception")
    if isinstance(error, aiohttp.ClientError | OSError | TimeoutError) and "future" in context:
        _LOG.debug("kopf left a request behind: %s", error)
        return
    loop.default_exception_handler(context)
