"""Who decides: one replica holds a Lease of coordination.k8s.io and renews it.

A small election of our own over `cotide_kube`. The official client's (`kubernetes.aio.leaderelection`) was read and
not taken: it never releases the lease, so that each restart would leave nobody deciding for 15 s; it has no deadline
on the request that renews, so that a hanging server leaves two leaders; it measures by the wall clock; and it needs
a second HTTP stack with its own credentials.

::

    standby --lease free, released or not renewed for its duration--> leader
    leader  --renewed--> leader
    leader  --not renewed within the deadline, or taken by another--> lost: `LeadershipLost`
    lost, not taken --bindings ended--> released, as below
    leader  --stopped--> released (empty holder), so that a standby takes over at once
    standby --stopped--> gives back what its last try may have taken

Expiry is judged by our own monotonic time since the lease was last seen to change, never by comparing the holder's
clock with ours; our own lease counts from before the request that wrote it. Invariant: the deadline is shorter than
the lease, so that a leader has stopped before another starts. A leader that did not notice, because its process was
paused, is held by `permit`, which is asked before each request that it sends.

A leader that could not renew gives the lease up, too, once its bindings ended, as client-go does with
``ReleaseOnCancel`` (kube-scheduler sets it). A process that starts then would wait for a whole lease else.

A lease that is given up says in an annotation what the next leader must have seen of the pods, see `handover`; whoever
takes it takes that off. Another annotation tells which nodes refused pods, see `node_backoffs`: whoever takes the lease
leaves it there until it knows better itself. What others wrote on the lease stays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import LeaseObject, LeaseSpec
from cotide_kube.timestamps import format_micro_timestamp
from cotide_operator.config.settings import LeaderElectionSettings
from cotide_operator.leaderelection.node_backoffs import NODE_BACKOFFS_ANNOTATION

_LOG = logging.getLogger(__name__)

BOUND_UP_TO_ANNOTATION: Final = "cotide.dev/bound-up-to"
"""On a lease that was given up: the highest resource version among the pods that its last holder bound."""


class LeadershipLost(ClusterError):
    """The lease went to another replica, or could not be renewed in time: this process must not decide any more."""


def awake_and_asleep() -> float:
    """Return seconds that only grow, and that pass while the machine sleeps, too, where the system counts those."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class _Stored(NamedTuple):
    """A lease as the server has it."""

    lease: LeaseObject
    """What is ours to know."""
    whole: dict[str, Any]
    """All of it, what others wrote included."""


