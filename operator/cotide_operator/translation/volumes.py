"""What the volumes of a pod demand of its node, from claims, volumes and storage classes.

Asked by `event_source` for each pod that names claims, and by `volume_binder` for what it shall write. Which pods a
changed object concerns is kept here, too. Semantics: kube-scheduler's plugins VolumeBinding, VolumeZone,
VolumeRestrictions and NodeVolumeLimits, and the Kubernetes documentation, "Persistent Volumes" and "Storage Classes".
Invariant: a pod whose claims can't be judged is ``blocked`` and says why; no claim is ever passed over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import product
from typing import Any, Final, NamedTuple

import msgspec

from cotide_core.errors import InputError
from cotide_core.events import NodeTerm, OpenClaim, Requirement, VolumeChoice
from cotide_core.limits import CLAIMS_MOST, INT32_MOST, NODE_RESOURCES_MOST, REQUIREMENTS_MOST, VOLUMES_MOST
from cotide_core.state.remembered import Remembered
from cotide_core.units import resource_amount
from cotide_kube.objects import (
    ClaimObject,
    ClaimSpec,
    NodeSelector,
    PodObject,
    StorageCapacityObject,
    StorageClassObject,
    VolumeObject,
    VolumeSpec,
)
from cotide_operator.cache.label_selectors import selects
from cotide_operator.cache.object_cache import Kind, ObjectCache, controller_of, key_of
from cotide_operator.translation.node_terms import MATCHES_NOTHING, alternatives, selected

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node that its volume shall be made for."""
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_WAITS: Final = "WaitForFirstConsumer"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_FOR_ONE_POD: Final = "ReadWriteOncePod"
_UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"
_NEW_LABEL_OF: Final = {  # by the label that clouds wrote before Kubernetes 1.17
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_ZONE_LABELS: Final = (*_NEW_LABEL_OF, *_NEW_LABEL_OF.values())
"""Labels of a volume that its node must share, where nodes have any of them (VolumeZone)."""
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
"""What is read here."""


DEMANDS_KEPT: Final = 1024
"""Different claims of one storage class of which the volumes are remembered, in one generation. Chosen."""
CHOICES_KEPT: Final = 64 * VOLUMES_MOST
"""Volumes in those answers together. Chosen: half a MB of references."""


class VolumeFacts(NamedTuple):
    """See the fields of the same names of `events.Pod`."""

    volume_terms: tuple[tuple[NodeTerm, ...], ...] = ()
    open_claims: tuple[OpenClaim, ...] = ()
    attachments: tuple[tuple[str, str], ...] = ()
    sole_claims: tuple[str, ...] = ()
    blocked: str = ""


class WaitingClaim(NamedTuple):
    """A claim that waits for its pod."""

    claim: ClaimObject
    choice: OpenClaim
    asked: int
    """Bytes."""


class _Indexed(NamedTuple):
    """What is looked up of a volume.

    Attributes
    ----------
    storage_class : its class; empty for none.
    claim : key of the claim that it is meant for, or bound to; empty for none.
    free : the volume, where any claim of the class may have it.
    """

    storage_class: str
    claim: str
    free: VolumeObject | None


class _Demand(NamedTuple):
    """What a claim asks of a volume; equal ones have the same choices."""

    storage_class: str
    asked: int
    modes: frozenset[str]
    kind: tuple[str, str]
    selector: bytes


class _Capacity(NamedTuple):
    """Room that a driver tells of."""

    storage_class: str
    most: int
    """Bytes of the largest volume; -1 where nobody can tell."""
    where: NodeTerm
    """Nodes that reach it; all where it asks for no label."""


class _Blocked(Exception):
    """Why a pod must wait; the text is told to its owner."""


class VolumeReader:
    """Answers about the volumes of pods, from the latest objects.

    Parameters
    ----------
    mirror : only read; whoever hears of a change of `KINDS` asks `concerned`, which follows it.
    """

    def __init__(self, mirror: ObjectCache) -> None:
        self._mirror = mirror
        self._claims_of: dict[str, tuple[str, ...]] = {}
        """Claims by pod."""
        self._claimants: dict[str, dict[str, None]] = {}
        """Pods by claim, there or not."""
        self._classes_of: dict[str, set[str]] = {}
        """Storage classes by pod, of its claims that are not bound."""
        self._waiting: dict[str, dict[str, None]] = {}
        """Pods with a claim that is not bound, by storage class."""
        self._volumes: dict[str, _Indexed] = {}
        self._of_class: dict[str, dict[str, None]] = {}
        """Volumes by storage class."""
        self._reserved: dict[str, dict[str, None]] = {}
        """Volumes by the claim that they are for."""
        self._choice_of: dict[str, VolumeChoice] = {}
        """By volume, made once: many claims have the same choices."""
        self._found_for: dict[str, Remembered[_Demand, tuple[VolumeChoice, ...]]] = {}
        """By storage class, until one of its volumes changes; bounded, since each claim may ask for another amount."""
        self._limits: dict[str, tuple[tuple[str, int], ...]] = {}
        """Volumes of drivers that can be attached, by node."""
        self._limited: dict[str, int] = {}
        """How many nodes limit a driver."""
        self._avoided: dict[str, dict[str, None]] = {}
        """Nodes by claim, see `avoid`."""
        self._capacities: dict[str, _Capacity] = {}
        self._capacities_of: dict[str, dict[str, None]] = {}
        """Capacities by storage class."""
        self._rooms_for: dict[str, Remembered[int, tuple[NodeTerm, ...]]] = {}
        """By storage class and bytes, until one of its capacities changes."""
        self._attachments_of: dict[str, dict[str, None]] = {}
        """Attachments by node."""
        self._attached: dict[str, tuple[str, str]] = {}
        """Node and volume of each attachment."""
        self._attached_volumes: dict[str, dict[str, None]] = {}
        """Attachments by volume."""

    def facts(self, pod: PodObject) -> VolumeFacts | None:
        """Return what the volumes of a pod demand; None where it names no claim.

        Of a pod that has a node only what it keeps from others.
        """
        names = claim_names(pod)
        key = key_of(pod.metadata)
        self._register(key, tuple(claim for claim, _ in names))
        if not names:
            return None
        found = [self._mirror.persistentvolumeclaims.get(claim) for claim, _ in names]
        sole = tuple(
            claim
            for (claim, ephemeral), one in zip(names, found, strict=True)
            if one is not None and not ephemeral and _FOR_ONE_POD in one.spec.access_modes
        )
        attachments = self._attachments(found)
        if pod.spec.node_name:
            return VolumeFacts(attachments=attachments, sole_claims=sole)
        try:
            terms, opened = self._judge(pod, key, names)
        except _Blocked as why:
            return VolumeFacts(attachments=attachments, sole_claims=sole, blocked=str(why))
        return VolumeFacts(terms, tuple(one.choice for one in opened), attachments, sole)

    def opened(self, pod: PodObject) -> list[WaitingClaim] | None:
        """Return the claims of a pod that wait for its node, in the order of its ``open_claims``; None: blocked."""
        try:
            return self._judge(pod, key_of(pod.metadata), claim_names(pod))[1]
        except _Blocked:
            return None

    def volume_of(self, claim: ClaimObject) -> VolumeObject | None:
        """Return the volume that a claim is bound to; None while it is not, or the volume is not there."""
        return self._mirror.persistentvolumes.get(claim.spec.volume_name) if is_bound(claim) else None

    def reach_of(self, volume: VolumeObject) -> tuple[tuple[NodeTerm, ...], ...]:
        """Return where a volume can be used: of each alternatives one must hold."""
        return tuple(_reach(volume))

    def limits_of(self, node: str) -> tuple[tuple[str, int], ...]:
        """Return how many volumes of which drivers can be attached to a node."""
        return self._limits.get(node, ())

    def attached_to(self, node: str) -> tuple[tuple[str, str], ...]:
        """Return what hangs on a node, of drivers that it limits; of too much the first by name."""
        limited = {driver for driver, _ in self._limits.get(node, ())}
        found: set[tuple[str, str]] = set()
        for name in sorted(self._attachments_of.get(node, ())) if limited else ():
            attachment = self._mirror.volumeattachments.get(name)
            if attachment is None or attachment.spec.attacher not in limited:
                continue
            volume = self._mirror.persistentvolumes.get(attachment.spec.source.persistent_volume_name)
            if volume is not None and volume.spec.csi is not None and len(found) < VOLUMES_MOST:
                found.add((attachment.spec.attacher, volume.spec.csi.volume_handle))
        return tuple(sorted(found))

    def nodes_concerned(self, kind: Kind, key: str) -> Iterable[str]:
        """Follow which volume hangs on which node; return the nodes that a change of an object of `KINDS` concerns."""
        match kind:
            case "csinodes":
                return (key,)
            case "persistentvolumes":
                return {self._attached[name][0] for name in self._attached_volumes.get(key, ())}
            case "volumeattachments":
                before = self._attached.pop(key, None)
                if before is not None:
                    _drop(self._attachments_of, before[0], key)
                    _drop(self._attached_volumes, before[1], key)
                now = self._mirror.volumeattachments.get(key)
                after = None if now is None else (now.spec.node_name, now.spec.source.persistent_volume_name)
                if after is not None:
                    self._attached[key] = after
                    self._attachments_of.setdefault(after[0], {})[key] = None
                    self._attached_volumes.setdefault(after[1], {})[key] = None
                return {one[0] for one in (before, after) if one is not None}
            case _:
                return ()

    def avoid(self, claim: str, node: str) -> None:
        """Look for a volume of a claim on other nodes, until `pardon`."""
        self._avoided.setdefault(claim, {})[node] = None
        self._mirror.look_again("persistentvolumeclaims", claim)

    def pardon(self, claim: str, node: str) -> None:
        """Take back what `avoid` said."""
        nodes = self._avoided.get(claim, {})
        if nodes.pop(node, "") is None:
            if not nodes:
                del self._avoided[claim]
            self._mirror.look_again("persistentvolumeclaims", claim)

    def concerned(self, kind: Kind, key: str) -> Iterable[str]:
        """Follow a change of an object of `KINDS`; return the pods that it may concern."""
        match kind:
            case "persistentvolumeclaims":
                if key not in self._mirror.persistentvolumeclaims:
                    self._avoided.pop(key, None)
                return list(self._claimants.get(key, ()))
            case "persistentvolumes":
                return self._volume_changed(key)
            case "storageclasses":
                return list(self._waiting.get(key, ()))
            case "csinodes":
                return list(self._claims_of) if self._limits_changed(key) else ()
            case "csidrivers":
                return self._waiting_on_driver(key)
            case "csistoragecapacities":
                return self._capacity_changed(key)
            case _:
                return ()

    def forget(self, key: str) -> None:
        """Drop a pod that is gone."""
        self._register(key, ())

    def _waiting_on_driver(self, driver: str) -> list[str]:
        """Return the pods with a claim that is not bound, of a class of this driver."""
        found: dict[str, None] = {}
        for name, pods in self._waiting.items():
            storage_class = self._mirror.storageclasses.get(name)
            if storage_class is not None and storage_class.provisioner == driver:
                found.update(pods)
        return list(found)

    def _capacity_changed(self, key: str) -> list[str]:
        before, now = self._capacities.pop(key, None), self._mirror.csistoragecapacities.get(key)
        pods: dict[str, None] = {}
        if before is not None:
            _drop(self._capacities_of, before.storage_class, key)
        after = None if now is None else _capacity(now)
        if after is not None:
            self._capacities[key] = after
            self._capacities_of.setdefault(after.storage_class, {})[key] = None
        for one in (before, after) if before != after else ():
            if one is not None:
                self._rooms_for.pop(one.storage_class, None)
                pods.update(self._waiting.get(one.storage_class, ()))
        return list(pods)

    def _rooms(self, storage_class: StorageClassObject, claim: ClaimObject, asked: int) -> tuple[NodeTerm, ...]:
        """Return where a driver that tells of its room has enough for a claim; empty where nothing need be asked."""
        driver = self._mirror.csidrivers.get(storage_class.provisioner)
        if driver is None or not driver.spec.storage_capacity or "storage" not in claim.spec.resources.requests:
            return ()
        name = storage_class.metadata.name
        known = self._rooms_for.get(name)
        if known is None:
            known = self._rooms_for[name] = Remembered(DEMANDS_KEPT)
        found = known.get(asked)
        if found is None:
            capacities = self._capacities_of.get(name, {})
            found = _enough([self._capacities[key] for key in sorted(capacities)], asked)
            known.make_room()
            known.keep(asked, found)
        return found

    def _register(self, key: str, claims: tuple[str, ...]) -> None:
        for name in self._classes_of.pop(key, ()):
            _drop(self._waiting, name, key)
        before = self._claims_of.get(key, ())
        if before == claims:
            return
        for claim in before:
            _drop(self._claimants, claim, key)
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
                terms += _bound_terms(claim, self._mirror.persistentvolumes.get(claim.spec.volume_name))
                continue
            wished = storage_class_of(claim)
            self._waiting.setdefault(wished, {})[key] = None
            self._classes_of.setdefault(key, set()).add(wished)
            storage_class = self._mirror.storageclasses.get(wished)
            waits = storage_class is not None and storage_class.volume_binding_mode == _WAITS
            if storage_class is None or not waits or claim.spec.volume_name:
                unbound = _UNBOUND
            else:
                opened.append(self._open(claim, storage_class))
        if unbound:
            raise _Blocked(unbound)
        opened.sort(key=lambda one: one.asked)
        return tuple(terms), opened

    def _existing(self, pod: PodObject, key: str, *, ephemeral: bool) -> ClaimObject:
        claim = self._mirror.persistentvolumeclaims.get(key)
        name = key.partition("/")[2]
        if claim is None and ephemeral:
            raise _Blocked(f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"')
        if claim is None:
            raise _Blocked(f'persistentvolumeclaim "{name}" not found')
        if claim.status.phase == "Lost":
            raise _Blocked(_lost(name, claim.spec.volume_name))
        if claim.metadata.deletion_timestamp is not None:
            raise _Blocked(f'persistentvolumeclaim "{name}" is being deleted')
        owner = controller_of(claim.metadata)
        if ephemeral and (owner is None or owner.uid != pod.metadata.uid):
            raise _Blocked(f'persistentvolumeclaim "{name}" was not created for this pod: it is not its owner')
        return claim

    def _open(self, claim: ClaimObject, storage_class: StorageClassObject) -> WaitingClaim:
        name = claim.metadata.name
        try:
            asked = resource_amount("storage", claim.spec.resources.requests.get("storage", 0))
        except InputError as error:
            raise _Blocked(f'persistentvolumeclaim "{name}" asks for an amount that can\'t be read: {error}') from None
        key = key_of(claim.metadata)
        node = claim.metadata.annotations.get(SELECTED_NODE, "")
        selector = claim.spec.selector
        if selector is not None and _entries_of_selector(selector) > REQUIREMENTS_MOST:
            raise _Blocked(f'persistentvolumeclaim "{name}" has a selector of more than {REQUIREMENTS_MOST} entries')
        provisions = storage_class.provisioner not in ("", _NO_PROVISIONER)
        choice = OpenClaim(
            volumes=() if node else self._found(claim, key, asked),
            provisions=provisions,
            topologies=_topologies(storage_class) if provisions else (),
            rooms=self._rooms(storage_class, claim, asked) if provisions else (),
            node=node,
            avoided=tuple(sorted(self._avoided.get(key, ()))),
        )
        return WaitingClaim(claim, choice, asked)

    def _found(self, claim: ClaimObject, key: str, asked: int) -> tuple[VolumeChoice, ...]:
        """Return the volumes that a claim may have: one that is meant for it, else all that suffice."""
        for name in sorted(self._reserved.get(key, ())):
            volume = self._mirror.persistentvolumes.get(name)
            reference = volume.spec.claim_ref if volume is not None else None
            if volume is None or reference is None or reference.uid not in ("", claim.metadata.uid):
                continue
            if volume.metadata.deletion_timestamp is not None or _bytes(volume) < asked:
                continue
            bounded = _entries(_required(volume)) <= REQUIREMENTS_MOST
            if bounded and _kind_of_volume(volume.spec) == _kind_of_volume(claim.spec):
                return (self._choice(volume),)
        spec = claim.spec
        demand = _Demand(
            storage_class_of(claim),
            asked,
            frozenset(spec.access_modes),
            _kind_of_volume(spec),
            msgspec.json.encode(spec.selector) if spec.selector is not None else b"",
        )
        known = self._found_for.get(demand.storage_class)
        if known is None:
            known = self._found_for[demand.storage_class] = Remembered(DEMANDS_KEPT, CHOICES_KEPT)
        found = known.get(demand)
        if found is None:
            found = self._search(demand, claim)
            known.make_room()
            known.keep(demand, found, len(found))
        return found

    def _choice(self, volume: VolumeObject) -> VolumeChoice:
        name = volume.metadata.name
        found = self._choice_of.get(name)
        if found is None:
            found = self._choice_of[name] = VolumeChoice(name, alternatives(_required(volume)))
        return found

    def _search(self, demand: _Demand, claim: ClaimObject) -> tuple[VolumeChoice, ...]:
        fitting: list[tuple[int, str, VolumeObject]] = []
        selector = claim.spec.selector
        selective = selector is not None and bool(selector.match_labels or selector.match_expressions)
        for name in self._of_class.get(demand.storage_class, ()):
            volume = self._volumes[name].free
            if volume is None or not demand.modes.issubset(volume.spec.access_modes):
                continue
            if _kind_of_volume(volume.spec) != demand.kind or _entries(_required(volume)) > REQUIREMENTS_MOST:
                continue
            if selective and not selects(selector, volume.metadata.labels):
                continue
            size = _bytes(volume)
            if size >= demand.asked:
                fitting.append((size, name, volume))
        fitting.sort(key=lambda one: one[:2])
        return tuple(self._choice(volume) for _, _, volume in fitting[:VOLUMES_MOST])

    def _attachments(self, claims: Iterable[ClaimObject | None]) -> tuple[tuple[str, str], ...]:
        """Return the volumes of drivers that a node limits; of a claim without one, the one that will be."""
        if not self._limited:
            return ()
        found = set()
        for claim in claims:
            if claim is None:
                continue
            volume = self._mirror.persistentvolumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
            if volume is not None and volume.spec.csi is not None:
                found.add((volume.spec.csi.driver, volume.spec.csi.volume_handle))
            elif not claim.spec.volume_name:
                storage_class = self._mirror.storageclasses.get(storage_class_of(claim))
                if storage_class is not None:
                    found.add((storage_class.provisioner, key_of(claim.metadata)))
        return tuple(sorted(one for one in found if one[0] in self._limited))

    def _volume_changed(self, name: str) -> Iterable[str]:
        volume = self._mirror.persistentvolumes.get(name)
        before = self._volumes.pop(name, None)
        after = None if volume is None else _indexed(volume)
        self._choice_of.pop(name, None)
        pods: dict[str, None] = {}
        for one in (before, after):
            if one is not None:
                pods.update(self._claimants.get(one.claim, ()))
        if before is not None:
            _drop(self._of_class, before.storage_class, name)
            _drop(self._reserved, before.claim, name)
        if after is not None:
            self._volumes[name] = after
            self._of_class.setdefault(after.storage_class, {})[name] = None
            if after.claim:
                self._reserved.setdefault(after.claim, {})[name] = None
        if _offer(before) != _offer(after):
            for one in (before, after):
                if one is not None:
                    self._found_for.pop(one.storage_class, None)
                    pods.update(self._waiting.get(one.storage_class, ()))
        return pods

    def _limits_changed(self, node: str) -> bool:
        """Follow what a node says; whether a driver is limited for the first time, or nowhere any more."""
        found = self._mirror.csinodes.get(node)
        after: tuple[tuple[str, int], ...] = ()
        if found is not None:
            drivers = found.spec.drivers[:NODE_RESOURCES_MOST]
            counts = {one.name: one.allocatable.count for one in drivers if one.allocatable is not None}
            limits = ((name, min(max(0, count), INT32_MOST)) for name, count in counts.items() if count is not None)
            after = tuple(sorted(limits))
        before = self._limits.pop(node, ())
        if after:
            self._limits[node] = after
        drivers_before = set(self._limited)
        for sign, limited in ((-1, before), (1, after)):
            for driver, _ in limited:
                self._limited[driver] = self._limited.get(driver, 0) + sign
                if not self._limited[driver]:
                    del self._limited[driver]
        return drivers_before != set(self._limited)


def claim_names(pod: PodObject) -> list[tuple[str, bool]]:
    """Return the key of each claim that a pod names, and whether it is of an ephemeral volume; the first many."""
    namespace, own = pod.metadata.namespace, pod.metadata.name
    found: dict[str, bool] = {}
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found[f"{namespace}/{volume.persistent_volume_claim.claim_name}"] = False
        elif volume.ephemeral is not None:
            found[f"{namespace}/{own}-{volume.name}"] = True
        if len(found) > CLAIMS_MOST:
            break
    return list(found.items())


def is_bound(claim: ClaimObject) -> bool:
    """Whether claim and volume are bound to each other."""
    return bool(claim.spec.volume_name) and _BIND_COMPLETED in claim.metadata.annotations


def storage_class_of(claim: ClaimObject) -> str:
    """Return the name of a claim's storage class; empty for none."""
    return claim.metadata.annotations.get(_BETA_CLASS) or claim.spec.storage_class_name or ""


def _bound_terms(claim: ClaimObject, volume: VolumeObject | None) -> list[tuple[NodeTerm, ...]]:
    """Return where a bound claim can be used: its volume's node affinity, and its zone and region."""
    if volume is None:
        raise _Blocked(_lost(claim.metadata.name, claim.spec.volume_name))
    required = _required(volume)
    if _entries(required) > REQUIREMENTS_MOST:
        name = volume.metadata.name
        raise _Blocked(f'persistentvolume "{name}" has a node affinity of more than {REQUIREMENTS_MOST} entries')
    return _reach(volume)


def _reach(volume: VolumeObject) -> list[tuple[NodeTerm, ...]]:
    required = _required(volume)
    found = [alternatives(required)] if required is not None else []
    zones = [
        (key, tuple(volume.metadata.labels[key].split("__"))) for key in _ZONE_LABELS if key in volume.metadata.labels
    ]
    if zones:
        none = NodeTerm(labels=tuple(Requirement(key, "DoesNotExist") for key in _ZONE_LABELS))
        found.append((none, *(NodeTerm(labels=sum(one, ())) for one in product(*(_zone(*pair) for pair in zones)))))
    return found


def _zone(key: str, values: tuple[str, ...]) -> list[tuple[Requirement, ...]]:
    """Return the alternatives for one label: a node without the old one is asked for the new one."""
    own = (Requirement(key, "In", values),)
    if key not in _NEW_LABEL_OF:
        return [own]
    return [own, (Requirement(key, "DoesNotExist"), Requirement(_NEW_LABEL_OF[key], "In", values))]


def _lost(claim: str, volume: str) -> str:
    return f'persistentvolumeclaim "{claim}" bound to non-existent persistentvolume "{volume}"'


def _topologies(storage_class: StorageClassObject) -> tuple[NodeTerm, ...]:
    entries = sum(
        1 + len(one.values) for term in storage_class.allowed_topologies for one in term.match_label_expressions
    )
    if entries > REQUIREMENTS_MOST:
        raise _Blocked(
            f'storageclass "{storage_class.metadata.name}" has topologies of more than {REQUIREMENTS_MOST} entries'
        )
    return tuple(
        NodeTerm(labels=tuple(Requirement(one.key, "In", one.values) for one in term.match_label_expressions))
        if term.match_label_expressions
        else MATCHES_NOTHING
        for term in storage_class.allowed_topologies
    )


def _indexed(volume: VolumeObject) -> _Indexed:
    reference = volume.spec.claim_ref
    claim = f"{reference.namespace}/{reference.name}" if reference is not None else ""
    free = reference is None and volume.status.phase == "Available" and volume.metadata.deletion_timestamp is None
    storage_class = volume.metadata.annotations.get(_BETA_CLASS) or volume.spec.storage_class_name
    return _Indexed(storage_class, claim, volume if free else None)


def _offer(indexed: _Indexed | None) -> Any:
    """Return what of a volume decides which claims may have it; None where none may that it is not meant for."""
    if indexed is None or indexed.free is None:
        return None
    return indexed.storage_class, indexed.free.spec, indexed.free.metadata.labels


def _required(volume: VolumeObject) -> NodeSelector | None:
    return volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None


def _entries(required: NodeSelector | None) -> int:
    if required is None:
        return 0
    terms = required.node_selector_terms[: REQUIREMENTS_MOST + 1]
    return sum(1 + sum(1 + len(one.values) for one in (*term.match_expressions, *term.match_fields)) for term in terms)


def _entries_of_selector(selector: Any) -> int:
    return len(selector.match_labels) + sum(1 + len(one.values) for one in selector.match_expressions)


def _bytes(volume: VolumeObject) -> int:
    """Return the size of a volume; one that can't be read suffices for nobody."""
    try:
        return resource_amount("storage", volume.spec.capacity.get("storage", 0))
    except InputError:
        return -1


def _capacity(told: StorageCapacityObject) -> _Capacity:
    """Return what a driver tells; an amount that can't be read, or no topology, suffices for nobody."""
    amount = told.capacity if told.maximum_volume_size is None else told.maximum_volume_size
    most, selector = -1, told.node_topology
    if amount is not None and selector is not None and _entries_of_selector(selector) <= REQUIREMENTS_MOST:
        with contextlib.suppress(InputError):
            most = resource_amount("storage", amount)
    return _Capacity(told.storage_class_name, most, NodeTerm() if selector is None else selected(selector))


def _enough(capacities: list[_Capacity], asked: int) -> tuple[NodeTerm, ...]:
    """Return the alternatives where there is room for so much; none of them, as said by no term, is all nodes."""
    values: dict[str, list[str]] = {}
    others: list[NodeTerm] = []
    for one in capacities:
        labels = one.where.labels
        if one.most < asked:
            continue
        if not labels:
            return ()
        if len(labels) == 1 and labels[0].operator == "In":  # as each node with a disk of its own says: one for all
            values.setdefault(labels[0].key, []).extend(labels[0].values)
        elif len(others) < REQUIREMENTS_MOST:
            others.append(one.where)
    merged = [NodeTerm(labels=(Requirement(key, "In", tuple(sorted(set(some)))),)) for key, some in values.items()]
    return (*merged, *others) or (MATCHES_NOTHING,)


def _kind_of_volume(spec: ClaimSpec | VolumeSpec) -> tuple[str, str]:
    """Return what a claim and its volume must have in common: volume mode and class of attributes."""
    return spec.volume_mode or "Filesystem", spec.volume_attributes_class_name or ""


def _drop(table: dict[str, dict[str, None]], name: str, key: str) -> None:
    group = table.get(name)
    if group is not None:
        group.pop(key, None)
        if not group:
            del table[name]
