"""The volumes for an unbound claim: the one that is reserved for it, else all that suffice, the smallest first.

`reader` calls it. Semantics: kube-scheduler's plugin VolumeBinding. Invariant: cached answers for a storage class are
dropped as soon as one of its volumes changes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from cotide_core.errors import InputError
from cotide_core.events import VolumeChoice
from cotide_core.limits import MAX_REQUIREMENTS, MAX_VOLUMES
from cotide_core.units import resource_amount
from cotide_kube.objects import ClaimObject, VolumeObject
from cotide_operator.cache.label_selectors import selects
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.translation.node_terms import alternatives
from cotide_operator.translation.volumes.answers_by_class import AnswersByClass
from cotide_operator.translation.volumes.claims import BETA_CLASS, kind_of_volume, storage_class_of
from cotide_operator.translation.volumes.groups import drop
from cotide_operator.translation.volumes.reach import entries, required_nodes

CHOICES_KEPT: Final = 64 * MAX_VOLUMES
"""Volumes in all cached answers together. Chosen: half a MB of references."""


class Concerned(NamedTuple):
    """The effects of a changed volume: claims, and storage classes with waiting claims."""

    claims: tuple[str, ...]
    classes: tuple[str, ...]


class _Indexed(NamedTuple):
    """The indexed properties of a volume.

    Attributes
    ----------
    storage_class : its class; empty for none.
    claim : key of the claim that it is reserved for, or bound to; empty for none.
    free : the volume, if any claim of the class may use it.
    """

    storage_class: str
    claim: str
    free: VolumeObject | None


class _Demand(NamedTuple):
    """The demand of a claim on a volume; equal demands have the same choices."""

    storage_class: str
    asked: int
    modes: frozenset[str]
    kind: tuple[str, str]
    selector: bytes


class FreeVolumes:
    """Finds the volumes that a claim may use.

    Parameters
    ----------
    cache : read only; the caller reports each change of a volume by `changed`.
    """

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._volumes: dict[str, _Indexed] = {}
        self._of_class: dict[str, dict[str, None]] = {}
        """Volumes by storage class."""
        self._reserved: dict[str, dict[str, None]] = {}
        """Volumes by the claim that they are reserved for."""
        self._choice_of: dict[str, VolumeChoice] = {}
        """By volume, created once: many claims have the same choices."""
        self._found_for: AnswersByClass[_Demand, VolumeChoice] = AnswersByClass(CHOICES_KEPT)

    def changed(self, name: str) -> Concerned:
        """Update the index after a change of a volume."""
        volume = self._cache.persistentvolumes.get(name)
        before = self._volumes.pop(name, None)
        after = None if volume is None else _indexed(volume)
        self._choice_of.pop(name, None)
        if before is not None:
            drop(self._of_class, before.storage_class, name)
            drop(self._reserved, before.claim, name)
        if after is not None:
            self._volumes[name] = after
            self._of_class.setdefault(after.storage_class, {})[name] = None
            if after.claim:
                self._reserved.setdefault(after.claim, {})[name] = None
        both = [indexed for indexed in (before, after) if indexed is not None]
        classes = tuple(indexed.storage_class for indexed in both) if _offer(before) != _offer(after) else ()
        self._found_for.forget(classes)
        return Concerned(tuple(indexed.claim for indexed in both), classes)

    def found(self, claim: ClaimObject, key: str, asked: int) -> tuple[VolumeChoice, ...]:
        """Return the volumes that a claim may use: the one that is reserved for it, else all that suffice."""
        for name in sorted(self._reserved.get(key, ())):
            volume = self._cache.persistentvolumes.get(name)
            reference = volume.spec.claim_ref if volume is not None else None
            if volume is None or reference is None or reference.uid not in ("", claim.metadata.uid):
                continue
            if volume.metadata.deletion_timestamp is not None or _bytes(volume) < asked:
                continue
            bounded = entries(required_nodes(volume)) <= MAX_REQUIREMENTS
            if bounded and kind_of_volume(volume.spec) == kind_of_volume(claim.spec):
                return (self._choice(volume),)
        spec = claim.spec
        demand = _Demand(
            storage_class_of(claim),
            asked,
            frozenset(spec.access_modes),
            kind_of_volume(spec),
            msgspec.json.encode(spec.selector) if spec.selector is not None else b"",
        )
        return self._found_for.of(demand.storage_class, demand, lambda: self._search(demand, claim))

    def _choice(self, volume: VolumeObject) -> VolumeChoice:
        name = volume.metadata.name
        found = self._choice_of.get(name)
        if found is None:
            found = self._choice_of[name] = VolumeChoice(name, alternatives(required_nodes(volume)))
        return found

    def _search(self, demand: _Demand, claim: ClaimObject) -> tuple[VolumeChoice, ...]:
        fitting: list[tuple[int, str, VolumeObject]] = []
        selector = claim.spec.selector
        selective = selector is not None and bool(selector.match_labels or selector.match_expressions)
        for name in self._of_class.get(demand.storage_class, ()):
            volume = self._volumes[name].free
            if volume is None or not demand.modes.issubset(volume.spec.access_modes):
                continue
            if kind_of_volume(volume.spec) != demand.kind or entries(required_nodes(volume)) > MAX_REQUIREMENTS:
                continue
            if selective and not selects(selector, volume.metadata.labels):
                continue
            size = _bytes(volume)
            if size >= demand.asked:
                fitting.append((size, name, volume))
        fitting.sort(key=lambda fit: fit[:2])
        return tuple(self._choice(volume) for _, _, volume in fitting[:MAX_VOLUMES])


def _indexed(volume: VolumeObject) -> _Indexed:
    reference = volume.spec.claim_ref
    claim = f"{reference.namespace}/{reference.name}" if reference is not None else ""
    free = reference is None and volume.status.phase == "Available" and volume.metadata.deletion_timestamp is None
    storage_class = volume.metadata.annotations.get(BETA_CLASS) or volume.spec.storage_class_name
    return _Indexed(storage_class, claim, volume if free else None)


def _offer(indexed: _Indexed | None) -> Any:
    """Return the properties that decide which claims may use a volume; None if it is reserved."""
    if indexed is None or indexed.free is None:
        return None
    return indexed.storage_class, indexed.free.spec, indexed.free.metadata.labels


def _bytes(volume: VolumeObject) -> int:
    """Return the size of a volume; an unreadable one suffices for no claim."""
    try:
        return resource_amount("storage", volume.spec.capacity.get("storage", 0))
    except InputError:
        return -1
