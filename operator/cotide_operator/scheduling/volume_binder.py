"""Prepares the volumes of a pod before its binding: selects the node, and waits until the volumes exist.

`binder` calls it for a binding if claims of the pod wait for a node. An existing volume is reserved for its claim. A
claim that needs a new volume receives the node. The states::

    decided -> written -> waits --all claims bound-----------------> the pod is bound
                 |          |----- a claim lost its node, is gone -> refused, decided again
                 |          `----- time-out: the node is taken back, `-> refused, decided again, on another node
                 `- 409: another writer was faster -> refused, decided again

The writes stay when this replica stops: the claim's annotation names the node, and the next leader decides on that node
and continues to wait. Invariant: a claim loses its node only after this replica waited for it until the time-out. A
volume that is reserved here is offered to no other claim, even before the watch shows the reservation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from cotide_core.errors import ClusterError
from cotide_core.events import OpenClaim
from cotide_core.instructions import Bind
from cotide_core.placement.node_predicates import volume_refusal, volumes_for
from cotide_core.state.shapes import Constraints
from cotide_kube.answers import Answer, ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import ClaimObject
from cotide_operator.cache.fair_queue import FairQueue, FairSemaphore
from cotide_operator.cache.object_cache import Kind, ObjectCache, key_of, namespace_of_key
from cotide_operator.translation.pods_and_nodes import translate_node
from cotide_operator.translation.volumes.claims import SELECTED_NODE, WaitingClaim, is_bound
from cotide_operator.translation.volumes.reader import VolumeReader

_LOG = logging.getLogger(__name__)

AVOIDED_TIMES: Final = 5.0
"""Time-outs during which a node is avoided after it made no volume in time; chosen."""
WRITES_AT_ONCE: Final = 32
"""Claims and volumes with a write in flight. Chosen: one namespace alone has half of them, as many as pods of a Job are
created at a time. A hanging write in one namespace delays no other."""
WOKEN_AT_ONCE: Final = 32
"""Pods that check their claims in one turn of the loop; chosen: about 5 ms."""
REASON: Final = "VolumesNotBound"
Refused = tuple[Answer, bool]
"""An answer, and whether the pod may be tried again."""
_BY_US: Final = {"pv.kubernetes.io/bound-by-controller": "yes"}
"""The annotation that kube-scheduler also writes: the volume is released with the claim."""


class VolumeBinder:
    """Prepares the volumes of pods.

    Parameters
    ----------
    reader : VolumeReader
        State of claims; it receives the nodes to avoid.
    timeout_seconds : float
        Wall seconds that claims have to be bound (kube-scheduler's ``bindTimeoutSeconds``).
    """

    def __init__(self, client: KubeClient, cache: ObjectCache, reader: VolumeReader, timeout_seconds: float) -> None:
        self._client = client
        self._cache = cache
        self._reader = reader
        self._timeout_seconds = timeout_seconds
        self._slots = FairSemaphore(WRITES_AT_ONCE)
        self._waits: dict[str, dict[asyncio.Event, str]] = {}
        """By claim and pod: an event for each waiting pod, with its namespace. Pods may share a claim."""
        self._woken: FairQueue[asyncio.Event] = FairQueue()
        """Events of pods that are due to check their claims."""
        self._reserved: dict[str, str] = {}
        """Volume to the uid of the claim that reserved it, until the watch shows it."""
        cache.subscribe(self._changed)

    def concerns(self, bind: Bind) -> bool:
        """Whether a pod has claims that wait for its node."""
        pod = self._cache.pods.get(bind.key)
        if pod is None or not pod.spec.volumes:
            return False
        opened = self._reader.opened(pod)
        return opened is None or bool(opened)

    async def prepare(self, bind: Bind) -> Refused | None:
        """Write what the claims need, and wait; return why the pod can't be bound, None if its volumes exist."""
        pod, node = self._cache.pods.get(bind.key), self._cache.nodes.get(bind.node)
        if pod is None or pod.metadata.uid != bind.uid:
            return _gone(f"pod {bind.key} is gone")
        opened = self._reader.opened(pod)
        if node is None or opened is None:
            return _again("the state of its volumes changed meanwhile")
        translated = translate_node(node)
        chosen = volumes_for(translated, tuple(self._without_reserved(waiting_claim) for waiting_claim in opened))
        if chosen is None:
            return _again("no volume is left for it on this node")
        claims = [waiting_claim.claim for waiting_claim in opened]
        try:
            for waiting_claim, volume in zip(opened, chosen, strict=True):
                await self._write(waiting_claim.claim, volume, bind.node)
        except ApiError as error:
            return Answer(error.status, REASON, str(error)), True
        except ClusterError as error:
            return Answer(0, REASON, str(error)), True
        made = [claim for claim, volume in zip(claims, chosen, strict=True) if not volume]
        return await self._await_bound(bind, claims, made)

    def _without_reserved(self, waiting_claim: WaitingClaim) -> OpenClaim:
        """Leave out volumes with a reservation for other claims that the watch does not show yet."""
        uid, choice = waiting_claim.claim.metadata.uid, waiting_claim.choice
        free = tuple(volume for volume in choice.volumes if self._reserved.get(volume.name, uid) == uid)
        if len(free) == len(choice.volumes):
            return choice
        return OpenClaim(free, choice.provisions, choice.topologies, choice.node, choice.avoided)

    async def _write(self, claim: ClaimObject, volume: str, node: str) -> None:
        if volume:
            await self._reserve(claim, volume)
        elif claim.metadata.annotations.get(SELECTED_NODE) != node:
            await self._select(claim, node)

    async def _select(self, claim: ClaimObject, node: str | None) -> None:
        """Write the node of a claim, or remove it; refused if the claim changed since it was read."""
        metadata = claim.metadata
        path = f"/api/v1/namespaces/{metadata.namespace}/persistentvolumeclaims/{metadata.name}"
        written = {"resourceVersion": metadata.resource_version, "annotations": {SELECTED_NODE: node}}
        async with self._slots.slot(metadata.namespace):
            await self._client.patch(path, {"metadata": written})

    async def _reserve(self, claim: ClaimObject, name: str) -> None:
        volume = self._cache.persistentvolumes.get(name)
        if volume is None:  # deleted since the choice: another claim was written first
            raise ClusterError(f"volume {name} is gone")
        if volume.spec.claim_ref is not None and volume.spec.claim_ref.uid == claim.metadata.uid:
            return
        self._reserved[name] = claim.metadata.uid
        of = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
        }
        metadata = {"resourceVersion": volume.metadata.resource_version, "annotations": _BY_US}
        try:
            async with self._slots.slot(claim.metadata.namespace):
                await self._client.patch(
                    f"/api/v1/persistentvolumes/{name}", {"metadata": metadata, "spec": {"claimRef": of}}
                )
        except ClusterError:
            # Also without an answer: if the write succeeded, the version makes the server refuse another claim's write.
            self._reserved.pop(name, None)
            raise

    async def _await_bound(self, bind: Bind, claims: list[ClaimObject], made: list[ClaimObject]) -> Refused | None:
        """Wait until all claims are bound; claims that need a new volume must keep their node meanwhile."""
        changed = asyncio.Event()
        namespace = namespace_of_key(bind.key)
        keys = [bind.key, *(key_of(claim.metadata) for claim in claims)]
        selected: set[str] = set()
        """Claims that the watch has shown with their node."""
        for key in keys:
            self._waits.setdefault(key, {})[changed] = namespace
        try:
            async with asyncio.timeout(self._timeout_seconds):
                while True:
                    changed.clear()
                    waits, refused = self._look(bind, claims, made, selected)
                    if refused is not None or not waits:
                        return refused
                    await changed.wait()
        except TimeoutError:
            return await self._let_go(bind, made)
        finally:
            self._woken.drop(changed)
            for key in dict.fromkeys(keys):
                del self._waits[key][changed]
                if not self._waits[key]:
                    del self._waits[key]

    def _look(
        self, bind: Bind, claims: list[ClaimObject], made: list[ClaimObject], selected: set[str]
    ) -> tuple[bool, Refused | None]:
        """Return whether to go on waiting, and why the wait failed."""
        pod, node = self._cache.pods.get(bind.key), self._cache.nodes.get(bind.node)
        if pod is None or pod.metadata.uid != bind.uid or pod.metadata.deletion_timestamp is not None:
            return False, _gone(f"pod {bind.key} is gone")
        if node is None:
            return False, _again(f"node {bind.node} is gone")
        waits = False
        for claim in claims:
            name = claim.metadata.name
            now = self._cache.persistentvolumeclaims.get(key_of(claim.metadata))
            if now is None or now.metadata.uid != claim.metadata.uid:
                return False, _again(f"claim {name} is gone")
            if is_bound(now):
                volume = self._reader.volume_of(now)
                if volume is None:
                    waits = True
                    continue
                terms = self._reader.reach_of(volume)
                if terms and volume_refusal(translate_node(node), Constraints(volume_terms=terms)):
                    return False, _again(f"claim {name} was bound to a volume that {bind.node} can't use")
                continue
            waits = True
            if claim in made:
                if now.metadata.annotations.get(SELECTED_NODE) == bind.node:
                    selected.add(name)
                elif name in selected:
                    return False, _again(f"no volume can be made for claim {name} on {bind.node}")
        return waits, None

    async def _let_go(self, bind: Bind, made: list[ClaimObject]) -> Refused:
        """Remove the node from unbound claims, and avoid it for a while."""
        seconds = self._timeout_seconds
        for claim in made:
            key = key_of(claim.metadata)
            now = self._cache.persistentvolumeclaims.get(key)
            if now is None or is_bound(now) or now.metadata.annotations.get(SELECTED_NODE) != bind.node:
                continue
            try:
                await self._select(now, None)
            except ClusterError as error:
                _LOG.warning("claim %s keeps its node %s: %s", key, bind.node, error)
                continue
            self._reader.avoid(key, bind.node)
            asyncio.get_running_loop().call_later(AVOIDED_TIMES * seconds, self._reader.pardon, key, bind.node)
        _LOG.warning("the volumes of %s were not bound on %s within %g s", bind.key, bind.node, seconds)
        return _again(f"its volumes were not bound within {seconds:g} s")

    def _changed(self, kind: Kind, key: str) -> None:
        if kind == "persistentvolumes":
            volume = self._cache.persistentvolumes.get(key)
            reference = volume.spec.claim_ref if volume is not None else None
            if volume is None or reference is not None:
                self._reserved.pop(key, None)
            if reference is not None:
                self._wake((f"{reference.namespace}/{reference.name}",))
        elif kind in ("persistentvolumeclaims", "pods"):
            self._wake((key,))
        elif kind == "nodes" and key not in self._cache.nodes:
            self._wake(tuple(self._waits))

    def _wake(self, keys: Iterable[str]) -> None:
        """Wake the pods that wait for these claims, a few in each turn of the loop: many pods may share a claim."""
        if not self._waits:
            return
        is_due = bool(self._woken)
        for key in keys:
            for changed, namespace in self._waits.get(key, {}).items():
                self._woken.add(changed, namespace)
        if self._woken and not is_due:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def _wake_some(self) -> None:
        for _ in range(min(WOKEN_AT_ONCE, len(self._woken))):
            changed = self._woken.pop()
            if changed is not None:
                changed.set()
        if self._woken:
            asyncio.get_running_loop().call_soon(self._wake_some)


def _again(why: str) -> Refused:
    return Answer(409, REASON, why), True


def _gone(why: str) -> Refused:
    return Answer(404, "NotFound", why), False
