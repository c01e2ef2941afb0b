"""Takes our finalizer off pods of Jobs: of those that are counted, and of those that nobody will ever count.

Called by `job_controller`, which says when an end is in a Job's status. A pod is nobody's (a stray) when its Job is
gone or being deleted, when it belongs to an earlier Job of the name, when its owner was taken off it, or when its index
can't be read. Invariant: a pod whose owner the cache does not show is a stray only when the API server says so, too: a
watch of Jobs that lags behind that of pods must not let go of a pod whose end is still to be counted.

A pod is kept a while longer where a creation under its name got no answer: carried out late, it finds the name taken.
Were the name free, it would make the pod again, and its index would run twice.
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
"""Wall seconds before a Job that the API server has and the cache has not is looked for again; chosen."""
UNREADABLE_SECONDS: Final = 30.0
"""The same where the cache has set it aside; chosen: kopf hears when it changes or goes."""
RELEASED_SECONDS: Final = 10.0
"""Wall seconds for which the cache may show a finalizer that was taken off; chosen, a watch is far faster."""


class Released(NamedTuple):
    """What is left to do after some finalizers were taken off."""

    again_seconds: float | None
    """Wall seconds after which to do the rest, whose names are in doubt; None when there is none."""
    refused: Mapping[str, str]
    """By uid what the API server has against it."""


class JobFinalizers:
    """Takes finalizers off, each once.

    Parameters
    ----------
    client : KubeClient
    cache : ObjectCache
    children : ChildWriter
        Who writes pods.
    """

    def __init__(self, client: KubeClient, cache: ObjectCache, children: ChildPodWriter) -> None:
        self._client = client
        self._cache = cache
        self._children = children
        self._released: dict[str, float] = {}
        """Uid to the monotonic second at which its finalizer was taken off, oldest first."""

    async def release(
        self, namespace: str, pods: Sequence[ChildPod], unfollowed: frozenset[str] = frozenset(), *, over: bool = False
    ) -> Released:
        """Take the finalizer off pods whose ends are in the status that the API server has; for the rest of the
        parameters see `ChildPodWriter.release`."""
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
        """Let go of the pods that are kept for a Job and are none of its own.

        Parameters
        ----------
        key : str
            ``namespace/name``; without a name for pods that tell no Job at all.
        job : CustomObject or None
            As the cache has it.

        Returns
        -------
        Released
            To look again when the API server has a Job that the cache has not, or a pod's name is in doubt.
        """
        leaving = job is not None and job.metadata.deletion_timestamp is not None
        uid = job.metadata.uid if job is not None else ""
        strays: list[tuple[PodObject, str]] = []  # with the uid of who controls it
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
        # Those that name an owner go with it; one whose owner was taken off it lives on by itself.
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
        """Return the uid of a Job that is there and not being deleted, as the API server has it now, or nothing."""
        namespace, _, name = key.partition("/")
        try:
            body = await self._client.request("GET", f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/jobs/{name}")
        except ApiError as error:
            if error.status == 404:
                return ""
            raise
        metadata = read_metadata(body)  # it may be one that the cache can't hold, too deep for any reader
        if not metadata.get("uid"):
            raise ClusterError(f"the API server's answer about Job {key} names no uid")
        return "" if metadata.get("deletionTimestamp") else str(metadata["uid"])


def owner_uid(pod: PodObject) -> str:
    """Return the uid of the Job of ours that controls a pod, or nothing."""
    owner = controller_of(pod.metadata)
    return owner.uid if owner is not None and owned_key(pod.metadata, "Job") is not None else ""
