"""What a stopping leader passes to the next one: the highest version of a pod that it bound.

A binding is on the API server before any watch reports it. After a clean stop the next leader decides within a second,
and its own watch of the pods may be behind. It would find room that the last pods already took. After a kill the lease
expires first, which is time enough. So a clean stop takes these steps::

    old leader: bindings answered --its watch shows them, or a GET of each--> highest version of a pod that it bound
                                                                                             |
                                                                         annotation on the lease (see `lease`)
                                                                                             v
    new leader: lease taken, everything listed, --its watch of the pods has come that far--> first decision

It must be the version of a pod: a watch delivers that very event or a later one. The version of another kind may never
appear among the pods (see `cotide_kube.versions`). Without a version of a pod, the next leader does not wait.

Every leader also asks for bound pods that the watch has not shown for long. A pod keeps its node permanently. So a pod
without a node after an answered binding belongs to other data, see `cotide_kube.reflector`. A watch may not report it:
a backup from before the binding has the pod in the state that the watch last showed.

Invariant: the lease is not given up while a binding may be carried out that the next leader could not know. It expires
by itself then, as after a kill.
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
"""Time for the own watch to show the last bindings; chosen: mostly it has already, and a standby waits for us."""
UNSHOWN_SECONDS: Final = 10.0
"""Seconds before the leader asks for a bound pod that the watch does not show, and between two such rounds. Chosen: a
watch that is so far behind has had a long gap."""
ASKED_AT_ONCE: Final = 10
"""Such pods in a round; chosen: a single one without a node is proof enough."""
CHECK_SECONDS: Final = 2.0
"""Time limit for asking for the pods that the watch did not show. Chosen."""


class _Unseen(NamedTuple):
    """A bound pod that the cache does not show as bound yet."""

    uid: str
    since: float
    """When it was bound or last asked for, on the loop's clock."""


class Handover:
    """Both ends of one replica: it inherits when its term begins, and hands over when it stops; `watch` runs in
    between.

    Parameters
    ----------
    client : KubeClient
    cache : ObjectCache
    """

    def __init__(self, client: KubeClient, cache: ObjectCache) -> None:
        self._client = client
        self._cache = cache
        self._unseen: dict[str, _Unseen] = {}
        """By the pod's key, in the order of their times."""
        self._bound_up_to = ""
        self._bound_order: tuple[int, str] | None = None
        """The sort key of that version."""
        self._changed = asyncio.Event()
        cache.subscribe(self._hear)

    def note(self, report: Report) -> None:
        """Note a successful binding; every report of the binder comes here."""
        if isinstance(report, BindReport) and report.bound:
            self._put(report.bind.key, report.bind.uid)
            self._compare(report.bind.key)

    async def watch(self) -> None:
        """Ask for bound pods that the watch has not shown for long, until cancelled.

        Raises
        ------
        BackupRestored
            When one of them is not bound.
        """
        while True:
            await asyncio.sleep(UNSHOWN_SECONDS)
            before = asyncio.get_running_loop().time() - UNSHOWN_SECONDS
            oldest = itertools.islice(self._unseen.items(), ASKED_AT_ONCE)
            due = [(key, unseen.uid) for key, unseen in oldest if unseen.since <= before]
            for found in await asyncio.gather(*(self._ask(key, uid) for key, uid in due)):
                if found is not None:
                    raise BackupRestored(
                        f"the API server has pod {found} without a node, after it had confirmed the binding: "
                        "a backup was restored"
                    )

    async def _ask(self, key: str, uid: str) -> str | None:
        """Return the pod if it is not bound. Else drop it when it is gone, or put it behind the others for a later
        check."""
        pod = await self._get(key)
        now = self._unseen.get(key)
        if pod is None or now is None or now.uid != uid:  # shown or gone, or another pod has the name
            return None
        if not pod or pod["metadata"]["uid"] != uid:
            del self._unseen[key]
        elif not pod["spec"].get("nodeName"):
            return key
        else:
            self._put(key, uid)
        return None

    async def hand_over(self, leadership: LeaderElector | LeaseThread, unanswered: int) -> None:
        """Give the lease up with the version that the next leader must have seen. Call it when all binding requests are
        over.

        Parameters
        ----------
        leadership : LeaderElector or LeaseThread
        unanswered : int
            Bindings with an unknown outcome.
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
        """Return when the last leader's bindings were seen; call it once everything was listed."""
        if leadership is None or not leadership.inherited:
            return
        version, seconds = leadership.inherited, leadership.lease_seconds
        if not self._seen(version):
            _LOG.info("waiting until the watch of pods shows what the last leader bound (version %s)", version)
            # The wait needs an end: the annotation may be ahead of the server's data (a restored backup), and no
            # replica would decide. It lasts as long as a lease, the same time as after a kill.
            if not await self._until(lambda: self._seen(version), seconds):
                _LOG.warning(
                    "the watch of pods is at version %s and did not reach %s within %g s: deciding nevertheless, "
                    "though nodes may hold pods that were not seen",
                    self._cache.pods_version,
                    version,
                    seconds,
                )
        leadership.inherited = ""

    async def _learned(self) -> bool:
        """Wait until the watch shows each bound pod, and ask for those that it does not show."""
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
        if unseen is not None and metadata.get("uid") == unseen.uid:  # else it is gone and holds nothing
            self._keep(str(metadata.get("resourceVersion", "")))

    async def _get(self, key: str) -> dict[str, Any] | None:
        """Return a pod, an empty one when it does not exist, or None without a usable answer."""
        namespace, _, name = key.partition("/")
        try:
            pod = await self._client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        except ApiError as error:
            return {} if error.status == 404 else None
        except ClusterError:
            return None
        metadata, spec = pod.get("metadata"), pod.get("spec")
        readable = isinstance(metadata, dict) and isinstance(spec, dict) and metadata.get("uid")
        return pod if not pod or readable else None

    def _put(self, key: str, uid: str) -> None:
        self._unseen.pop(key, None)  # to the end
        self._unseen[key] = _Unseen(uid, asyncio.get_running_loop().time())

    def _hear(self, kind: Kind, key: str) -> None:
        self._changed.set()
        if kind == "pods" and key in self._unseen:
            self._compare(key)

    def _compare(self, key: str) -> None:
        pod = self._cache.pods.get(key)
        if pod is None or pod.metadata.uid != self._unseen[key].uid:
            del self._unseen[key]  # gone: it holds nothing
        elif pod.spec.node_name:
            del self._unseen[key]
            self._keep(pod.metadata.resource_version)

    def _keep(self, version: str) -> None:
        found = order(version)
        if found is not None and (self._bound_order is None or found > self._bound_order):
            self._bound_up_to, self._bound_order = version, found

    def _seen(self, version: str) -> bool:
        seen, wanted = order(self._cache.pods_version), order(version)
        return seen is None or wanted is None or seen >= wanted

    async def _until(self, true: Callable[[], bool], seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not true():
                    self._changed.clear()
                    await self._changed.wait()
        return true()
