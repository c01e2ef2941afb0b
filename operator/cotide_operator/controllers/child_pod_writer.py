"""Makes, deletes, releases and adopts child pods: the controllers' only writes to pods.

The Job and the Workload controller call it with the steps of their plans. Invariant: making an existing pod and
deleting a missing one are successes, so that every plan may be carried out twice. A creation without an answer may
still be carried out: for a while its name is in doubt (`doubt_seconds`).

Creations start slowly (1, 2, 4 ... at once) and stop at the first refusal, as in the Job controller of Kubernetes. So a
quota costs one refusal instead of one for each missing pod. Deletions and releases continue after a refusal, which
concerns one pod (a policy webhook's). They stop at a fault, which concerns the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from cotide_core.classes import CLASS_LABEL, MAX_CLASS_LABEL, WorkloadClass, classify
from cotide_core.errors import ClusterError
from cotide_core.units import counted
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_operator.apis.names import KUEUE_FINALIZER, KUEUE_RETRIABLE_ANNOTATION, TRACKING_FINALIZER
from cotide_operator.apis.types import WORKLOAD_LABEL
from cotide_operator.cache.fair_queue import FairSemaphore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.controllers.child_pods import ChildPod, Manifest

AT_ONCE: Final = 16
"""Requests in flight for one object, and for all objects of a namespace; of all namespaces fewer than twice as many.
Chosen: an API server on 2 cores gains nothing beyond. If it answers one tenant slowly, others keep their share."""

REFUSALS: Final = frozenset({400, 403, 409, 422})
"""Status codes of the API server's refusal of this one request."""
DOUBT_SECONDS: Final = 10.0
"""Wall seconds during which a creation without an answer may still be carried out. Chosen: a server gives up the
request of a client that is gone, and finishes a write in progress far sooner."""
T = TypeVar("T")
R = TypeVar("R")

_RELEASED: Final = {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}
"""Strategic merge: other entries of the list stay, and a repetition has no effect."""
_UNFOLLOWED: Final = {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER, KUEUE_FINALIZER]}
"""For a pod of a group of Kueue without a successor: Kueue would keep it, and the quota of the whole group, until it
gets one. Kueue takes its own finalizer off the pods of a StatefulSet in the same case."""
_OVER: Final = {**_UNFOLLOWED, "annotations": {KUEUE_RETRIABLE_ANNOTATION: "false"}}
"""When the Job is over: without it a group with a failed pod would never finish."""


@dataclass(frozen=True, slots=True)
class Made:
    """The outcome of creations.

    Attributes
    ----------
    there : indexes of the manifests whose pods exist now.
    trouble : the API server's error about one of them, in one sentence.
    fault : the error that prevented an answer; to be raised once ``there`` is noted.
    """

    there: frozenset[int]
    trouble: str | None = None
    fault: BaseException | None = None


