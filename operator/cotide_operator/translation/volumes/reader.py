"""The demands of a pod's volumes on its node, from claims, volumes and storage classes.

`event_source` calls it for each pod that names claims, and `volume_binder` for its writes. It also indexes the pods
that a changed object affects. Semantics: kube-scheduler's plugins VolumeBinding, VolumeZone, VolumeRestrictions and
NodeVolumeLimits, and the Kubernetes documentation, "Persistent Volumes" and "Storage Classes". Invariant: a pod with an
invalid claim is ``blocked`` with a reason; no claim is ever ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cotide_core.errors import InputError
from cotide_core.events import NodeTerm, OpenClaim
from cotide_core.limits import MAX_REQUIREMENTS
from cotide_core.units import resource_amount
from cotide_kube.objects import ClaimObject, PodObject, StorageClassObject, VolumeObject
from cotide_operator.cache.object_cache import Kind, ObjectCache, controller_of, key_of
from cotide_operator.translation.volumes.claims import (
    SELECTED_NODE,
    Blocked,
    VolumeFacts,
    WaitingClaim,
    claim_names,
    entries_of_selector,
    is_bound,
    lost,
    storage_class_of,
)
from cotide_operator.translation.volumes.free_volumes import FreeVolumes
from cotide_operator.translation.volumes.groups import drop
from cotide_operator.translation.volumes.node_attachments import NodeAttachments
from cotide_operator.translation.volumes.reach import bound_terms, reach, topologies
from cotide_operator.translation.volumes.storage_capacities import StorageCapacities

_WAITS: Final = "WaitForFirstConsumer"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_FOR_ONE_POD: Final = "ReadWriteOncePod"
_UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"
KINDS: Final[frozenset[Kind]] = frozenset(
    {
        "persistentvolumeclaims",
        "persistentvolumes",
        "storageclasses",
        "csinodes",
        "csidrivers",
        "csistoragecapacities",
        "volumeattachments",
    }
)
"""The kinds that this module reads."""


class VolumeReader:
    """Finds the demands of pods' volumes in the latest objects.

    Parameters
    ----------
    cache : read only; the caller passes each change of `KINDS` to `concerned`, which updates the index.
    """

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._free = FreeVolumes(cache)
        self._room = StorageCapacities(cache)
        self._on_nodes = NodeAttachments(cache)
        self._claims_of: dict[str, tuple[str, ...]] = {}
        """Claims by pod."""
        self._claimants: dict[str, dict[str, None]] = {}
        """Pods by claim, whether or not the claim exists."""
        self._classes_of: dict[str, set[str]] = {}
        """Storage classes by pod, of its unbound claims."""
        self._waiting: dict[str, dict[str, None]] = {}
        """Pods with an unbound claim, by storage class."""
        self._avoided: dict[str, dict[str, None]] = {}
        """Nodes by claim, see `avoid`."""

    def facts(self, pod: PodObject) -> VolumeFacts | None:
        """Return the demands of a pod's volumes; None if it names no claim.

        For a pod with a node, return only the volumes that it withholds from others.
        """
        names = claim_names(pod)
        key = key_of(pod.metadata)
        self._register(key, tuple(claim for claim, _ in names))
        if not names:
            return None
        found = [self._cache.persistentvolumeclaims.get(claim) for claim, _ in names]
        sole = tuple(
            claim
            for (claim, ephemeral), claim_object in zip(names, found, strict=True)
            if claim_object is not None and not ephemeral and _FOR_ONE_POD in claim_object.spec.access_modes
        )
        attachments = self._on_nodes.attachments(found)
        if pod.spec.node_name:
            return VolumeFacts(attachments=attachments, sole_claims=sole)
        try:
            terms, opened = self._judge(pod, key, names)
        except Blocked as why:
            return VolumeFacts(attachments=attachments, sole_claims=sole, blocked=str(why))
        return VolumeFacts(terms, tuple(waiting_claim.choice for waiting_claim in opened), attachments, sole)

    def claims_of(self, key: str) -> int:
        """Return the number of claims that a pod names, by its key, at its last `facts`."""
        return len(self._claims_of.get(key, ()))

    def opened(self, pod: PodObject) -> list[WaitingClaim] | None:
        """Return the claims of a pod that wait for its node, in the order of its ``open_claims``; None: blocked."""
        try:
            return self._judge(pod, key_of(pod.metadata), claim_names(pod))[1]
        except Blocked:
            return None

    def volume_of(self, claim: ClaimObject) -> VolumeObject | None:
        """Return the volume of a bound claim; None if the claim is unbound, or the volume does not exist."""
        return self._cache.persistentvolumes.get(claim.spec.volume_name) if is_bound(claim) else None

    def reach_of(self, volume: VolumeObject) -> tuple[tuple[NodeTerm, ...], ...]:
        """Return the nodes that reach a volume: one of each tuple of alternatives must match."""
        return tuple(reach(volume))

    def limits_of(self, node: str) -> tuple[tuple[str, int], ...]:
        """Return the drivers with a limit on a node, and the number of volumes that can be attached."""
        return self._on_nodes.limits_of(node)

    def attached_to(self, node: str) -> tuple[tuple[str, str], ...]:
        """Return the attached volumes of a node, of drivers with a limit there; beyond the bound the first by name."""
        return self._on_nodes.attached_to(node)

    def nodes_concerned(self, kind: Kind, key: str) -> Iterable[str]:
        """Update the index after a change of an object of `KINDS`; return the nodes that it affects."""
        return self._on_nodes.nodes_concerned(kind, key)

    def avoid(self, claim: str, node: str) -> None:
        """Search a volume for a claim on other nodes, until `pardon`."""
        self._avoided.setdefault(claim, {})[node] = None
        self._cache.look_again("persistentvolumeclaims", claim)

    def pardon(self, claim: str, node: str) -> None:
        """Undo `avoid`."""
        nodes = self._avoided.get(claim, {})
        if nodes.pop(node, "") is None:
            if not nodes:
                del self._avoided[claim]
            self._cache.look_again("persistentvolumeclaims", claim)

    def concerned(self, kind: Kind, key: str) -> Iterable[str]:
        """Update the index after a change of an object of `KINDS`; return the pods that it may affect."""
        match kind:
            case "persistentvolumeclaims":
                if key not in self._cache.persistentvolumeclaims:
                    self._avoided.pop(key, None)
                return list(self._claimants.get(key, ()))
            case "persistentvolumes":
                return self._volume_changed(key)
            case "storageclasses":
                return list(self._waiting.get(key, ()))
            case "csinodes":
                return list(self._claims_of) if self._on_nodes.limits_changed(key) else ()
            case "csidrivers":
                return self._waiting_on_driver(key)
            case "csistoragecapacities":
                return self._capacity_changed(key)
            case _:
                return ()

    def forget(self, key: str) -> None:
        """Drop a deleted pod."""
        self._register(key, ())

    def _waiting_on_driver(self, driver: str) -> list[str]:
        """Return the pods with an unbound claim of a class of this driver."""
        found: dict[str, None] = {}
        for name, pods in self._waiting.items():
            storage_class = self._cache.storageclasses.get(name)
            if storage_class is not None and storage_class.provisioner == driver:
                found.update(pods)
        return list(found)

    def _volume_changed(self, name: str) -> Iterable[str]:
        found = self._free.changed(name)
        pods: dict[str, None] = {}
        for claim in found.claims:
            pods.update(self._claimants.get(claim, ()))
        for storage_class in found.classes:
            pods.update(self._waiting.get(storage_class, ()))
        return pods

    def _capacity_changed(self, key: str) -> list[str]:
        pods: dict[str, None] = {}
        for storage_class in self._room.changed(key):
            pods.update(self._waiting.get(storage_class, ()))
        return list(pods)

    def _register(self, key: str, claims: tuple[str, ...]) -> None:
        for name in self._classes_of.pop(key, ()):
            drop(self._waiting, name, key)
        before = self._claims_of.get(key, ())
        if before == claims:
            return
        for claim in before:
            drop(self._claimants, claim, key)
        self._claims_of.pop(key, None)
        if claims:
            self._claims_of[key] = claims
            for claim in claims:
                self._claimants.setdefault(claim, {})[key] = None

    def _judge(
        self, pod: PodObject, key: str, names: list[tuple[str, bool]]
    ) -> tuple[tuple[tuple[NodeTerm, ...], ...], list[WaitingClaim]]:
        terms: list[tuple[NodeTerm, ...]] = []
        opened: list[WaitingClaim] = []
        unbound = ""
        for name, ephemeral in names:
            claim = self._existing(pod, name, ephemeral=ephemeral)
            if is_bound(claim):
                terms += bound_terms(claim, self._cache.persistentvolumes.get(claim.spec.volume_name))
                continue
            wished = storage_class_of(claim)
            self._waiting.setdefault(wished, {})[key] = None
            self._classes_of.setdefault(key, set()).add(wished)
            storage_class = self._cache.storageclasses.get(wished)
            waits = storage_class is not None and storage_class.volume_binding_mode == _WAITS
            if storage_class is None or not waits or claim.spec.volume_name:
                unbound = _UNBOUND
            else:
                opened.append(self._open(claim, storage_class))
        if unbound:
            raise Blocked(unbound)
        opened.sort(key=lambda claim: claim.asked)
        return tuple(terms), opened

    def _existing(self, pod: PodObject, key: str, *, ephemeral: bool) -> ClaimObject:
        claim = self._cache.persistentvolumeclaims.get(key)
        name = key.partition("/")[2]
        if claim is None and ephemeral:
            raise Blocked(f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"')
        if claim is None:
            raise Blocked(f'persistentvolumeclaim "{name}" not found')
        if claim.status.phase == "Lost":
            raise Blocked(lost(name, claim.spec.volume_name))
        if claim.metadata.deletion_timestamp is not None:
            raise Blocked(f'persistentvolumeclaim "{name}" is being deleted')
        owner = controller_of(claim.metadata)
        if ephemeral and (owner is None or owner.uid != pod.metadata.uid):
            raise Blocked(f'persistentvolumeclaim "{name}" was not created for this pod: it is not its owner')
        return claim

    def _open(self, claim: ClaimObject, storage_class: StorageClassObject) -> WaitingClaim:
        name = claim.metadata.name
        try:
            asked = resource_amount("storage", claim.spec.resources.requests.get("storage", 0))
        except InputError as error:
            raise Blocked(f'persistentvolumeclaim "{name}" asks for an amount that can\'t be read: {error}') from None
        key = key_of(claim.metadata)
        node = claim.metadata.annotations.get(SELECTED_NODE, "")
        selector = claim.spec.selector
        if selector is not None and entries_of_selector(selector) > MAX_REQUIREMENTS:
            raise Blocked(f'persistentvolumeclaim "{name}" has a selector of more than {MAX_REQUIREMENTS} entries')
        provisions = storage_class.provisioner not in ("", _NO_PROVISIONER)
        choice = OpenClaim(
            volumes=() if node else self._free.found(claim, key, asked),
            provisions=provisions,
            topologies=topologies(storage_class) if provisions else (),
            rooms=self._room.rooms(storage_class, claim, asked) if provisions else (),
            node=node,
            avoided=tuple(sorted(self._avoided.get(key, ()))),
        )
        return WaitingClaim(claim, choice, asked)
