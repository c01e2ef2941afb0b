"""The lease in a thread of its own: long work in the deciding loop does not delay its renewal.

`assembly` makes it; for `assembly` and `handover` it looks like a `lease.LeaderElector`. The thread has its own event
loop, its own connections and no other work. A deciding loop that hangs permanently must not hold the lease for ever. It
gives a sign once a second while it runs, and after `HUNG_SECONDS` without one the renewals stop.

::

    deciding loop --sign, once a second--> this thread --renew--> API server
                  <--LeadershipLost-------'

With each sign comes the deciding loop's knowledge of nodes that refuse pods, which the next renewal writes.

Invariant: all of the elector runs in the thread's loop, except `permit`, `leading`, `holding`, `inherited` and
`backoffs`, which are single reads and writes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.config.settings import LeaderElectionSettings
from cotide_operator.leaderelection.lease import LeaderElector

HUNG_SECONDS: Final = 60.0
"""Chosen: a hundred times the longest block that the alerts permit, and two probes of a kubelet."""
SIGN_SECONDS: Final = 1.0
CONNECTIONS: Final = 2
MOST_PAUSE_SECONDS: Final = 1.0
"""Longest pause that a server can cause by ``Retry-After``. Chosen: the default retry period, so that several tries fit
into the deadline whatever pause the server requests."""

JOIN_SECONDS: Final = 5.0
"""Longest wait for the thread's end. Chosen: its loop ends within milliseconds."""

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


class LeaseThread:
    """One candidate for a lease, in its own thread; between `start` and `stop`.

    Parameters
    ----------
    credentials : Credentials
    settings : LeaderElectionSettings
    identity : str
        Unique among the replicas.
    timeout_seconds : float
        For one try of a request.
    """

    def __init__(
        self, credentials: Credentials, settings: LeaderElectionSettings, identity: str, *, timeout_seconds: float
    ) -> None:
        self._client = KubeClient(
            credentials,
            max_connections=CONNECTIONS,
            timeout_seconds=timeout_seconds,
            most_pause_seconds=MOST_PAUSE_SECONDS,
        )
        self.elector = LeaderElector(self._client, settings, identity, may_renew=self._is_alive)
        self._client.fence = self.elector.guard
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="lease", daemon=True)
        self._sign = time.monotonic()
        self._learned: Callable[[], str | None] = lambda: None

    @property
    def leading(self) -> bool:
        """Whether this replica leads."""
        return self.elector.leading

    @property
    def holding(self) -> bool:
        """Whether the lease may still have our name, see `LeaderElector`."""
        return self.elector.holding

    @property
    def inherited(self) -> str:
        """The highest version of a pod that the last holder bound, see `LeaderElector`."""
        return self.elector.inherited

    @inherited.setter
    def inherited(self, version: str) -> None:
        self.elector.inherited = version

    @property
    def backoffs(self) -> str:
        """The nodes that refused pods, see `LeaderElector`."""
        return self.elector.backoffs

    @property
    def lease_seconds(self) -> float:
        """How long a lease lasts without a renewal."""
        return self.elector.lease_seconds

    def let_expire(self) -> None:
        """Stop all renewals and writes, and leave the lease to expire."""
        self.elector.let_expire()

    async def start(self) -> None:
        """Start the thread and open its connections."""
        self._thread.start()
        await self._there(self._client.__aenter__())

    async def stop(self) -> None:
        """Close the connections and end the thread; renewals stop."""
        if not self._thread.is_alive():
            return
        try:
            await self._there(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join, JOIN_SECONDS)

    def permit(self) -> None:
        """Permit a request of a leader, see `LeaderElector.permit`."""
        self.elector.permit()

    async def acquire(self) -> None:
        """Return when this replica leads; tries for ever."""
        await self._there(self.elector.acquire())

    async def hold(self, learned: Callable[[], str | None] = lambda: None) -> None:
        """Renew until cancelled; raises `LeadershipLost`.

        Parameters
        ----------
        learned : the lease's new annotation of nodes that refused pods, None for no change; called in the deciding
            loop.
        """
        self._learned = learned
        self._sign = time.monotonic()
        signs = asyncio.create_task(self._give_signs(), name="sign of life for the lease")
        try:
            await self._there(self.elector.hold())
        finally:
            signs.cancel()

    async def release(self, bound_up_to: str = "") -> None:
        """Give the lease up, see `LeaderElector.release`."""
        self._learn()
        await self._there(self.elector.release(bound_up_to))

    async def withdraw(self) -> None:
        """Stop trying, see `LeaderElector.withdraw`."""
        await self._there(self.elector.withdraw())

    async def _end(self) -> None:
        """In the thread: cancel its tasks, also those that their callers gave up, then close."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._client.__aexit__(None, None, None)

    def _learn(self) -> None:
        try:
            learned = self._learned()
        except Exception:  # noqa: BLE001 - a fault here must not cost the sign of life, and with it the lease
            _LOG.exception("the nodes that refused pods are not written on the lease")
            return
        if learned is not None:
            self.elector.backoffs = learned

    async def _give_signs(self) -> None:
        while True:
            self._sign = time.monotonic()
            self._learn()
            await asyncio.sleep(SIGN_SECONDS)

    def _is_alive(self) -> bool:
        return time.monotonic() - self._sign < HUNG_SECONDS

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