class ChildPodWriter:
    """Writes pods through a client."""

    def __init__(self, client: KubeClient, cache: ObjectCache) -> None:
        self._client = client
        self._cache = cache
        self._slots = FairSemaphore(2 * AT_ONCE)
        self._doubts: dict[str, float] = {}
        """Monotonic second of each unanswered creation, by the pod's key; oldest first."""

    def doubt_seconds(self, key: str) -> float:
        """Return for how long one of our requests might still make a pod of this key; 0 without such a request."""
        asked = self._doubts.get(key)
        return 0.0 if asked is None else max(0.0, asked + DOUBT_SECONDS - time.monotonic())

    def _doubt(self, key: str) -> None:
        now = time.monotonic()
        self._doubts.pop(key, None)
        while self._doubts and now - next(iter(self._doubts.values())) >= DOUBT_SECONDS:
            del self._doubts[next(iter(self._doubts))]
        self._doubts[key] = now

    async def make(self, manifests: Sequence[Callable[[], Manifest]]) -> Made:
        """Create pods, slowly at first, up to the first refusal; each manifest is made when its turn comes.

        A refusal of the template (400, 403, 422) or a foreign pod of the same name is the user's to settle. Anything
        else is a fault, to be tried again.
        """
        made: set[int] = set()
        start, size = 0, 1
        while start < len(manifests):
            batch = range(start, min(start + size, len(manifests)))
            results = await asyncio.gather(*(self._make_one(manifests[n]) for n in batch), return_exceptions=True)
            made.update(number for number, result in zip(batch, results, strict=True) if result is None)
            fault = next((result for result in results if isinstance(result, BaseException)), None)
            trouble = next((result for result in results if isinstance(result, str)), None)
            if fault is not None or trouble is not None:
                return Made(frozenset(made), trouble, fault)
            start, size = start + size, min(2 * size, AT_ONCE)
        return Made(frozenset(made))

    async def _make_one(self, make: Callable[[], Manifest]) -> str | None:
        manifest = make()
        metadata = manifest["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
        key = f"{metadata['namespace']}/{metadata['name']}"
        try:
            async with self._slots.slot(metadata["namespace"]):
                await self._client.create(path, manifest)
        except ApiError as error:
            if error.status == 409:
                return await self._in_the_way(path, manifest)
            if error.status in (400, 403, 422):
                return f"pod {metadata['name']} is refused by the API server: {error.message}"
            if error.status >= 500:
                self._doubt(key)
            raise
        except ClusterError:
            self._doubt(key)
            raise
        return None

    async def _in_the_way(self, path: str, manifest: Manifest) -> str | None:
        """Distinguish our own pod, made by a request with a lost answer, from a foreign one."""
        name, owner = manifest["metadata"]["name"], manifest["metadata"]["ownerReferences"][0]
        try:
            existing = await self._client.get(f"{path}/{name}")
        except ApiError as error:
            if error.status == 404:  # gone since: the next reconciliation makes it
                return None
            raise
        found = existing.get("metadata") or {}
        owners = found.get("ownerReferences") or ()
        if any(reference.get("uid") == owner["uid"] for reference in owners):
            return None
        if found.get("deletionTimestamp"):
            return f"an earlier pod {name} is still being deleted"
        return f"a pod {name} of another owner is in the way"

    async def delete(self, namespace: str, pods: Iterable[ChildPod]) -> dict[str, str]:
        """Delete pods, with their own grace period; return the API server's errors by uid."""

        async def delete_pod(pod: ChildPod) -> None:
            try:
                async with self._slots.slot(namespace):
                    await self._client.delete(f"/api/v1/namespaces/{namespace}/pods/{pod.name}", uid=pod.uid)
            except ApiError as error:
                if error.status not in (404, 409):  # gone, or replaced by another of the same name
                    raise

        return await _past_refusals(delete_pod, list(pods))

    async def release(
        self, namespace: str, pods: Iterable[ChildPod], unfollowed: Container[str] = (), *, over: bool = False
    ) -> dict[str, str]:
        """Take our finalizer off pods; return the API server's errors by uid.

        A later reconciliation tries refused pods again; a missing pod is a success.

        Parameters
        ----------
        unfollowed : uids of pods without a successor for now; those of a group of Kueue are released from it, too.
        over : whether this Job makes no more pods.
        """

        async def release_pod(pod: ChildPod) -> None:
            marks: Mapping[str, object] = _RELEASED
            if pod.kueue_group and (over or pod.uid in unfollowed):
                marks = _OVER if over else _UNFOLLOWED
            patch = {"metadata": {"uid": pod.uid, **marks}}  # another pod of the name is refused with 409
            try:
                async with self._slots.slot(namespace):
                    await self._client.patch(f"/api/v1/namespaces/{namespace}/pods/{pod.name}", patch, "strategic")
            except ApiError as error:
                if error.status != 404:
                    raise

        return await _past_refusals(release_pod, list(pods))

    async def adopt(self, namespace: str, workload: str, pods: Iterable[PodObject]) -> None:
        """Label the pods that a Workload selects, once; an existing class label stays."""

        async def adopt_pod(pod: PodObject) -> None:
            labels = {}
            if CLASS_LABEL not in pod.metadata.labels:
                labels[CLASS_LABEL] = self.class_in(namespace, WorkloadClass.ONLINE).value
            if pod.metadata.labels.get(WORKLOAD_LABEL) != workload:
                labels[WORKLOAD_LABEL] = workload
            if not labels:
                return
            patch = {"metadata": {"uid": pod.metadata.uid, "labels": labels}}
            try:
                async with self._slots.slot(namespace):
                    await self._client.patch(f"/api/v1/namespaces/{namespace}/pods/{pod.metadata.name}", patch)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise

        await _in_batches(adopt_pod, list(pods))

    def class_in(self, namespace: str, wanted: WorkloadClass) -> WorkloadClass:
        """Return a class as capped by the namespace's ``cotide.dev/max-class``."""
        found = self._cache.namespaces.get(namespace)
        cap = found.metadata.labels.get(MAX_CLASS_LABEL) if found is not None else None
        return classify(owner_class=wanted, max_class=cap)


def summary(refused: Mapping[str, str], what: str) -> str | None:
    """Return the API server's errors about some writes in one sentence, or None without errors."""
    if not refused:
        return None
    return f"{counted(len(refused), 'pod')} can't be {what}; the first: {next(iter(refused.values()))}"


async def _past_refusals(work: Callable[[ChildPod], Awaitable[None]], pods: Sequence[ChildPod]) -> dict[str, str]:
    """Apply a write to each pod; return the API server's errors by uid. A fault stops it and is raised."""

    async def try_work(pod: ChildPod) -> str | None:
        try:
            await work(pod)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            return f"pod {pod.name}: {error.message}"
        return None

    answers = await _in_batches(try_work, pods)
    return {pod.uid: answer for pod, answer in zip(pods, answers, strict=True) if answer is not None}


async def _in_batches(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    results: list[R] = []
    for start in range(0, len(items), AT_ONCE):
        results += await asyncio.gather(*(work(item) for item in items[start : start + AT_ONCE]))
    return results
