"""Takes our finalizer off pods of Jobs: off pods that are counted, and off pods that will never be counted.

Called by `job_controller`, which reports when an end is in a Job's status. A pod is a stray when its Job is gone or
being deleted, or when it belongs to an earlier Job of the name. It is also a stray without an owner reference or a
readable index. Invariant: if the cache does not show the owner of a pod, the pod is a stray only when the API server
confirms it. A watch of Jobs may lag behind the watch of pods, and a pod must keep its finalizer until its end is
counted.

A pod stays a while longer where a creation under its name got no answer: if the server carries it out late, the name is
taken. With a free name the late request would make the pod again, and its index would run twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.decoding import read_metadata
from cotide_kube.objects import PodObject
from cotide_kube.turns import Turn, in_turns
from cotide_operator.apis.names import GROUP, VERSION
from cotide_operator.cache.object_cache import CustomObject, ObjectCache, controller_of, owned_key
from cotide_operator.controllers.child_pod_writer import ChildPodWriter
from cotide_operator.controllers.child_pods import ChildPod, index_of, see

LAGGING_SECONDS: Final = 1.0
"""Wall seconds before the next check of a Job that the API server has and the cache has not; chosen."""
UNREADABLE_SECONDS: Final = 30.0
"""The same for a Job in the cache's quarantine; chosen: kopf reports when it changes or is deleted."""
RELEASED_SECONDS: Final = 10.0
"""Wall seconds during which the cache may still show a removed finalizer; chosen, a watch is far faster."""


class Released(NamedTuple):
    """What remains to do after some finalizers were taken off."""

    again_seconds: float | None
    """Wall seconds after which to release the pods with a doubtful name; None when there are none."""
    refused: Mapping[str, str]
    """The API server's error by uid."""


class JobFinalizers:
    """Takes finalizers off, each once.

    Parameters
    ----------
    client : KubeClient
    cache : ObjectCache
    children : ChildPodWriter
        Writes the pods.
    """

    def __init__(self, client: KubeClient, cache: ObjectCache, children: ChildPodWriter) -> None:
        self._client = client
        self._cache = cache
        self._children = children
        self._released: dict[str, float] = {}
        """Monotonic second at which the finalizer of a uid was taken off, oldest first."""

    async def release(
        self, namespace: str, pods: Sequence[ChildPod], unfollowed: frozenset[str] = frozenset(), *, over: bool = False
    ) -> Released:
        """Take the finalizer off pods when the status on the API server counts their ends.

        For the other parameters see `ChildPodWriter.release`.
        """
        now = time.monotonic()
        turn = Turn()
        while self._released and now - next(iter(self._released.values())) >= RELEASED_SECONDS:
            del self._released[next(iter(self._released))]
            await turn.give_way()
        due: list[ChildPod] = []
        again: float | None = None
        for pod in pods:
            await turn.give_way()
            if not pod.tracked or pod.uid in self._released:
                continue
            doubt = self._children.doubt_seconds(f"{namespace}/{pod.name}")
            if doubt:
                again = doubt if again is None else min(again, doubt)
            else:
                due.append(pod)
        refused: dict[str, str] = {}
        if due:
            refused = await self._children.release(namespace, due, unfollowed, over=over)
            self._released.update((pod.uid, now) for pod in due if pod.uid not in refused)
        return Released(again, refused)

    async def release_strays(self, key: str, job: CustomObject | None) -> Released:
        """Release the pods that carry a Job's finalizer and do not belong to it.

        Parameters
        ----------
        key : str
            ``namespace/name``; without a name for pods that name no Job at all.
        job : CustomObject or None
            The Job in the cache.

        Returns
        -------
        Released
            With a time to check again when the API server has a Job that the cache has not, or a pod's name is in
            doubt.
        """
        leaving = job is not None and job.metadata.deletion_timestamp is not None
        uid = job.metadata.uid if job is not None else ""
        strays: list[tuple[PodObject, str]] = []  # each with the uid of its controller
        foreign: list[tuple[PodObject, str]] = []
        turn = Turn()
        for pod in self._cache.pods_kept_for(key):
            await turn.give_way()
            owner = owner_uid(pod)
            if not owner or (owner == uid and (leaving or index_of(pod) < 0)):
                strays.append((pod, owner))
            elif owner != uid:
                foreign.append((pod, owner))
        living = await self._living(key) if foreign else ""
        strays += [(pod, owner) for pod, owner in foreign if owner != living]
        await turn.give_way()
        # Pods that name an owner are deleted with it. A pod without an owner reference lives on by itself.
        going = frozenset(pod.metadata.uid for pod, owner in strays if owner)
        await turn.give_way()
        seen = await in_turns(see, [pod for pod, _ in strays])
        await turn.give_way()
        held = await self.release(key.partition("/")[0], seen, going)
        unreadable = self._cache.quarantine.get("jobs", key) is not None
        lagging = (
            (UNREADABLE_SECONDS if unreadable else LAGGING_SECONDS)
            if any(owner == living for _, owner in foreign)
            else None
        )
        again = min((seconds for seconds in (held.again_seconds, lagging) if seconds is not None), default=None)
        return Released(again, held.refused)

    async def _living(self, key: str) -> str:
        """Return the uid of a Job that exists on the API server and is not being deleted, or an empty text."""
        namespace, _, name = key.partition("/")
        try:
            body = await self._client.request("GET", f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/jobs/{name}")
        except ApiError as error:
            if error.status == 404:
                return ""
            raise
        metadata = read_metadata(body)  # its nesting may be too deep for the cache and for any reader
        if not metadata.get("uid"):
            raise ClusterError(f"the API server's answer about Job {key} names no uid")
        return "" if metadata.get("deletionTimestamp") else str(metadata["uid"])


def owner_uid(pod: PodObject) -> str:
    """Return the uid of the Cotide Job that controls a pod, or an empty text."""
    owner = controller_of(pod.metadata)
    return owner.uid if owner is not None and owned_key(pod.metadata, "Job") is not None else ""
