"""Connects to the API server, checks for our resources, and fills the cache with all relevant objects.

`assembly` uses it, and ``cotide operator`` starts it before the engine is loaded. The API server takes as long to list
50,000 pods as Python takes to load our libraries, and runs on another machine. Nothing here decides or writes, except
that it installs the custom resources on request. Invariant: the cache is synced only after a list of every kind from a
moment after the start, see `cotide_kube.reflector`. After a restore from a backup the reflectors fail, and the operator
with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from cotide_core.limits import CUSTOM_OBJECT_BYTES
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_kube.decoding import Malformed
from cotide_kube.reflector import Reflector
from cotide_kube.turns import Turn
from cotide_operator.cache import preflight
from cotide_operator.cache.object_cache import (
    KEPT_AS,
    KINDS,
    OLDER_PATHS,
    OPTIONAL_KINDS,
    PATHS,
    SELECTOR_KINDS,
    TYPES,
    CustomObject,
    Kind,
    ObjectCache,
)
from cotide_operator.task_supervisor import TaskSupervisor

_LOG = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 15.0
"""For one try of any request, a page of a list included. Five tries with their pauses take 78 s at most: then the log
reports an outage. Chosen."""

AGAIN_SECONDS: Final = 60.0
"""Wall seconds between requests for a kind that a server may lack; chosen: a definition is installed once."""


class Informers:
    """Follows the API server from `begin` to `end`, in one task.

    Parameters
    ----------
    credentials : Credentials
    install_crds : bool
        Whether our resources are installed first.
    listed : callable, optional
        Called once, after everything was listed.

    Attributes
    ----------
    cache : the objects received so far.
    stage : the present obstacle; empty once everything is followed.
    reached : set once the API server answers and serves our resources.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        install_crds: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
        listed: Callable[[], None] | None = None,
    ) -> None:
        self.credentials = credentials
        self.cache = ObjectCache()
        self.stage = "the API server"
        self.reached = asyncio.Event()
        self._install_crds = install_crds
        self._listed = listed
        # Its own client: lists begin before the number of other connections is known.
        self._client = KubeClient(
            credentials, max_connections=len(KINDS) + len(OPTIONAL_KINDS), timeout_seconds=timeout_seconds
        )
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Return the task that follows, and start it if needed; it fails with a `CotideError` if it can't continue."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="following")
        return self._task

    async def end(self) -> None:
        """Stop all reflectors."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        async with self._client as client:
            await client.get("/version")
            _LOG.info("API server %s (%s)", self.credentials.server, self.credentials.origin)
            if self._install_crds:
                await preflight.install(client)
            self.stage = "the custom resources"
            await preflight.await_resources(client)
            self.stage = ""
            self.reached.set()
            async with TaskSupervisor() as supervisor:
                for kind in KINDS:
                    follow = (
                        self._follow_if_allowed(kind) if kind in SELECTOR_KINDS else self._follow(kind, PATHS[kind])
                    )
                    supervisor.start(follow, f"reflector of {kind}")
                for kind in OPTIONAL_KINDS:
                    supervisor.start(self._follow_if_served(kind), f"reflector of {kind}")
                await supervisor.until(asyncio.get_running_loop().create_future())

    async def _follow_if_served(self, kind: Kind) -> None:
        """Follow a kind as long as the server serves it and permits reading; it may come later, or never."""
        while True:
            for path in (PATHS[kind], *OLDER_PATHS.get(kind, ())):
                try:
                    await self._follow(kind, path)
                except ApiError as error:
                    # No definition, no right to read it, or a faulty server: the operator works without this kind.
                    _LOG.debug("%s are not followed: %s", path, error)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _follow_if_allowed(self, kind: Kind) -> None:
        """Follow a kind that only the default spread needs; without the right to read it all else works."""
        warned = False
        while True:
            try:
                await self._follow(kind, PATHS[kind])
            except ApiError as error:
                if not warned:
                    _LOG.warning("online pods of %s are not spread by default: %s", kind, error)
                    warned = True
                self._synced(kind)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _follow(self, kind: Kind, path: str) -> None:
        """Fill the cache with one kind, until cancelled."""
        keep = KEPT_AS[kind]() if kind in KEPT_AS else None
        reflector: Reflector[Any] = Reflector(
            self._client,
            path,
            TYPES[kind],
            keep=keep,
            malformed=lambda bad: self._quarantine(kind, bad),
            most_bytes=CUSTOM_OBJECT_BYTES if TYPES[kind] is CustomObject else None,
            # The engine, kopf and all sent events rest on vanished state: only a new process is free of it.
            ends_when_restored=True,
        )
        async for batch in reflector.batches():
            turn = Turn()  # a repeated list may have 50,000 changes
            for number, change in enumerate(batch, start=1):
                if change.object is None:
                    if kind in OPTIONAL_KINDS:
                        self.cache.served[kind] = path
                    self._synced(kind)
                else:
                    self.cache.apply(kind, change.kind, change.object)
                if number < len(batch):  # the last change and the version below belong together
                    await turn.give_way()
            # Right after the changes, without a pause: a listener may read the version.
            if kind == "pods" and reflector.version:
                self.cache.pods_version = reflector.version
            while self.cache.settle():
                await asyncio.sleep(0)

    def _quarantine(self, kind: Kind, bad: Malformed) -> None:
        if bad.kind == "DELETED":
            self.cache.quarantine.forget(kind, bad.name)
        else:
            version = bad.resource_version
            self.cache.quarantine.put(kind, bad.name, "decoding", bad.fault, uid=bad.uid, version=version)

    def _synced(self, kind: Kind) -> None:
        self.cache.mark_synced(kind)
        if self._listed is not None and self.cache.synced:
            self._listed()
            self._listed = None
