"""What a leader that stops tells the next one: up to which version of the pods it has bound.

A binding is on the API server before any watch tells of it. After a clean stop the next leader decides within a second,
and its own watch of the pods may be behind: it would find room where the last pods went. After a kill the lease runs
out first, which is time enough. So, of a clean stop::

    old leader: bindings answered --its watch shows them, or a look at each--> highest version of a pod that it bound
                                                                                             |
                                                                         annotation on the lease (see `lease`)
                                                                                             v
    new leader: lease taken, everything listed, --its watch of the pods has come that far--> first decision

It must be the version of a pod: a watch delivers that very event or a later one, while the version of anything else
may never come up among the pods (see `cotide_kube.versions`). Where one is none, there is nothing to wait for.

What was bound and is not shown for long is asked for, too, by whoever leads: a pod keeps its node for ever, so that one
without, though its binding was answered, is of other data, see `cotide_kube.reflector`. A watch may have nothing to
tell of it: where the backup is of a moment before the binding the pod is as it was shown.

Invariant: while a binding may be carried out of which the next leader could not know, the lease is not given up: it
runs out by itself, as after a kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.reflector import BackupRestored
from cotide_kube.versions import order
from cotide_operator.cache.object_cache import Kind, ObjectCache
from cotide_operator.leaderelection.lease import LeaderElector
from cotide_operator.leaderelection.lease_thread import LeaseThread
from cotide_operator.scheduling.binder import BindReport, Report

_LOG = logging.getLogger(__name__)

SHOWN_SECONDS: Final = 0.5
"""How long the own watch has to show the last bindings; chosen: mostly it has already, and a standby waits for us."""
UNSHOWN_SECONDS: Final = 10.0
"""After which a pod that was bound and is not shown so is asked for, and between two such rounds; chosen: a watch that
is so far behind has had a long gap."""
ASKED_AT_ONCE: Final = 10
"""Of such pods, in a round; chosen: one that is not bound tells of all."""
CHECK_SECONDS: Final = 2.0
"""How long it may take to look at the pods that it did not show. Chosen."""


class _Unseen(NamedTuple):
    """A pod that was bound and that the mirror does not show so yet."""

    uid: str
    since: float
    """When it was bound or asked for last, on the loop's clock."""


