"""Carries out the residents' decisions: status patches and removals, in order for each pod.

Called by `fleet`. Writes of different pods run concurrently, up to a bound. Each pod has one write on its way at a
time; meanwhile a newer status replaces a waiting one, because each status is complete. A removal comes after the last
status, which a client may wait for. An outage loses nothing: a write that no server answered goes back and is tried
again. Obsolete writes (404, or 409: there is another pod of that name) are dropped.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Iterable
from typing import Final

import orjson

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.backoff import Backoff
from cotide_kube.client import PATCH_TYPES, KubeClient
from cotide_sim.kubelets.actions import Action, RemovePod, WriteStatus

_LOG = logging.getLogger(__name__)

CONCURRENCY: Final = 16
"""Chosen: an emulated or small API server answers no faster with more at once."""
_REMOVE_NOW: Final = b'{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0,"preconditions":{"uid":"%s"}}'


class PodWriter:
    """A bounded number of writers over the pods that wait for one.

    Parameters
    ----------
    client : KubeClient
        An open client, with at least ``concurrency`` connections.
    """

    def __init__(self, client: KubeClient, concurrency: int = CONCURRENCY) -> None:
        self._client, self._concurrency = client, concurrency
        self._waiting: dict[str, deque[Action]] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._busy: set[str] = set()
        self._failures = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._rng = random.Random()
        self.written_total = 0
        self.dropped_total = 0

    def submit(self, actions: Iterable[Action]) -> None:
        """Take over actions; returns at once."""
        for action in actions:
            self._idle.clear()
            waiting = self._waiting.get(action.key)
            if waiting is None:
                waiting = self._waiting[action.key] = deque()
                if action.key not in self._busy:
                    self._queue.put_nowait(action.key)
            if (
                waiting
                and waiting[-1].uid == action.uid
                and isinstance(waiting[-1], WriteStatus)
                and isinstance(action, WriteStatus)
            ):
                waiting.pop()
            waiting.append(action)

    async def drained(self) -> None:
        """Wait until everything submitted so far is written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._write_on())

    async def _write_on(self) -> None:
        while True:
            key = await self._queue.get()
            waiting = self._waiting[key]
            action = waiting.popleft()
            if not waiting:
                del self._waiting[key]
            self._busy.add(key)
            try:
                await self._write(action)
                self._failures = 0
            except ClusterError as error:
                if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                    self._refused(action, error)
                else:
                    await self._put_back(action, error)
            self._busy.discard(key)
            if key in self._waiting:
                self._queue.put_nowait(key)
            elif not self._waiting and not self._busy:
                self._idle.set()

    async def _write(self, action: Action) -> None:
        namespace, _, name = action.key.partition("/")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        if isinstance(action, RemovePod):
            await self._client.request("DELETE", path, _REMOVE_NOW % action.uid.encode())
        else:
            # The uid makes the server refuse the patch when this is another pod by now.
            body = orjson.dumps({"metadata": {"uid": action.uid}, "status": action.status})
            await self._client.request("PATCH", f"{path}/status", body, content_type=PATCH_TYPES["strategic"])
        self.written_total += 1

    def _refused(self, action: Action, error: ApiError) -> None:
        self.dropped_total += 1
        level = logging.DEBUG if error.status in (404, 409) else logging.WARNING
        _LOG.log(level, "%s of %s is dropped: %s", type(action).__name__, action.key, error)

    async def _put_back(self, action: Action, error: ClusterError) -> None:
        self._failures += 1
        if self._failures == 1:
            _LOG.warning("%s; the nodes' writes are kept and sent later", error)
        waiting = self._waiting.setdefault(action.key, deque())
        if not any(isinstance(newer, WriteStatus) and newer.uid == action.uid for newer in waiting):
            waiting.appendleft(action)
        await asyncio.sleep(Backoff(cap_seconds=5.0).wait_seconds(self._failures, self._rng))
