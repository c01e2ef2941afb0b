"""The election of the deciding replica: one holds a Lease of coordination.k8s.io and renews it.

This is a small election of our own over `cotide_kube`. The official client's (`kubernetes.aio.leaderelection`) was read
and not used, for four reasons. It never releases the lease, so that after each restart no replica would decide for 15
s. Its renewal request has no deadline, so that a hanging server leaves two leaders. It measures by the wall clock. And
it needs a second HTTP stack with its own credentials.

::

    standby --lease free, released or not renewed for its duration--> leader
    leader  --renewed--> leader
    leader  --not renewed within the deadline, or taken by another--> lost: `LeadershipLost`
    lost, not taken --bindings ended--> released, as below
    leader  --stopped--> released (empty holder), so that a standby takes over at once
    standby --stopped--> gives back what its last try may have taken

Expiry follows our own monotonic time since the lease was last seen to change, and never compares the holder's clock
with ours. Our own lease counts from before the request that wrote it. Invariant: the deadline is shorter than the
lease, so that a leader has stopped before another starts. A paused process can miss its own expiry. `permit`, which it
must ask before each request, then stops it.

A leader that could not renew also gives the lease up once its bindings ended, as client-go does with
``ReleaseOnCancel`` (kube-scheduler sets it). Otherwise the next process would wait for a whole lease.

A lease that is given up names in an annotation the version of the pods that the next leader must have seen, see
`handover`. The next holder removes it. Another annotation names nodes that refused pods, see `node_backoffs`. The next
holder leaves it there until its own knowledge is newer. Fields of other writers stay on the lease.
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
    """Another replica took the lease, or it could not be renewed in time: this process must stop deciding."""


def awake_and_asleep() -> float:
    """Return seconds that only grow; where the system counts it, they include the time while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class _Stored(NamedTuple):
    """A lease as the server has it."""

    lease: LeaseObject
    """The fields that we read."""
    whole: dict[str, Any]
    """The whole object, with the fields of other writers."""


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
        Whether the leading part of the process still lives; while it does not, the lease runs out.

    Attributes
    ----------
    leading : whether this replica may decide.
    holding : whether the lease may still have our name. It outlasts `leading` after failed renewals, until the lease is
        given up, expires, or belongs to another replica.
    inherited : the highest version of a pod that the last holder bound before it gave the lease up, until it was seen
        here; empty when it named none.
    backoffs : the annotation of the nodes that refused pods: first the last holder's value, then the value of this
        leader.
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
        """The lease after our last write, while no foreign write is known."""
        self._seen: tuple[str, str | None] | None = None
        self._seen_at = float("-inf")
        self._trouble = ""
        self._turn = asyncio.Lock()
        """Held over each try and renewal: a release waits for the one in flight, and none comes after it."""
        self._withdrawn = False
        self._renewed = float("-inf")
        """Start of the request that last wrote our name on the lease."""
        self.leading = self.holding = False
        self.inherited = ""
        self.backoffs = ""

    @property
    def lease_seconds(self) -> float:
        """How long a lease lasts without a renewal."""
        return self._settings.lease_duration_seconds

    def permit(self) -> None:
        """Permit a request of a leader.

        Raises
        ------
        LeadershipLost
            When another replica may have the lease by now.
        """
        if not self.leading or self._monotonic() >= self._renewed + self._settings.renew_deadline_seconds:
            name = self._settings.lease_name
            raise LeadershipLost(f"another replica may hold the lease {name} by now: nothing is written")

    def guard(self) -> None:
        """Let a write of the lease itself pass; a process that was paused in a renewal does not send it.

        Raises
        ------
        LeadershipLost
            When it would renew a lease that another replica may have by now.
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
            When another replica has the lease, or it was not renewed within the deadline.
        """
        while True:
            await self._sleep(self._settings.retry_period_seconds)
            left = self._renewed + self._settings.renew_deadline_seconds - self._monotonic()
            try:
                async with asyncio.timeout(max(0.0, left)), self._turn:
                    if not self.leading:  # released: there is no lease to renew
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
            The version of the pods that the next leader must have seen. When it is empty, the inherited version that
            was not seen here is passed on, because this replica bound no pod either.
        """
        if not self.holding:
            return
        await self._give_back(bound_up_to, self._settings.renew_deadline_seconds)

    async def withdraw(self) -> None:
        """Stop trying, and give back a lease that may be ours already, although the term did not start; never raises.

        A try may be under way, or its answer may be lost. No replica would know of it, and none would decide until it
        expires.
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
        """Stop all renewals and writes, and leave the lease to expire."""
        self.leading = self.holding = False

    async def _renew(self) -> bool:
        """Take or renew the lease; False when that is not possible now.

        A leader renews in one request, on top of its last write, which takes half the time on a slow server. After a
        foreign write the answer is 409, and the next try reads first (as client-go's leaderelection does). The lease
        counts from before that request, however long an earlier read or the answer takes.
        """
        ours, self._ours = self._ours, None
        try:
            stored = ours if ours is not None and self.leading else await self._read()
            if stored is None:
                started = self._monotonic()
                self._keep(await self._client.create(self._collection, self._body(None, self.identity)), started)
            elif stored.lease.spec.holder_identity == self.identity:
                await self._write(stored, self.identity)
            elif self._free(stored.lease):
                # They are kept before their removal: the answer may be lost, and the next try finds the lease ours
                # already.
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
        # The version that was read goes along: a stale one is refused with 409, so that two candidates never both win.
        started = self._monotonic()
        whole = await self._client.replace(path, self._body(stored, holder, duration_seconds, bound_up_to))
        self._seen = (holder, None)
        if holder:
            self._keep(whole, started)

    def _keep(self, whole: dict[str, Any], started: float) -> None:
        """Note the request that wrote our name on the lease, by its start, and its answer."""
        self._renewed = started
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
        """Return the new lease: of the stored one, only our own fields and our annotations change."""
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