class LeaderElector:
    """One candidate for a lease.

    Parameters
    ----------
    client : KubeClient
    settings : LeaderElectionSettings
    identity : str
        Unique among the replicas.
    monotonic : callable
        Time for expiry; tests pass their own.
    may_renew : callable
        Whether who leads still lives; while it does not, the lease runs out.

    Attributes
    ----------
    leading : whether this replica may decide.
    holding : whether the lease may still have our name. It outlasts `leading` where no renewal came through, until the
        lease is given up, left to expire, or seen to be another's.
    inherited : what the last holder had bound up to when it gave the lease up, until it was seen here; empty when it
        said nothing.
    backoffs : the annotation that tells which nodes refused pods: as the last holder left it, then what whoever leads
        here makes of it.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: LeaderElectionSettings,
        identity: str,
        *,
        monotonic: Callable[[], float] = awake_and_asleep,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        may_renew: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._settings = settings
        self.identity = identity
        self._monotonic = monotonic
        self._sleep = sleep
        self._may_renew = may_renew
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
        self._ours: _Stored | None = None
        """The lease as our last write left it, while no write of another is known."""
        self._seen: tuple[str, str | None] | None = None
        self._seen_at = float("-inf")
        self._trouble = ""
        self._turn = asyncio.Lock()
        """Held over each try and renewal: a release waits for the one in flight, and none comes after it."""
        self._withdrawn = False
        self._renewed = float("-inf")
        """When the request began that wrote our name on the lease last."""
        self.leading = self.holding = False
        self.inherited = ""
        self.backoffs = ""

    @property
    def lease_seconds(self) -> float:
        """How long a lease lasts that nobody renews."""
        return self._settings.lease_duration_seconds

    def permit(self) -> None:
        """Let a request of a leader pass.

        Raises
        ------
        LeadershipLost
            When the lease may be another's by now.
        """
        if not self.leading or self._monotonic() >= self._renewed + self._settings.renew_deadline_seconds:
            raise LeadershipLost(f"the lease {self._settings.lease_name} may be another's by now: nothing is written")

    def guard(self) -> None:
        """Let a write of the lease itself pass; a process that was paused in a renewal sends it no more.

        Raises
        ------
        LeadershipLost
            When it would renew a lease that may be another's by now.
        """
        if self.leading:
            self.permit()

    async def acquire(self) -> None:
        """Return when this replica leads, or has withdrawn; tries for ever."""
        while not self.leading:
            async with self._turn:
                held = not self._withdrawn and await self._renew()
                if self._withdrawn:
                    return
                self.leading = self.holding = held
            if not held:
                await self._sleep(self._settings.retry_period_seconds)
        _LOG.info("leading as %s (lease %s/%s)", self.identity, self._settings.namespace, self._settings.lease_name)

    async def hold(self) -> None:
        """Renew until cancelled.

        Raises
        ------
        LeadershipLost
            When the lease is another's, or was not renewed within the deadline.
        """
        while True:
            await self._sleep(self._settings.retry_period_seconds)
            left = self._renewed + self._settings.renew_deadline_seconds - self._monotonic()
            try:
                async with asyncio.timeout(max(0.0, left)), self._turn:
                    if not self.leading:  # released: there is nothing to renew any more
                        continue
                    held = left > 0 and self._may_renew() and await self._renew()
            except TimeoutError:
                held = False
            if held:
                continue
            holder = self._seen[0] if self._seen else ""
            if holder not in ("", self.identity):
                self.leading = self.holding = False
                raise LeadershipLost(f"the lease {self._settings.lease_name} was taken by {holder}: stopping")
            if self._monotonic() - self._renewed >= self._settings.renew_deadline_seconds:
                self.leading = False
                raise LeadershipLost(
                    f"the lease {self._settings.lease_name} could not be renewed for "
                    f"{self._settings.renew_deadline_seconds:g} s: stopping"
                )

    async def release(self, bound_up_to: str = "") -> None:
        """Give the lease up, so that a standby need not wait for it to expire; never raises.

        Parameters
        ----------
        bound_up_to : str
            What the next leader must have seen of the pods. Where that is empty, what was inherited and not seen here
            is handed on: then nothing was bound here either.
        """
        if not self.holding:
            return
        await self._give_back(bound_up_to, self._settings.renew_deadline_seconds)

    async def withdraw(self) -> None:
        """Try no more, and give back what may be ours already, though nothing was begun with it; never raises.

        Of a try that is under way, or whose answer was lost, nobody would know, and nobody decide until it expires.
        """
        self._withdrawn = True
        await self._give_back("", self._settings.retry_period_seconds)

    async def _give_back(self, bound_up_to: str, within_seconds: float) -> None:
        self.leading = self.holding = False
        try:
            async with asyncio.timeout(within_seconds), self._turn:
                stored = await self._read()
                if stored is not None and stored.lease.spec.holder_identity == self.identity:
                    await self._write(stored, "", duration_seconds=1, bound_up_to=bound_up_to or self.inherited)
        except (ClusterError, TimeoutError) as error:
            _LOG.warning(
                "the lease could not be released and will expire by itself: %s", str(error) or "no answer in time"
            )

    def let_expire(self) -> None:
        """Renew and write nothing any more, and leave the lease to run out."""
        self.leading = self.holding = False

    async def _renew(self) -> bool:
        """Take or renew the lease; False when that is not possible now.

        A leader renews in one request, on top of what it wrote last: half the time where the server is slow. Where
        another wrote meanwhile the answer is 409, and the next try reads first (as client-go's leaderelection does).
        What then is ours counts from before that request, however long a read before it or the answer takes.
        """
        ours, self._ours = self._ours, None
        try:
            stored = ours if ours is not None and self.leading else await self._read()
            if stored is None:
                begun = self._monotonic()
                self._keep(await self._client.create(self._collection, self._body(None, self.identity)), begun)
            elif stored.lease.spec.holder_identity == self.identity:
                await self._write(stored, self.identity)
            elif self._free(stored.lease):
                # Kept before it is taken off: the answer may be lost, and at the next look the lease is ours already.
                annotations = stored.lease.metadata.annotations
                self.inherited = annotations.get(BOUND_UP_TO_ANNOTATION, "")
                self.backoffs = annotations.get(NODE_BACKOFFS_ANNOTATION, "")
                await self._write(stored, self.identity)
            else:
                self._say(f"standing by: {stored.lease.spec.holder_identity} leads")
                return False
        except ApiError as error:
            if error.status not in (404, 409):  # 409: another replica was faster
                self._say(f"the lease can't be taken: {error}")
            elif error.status == 404:
                self._say(f"the lease can't be written: namespace {self._settings.namespace} does not exist")
            return False
        except ClusterError as error:
            self._say(f"the lease can't be reached: {error}")
            return False
        self._trouble = ""
        return True

    def _free(self, lease: LeaseObject) -> bool:
        spec = lease.spec
        seen = (spec.holder_identity, spec.renew_time)
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._monotonic()
        if not spec.holder_identity:
            return True
        return self._monotonic() - self._seen_at >= (spec.lease_duration_seconds or self._duration())

    async def _read(self) -> _Stored | None:
        try:
            whole = await self._client.get(f"{self._collection}/{self._settings.lease_name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        try:
            return _Stored(msgspec.convert(whole, LeaseObject), whole)
        except msgspec.ValidationError as error:
            raise ClusterError(f"the API server's answer is no Lease: {error}") from error

    async def _write(
        self, stored: _Stored, holder: str, *, duration_seconds: int | None = None, bound_up_to: str = ""
    ) -> None:
        path = f"{self._collection}/{self._settings.lease_name}"
        # With the version that was read: a stale one is refused with 409, so that two candidates never both win.
        begun = self._monotonic()
        whole = await self._client.replace(path, self._body(stored, holder, duration_seconds, bound_up_to))
        self._seen = (holder, None)
        if holder:
            self._keep(whole, begun)

    def _keep(self, whole: dict[str, Any], begun: float) -> None:
        """Note that the lease has our name by a request that began then, and what was answered."""
        self._renewed = begun
        try:
            written = msgspec.convert(whole, LeaseObject)
        except msgspec.ValidationError:
            return  # the next try reads it
        if written.spec.holder_identity == self.identity and written.metadata.resource_version:
            self._ours = _Stored(written, whole)

    def _duration(self) -> int:
        return max(1, round(self._settings.lease_duration_seconds))

    def _body(
        self, stored: _Stored | None, holder: str, duration_seconds: int | None = None, bound_up_to: str = ""
    ) -> dict[str, Any]:
        """Return the lease as it shall be: of what is stored, only our own fields and our annotations change."""
        now = format_micro_timestamp(time.time())
        before = stored.lease.spec if stored is not None else LeaseSpec()
        whole = stored.whole if stored is not None else {}
        ours_already = before.holder_identity == holder
        metadata = {**(whole.get("metadata") or {})}
        metadata |= {"name": self._settings.lease_name, "namespace": self._settings.namespace}
        ours = {BOUND_UP_TO_ANNOTATION: bound_up_to, NODE_BACKOFFS_ANNOTATION: self.backoffs}
        annotations = {**(metadata.pop("annotations", None) or {}), **ours}
        annotations = {name: text for name, text in annotations.items() if text or name not in ours}
        if annotations:
            metadata["annotations"] = annotations
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                **(whole.get("spec") or {}),
                "holderIdentity": holder,
                "leaseDurationSeconds": duration_seconds or self._duration(),
                "acquireTime": before.acquire_time if ours_already else now,
                "renewTime": now,
                "leaseTransitions": before.lease_transitions + (1 if stored and holder and not ours_already else 0),
            },
        }

    def _say(self, line: str) -> None:
        if line != self._trouble:
            self._trouble = line
            _LOG.info("%s", line)