class Handover:
    """Both ends of one replica: it inherits when it begins to lead, and hands over when it stops; `watch` is between.

    Parameters
    ----------
    client : KubeClient
    mirror : Mirror
    """

    def __init__(self, client: KubeClient, mirror: ObjectCache) -> None:
        self._client = client
        self._mirror = mirror
        self._unseen: dict[str, _Unseen] = {}
        """By the pod's key, in the order of their times."""
        self._bound_up_to = ""
        self._bound_order: tuple[int, str] | None = None
        """What sorts that version."""
        self._changed = asyncio.Event()
        mirror.subscribe(self._hear)

    def note(self, report: Report) -> None:
        """Note a binding that was carried out; every report of the binder comes here."""
        if isinstance(report, BindReport) and report.bound:
            self._put(report.bind.key, report.bind.uid)
            self._compare(report.bind.key)

    async def watch(self) -> None:
        """Ask for pods that were bound and are not shown so for long, until cancelled.

        Raises
        ------
        BackupRestored
            When one of them is not bound.
        """
        while True:
            await asyncio.sleep(UNSHOWN_SECONDS)
            before = asyncio.get_running_loop().time() - UNSHOWN_SECONDS
            oldest = itertools.islice(self._unseen.items(), ASKED_AT_ONCE)
            due = [(key, one.uid) for key, one in oldest if one.since <= before]
            for found in await asyncio.gather(*(self._ask(key, uid) for key, uid in due)):
                if found is not None:
                    raise BackupRestored(
                        f"the API server has pod {found} without a node, and had said that it was bound: "
                        "a backup was restored"
                    )

    async def _ask(self, key: str, uid: str) -> str | None:
        """Return the pod if it is not bound; else it is gone, or asked for again after others."""
        pod = await self._get(key)
        now = self._unseen.get(key)
        if pod is None or now is None or now.uid != uid:  # shown, gone or another one meanwhile
            return None
        if not pod or pod["metadata"]["uid"] != uid:
            del self._unseen[key]
        elif not pod["spec"].get("nodeName"):
            return key
        else:
            self._put(key, uid)
        return None

    async def hand_over(self, leadership: LeaderElector | LeaseThread, unanswered: int) -> None:
        """Give the lease up with what the next leader must have seen; call it when nothing is posted any more.

        Parameters
        ----------
        leadership : Leadership
        unanswered : int
            Bindings of which nobody knows whether they will be carried out.
        """
        if not leadership.holding:
            return
        if not unanswered and await self._learned():
            await leadership.release(self._bound_up_to)
            return
        leadership.let_expire()
        _LOG.warning(
            "the lease is left to expire by itself: the next leader could not know of %d of the last bindings",
            unanswered or len(self._unseen),
        )

    async def inherit(self, leadership: LeaderElector | LeaseThread | None) -> None:
        """Return when what the last leader bound was seen; call it once everything was listed."""
        if leadership is None or not leadership.inherited:
            return
        version, seconds = leadership.inherited, leadership.lease_seconds
        if not self._seen(version):
            _LOG.info("waiting until the watch of pods shows what the last leader bound (version %s)", version)
            # Without end nobody would decide, were the annotation older than the server's data (a restored backup).
            # As long as a lease lasts: after a kill nobody knows more.
            if not await self._until(lambda: self._seen(version), seconds):
                _LOG.warning(
                    "the watch of pods is at version %s and did not reach %s within %g s: deciding nevertheless, "
                    "though nodes may hold pods that were not seen",
                    self._mirror.pods_version,
                    version,
                    seconds,
                )
        leadership.inherited = ""

    async def _learned(self) -> bool:
        """Wait until the watch shows each pod that was bound, and look at those that it does not show."""
        if await self._until(lambda: not self._unseen, SHOWN_SECONDS):
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await asyncio.gather(*map(self._look, list(self._unseen)))
        return not self._unseen

    async def _look(self, key: str) -> None:
        pod = await self._get(key)
        if pod is None:
            return
        metadata = pod.get("metadata") or {}
        unseen = self._unseen.pop(key, None)
        if unseen is not None and metadata.get("uid") == unseen.uid:  # else it is gone, and so is what it held
            self._keep(str(metadata.get("resourceVersion", "")))

    async def _get(self, key: str) -> dict[str, Any] | None:
        """Return a pod, an empty one where there is none; None for no answer that says anything."""
        namespace, _, name = key.partition("/")
        try:
            pod = await self._client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        except ApiError as error:
            return {} if error.status == 404 else None
        except ClusterError:
            return None
        metadata, spec = pod.get("metadata"), pod.get("spec")
        says = isinstance(metadata, dict) and isinstance(spec, dict) and metadata.get("uid")
        return pod if not pod or says else None

    def _put(self, key: str, uid: str) -> None:
        self._unseen.pop(key, None)  # to the end
        self._unseen[key] = _Unseen(uid, asyncio.get_running_loop().time())

    def _hear(self, kind: Kind, key: str) -> None:
        self._changed.set()
        if kind == "pods" and key in self._unseen:
            self._compare(key)

    def _compare(self, key: str) -> None:
        pod = self._mirror.pods.get(key)
        if pod is None or pod.metadata.uid != self._unseen[key].uid:
            del self._unseen[key]  # gone, and so is what it held
        elif pod.spec.node_name:
            del self._unseen[key]
            self._keep(pod.metadata.resource_version)

    def _keep(self, version: str) -> None:
        found = order(version)
        if found is not None and (self._bound_order is None or found > self._bound_order):
            self._bound_up_to, self._bound_order = version, found

    def _seen(self, version: str) -> bool:
        seen, wanted = order(self._mirror.pods_version), order(version)
        return seen is None or wanted is None or seen >= wanted

    async def _until(self, true: Callable[[], bool], seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not true():
                    self._changed.clear()
                    await self._changed.wait()
        return true()
