"""Nodes where volume drivers have room for new volumes, from CSIStorageCapacity objects.

`reader` calls it. Semantics: the Kubernetes documentation, "Storage Capacity". Invariant: a driver that does not
publish its capacity is never checked for it.
"""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from cotide_core.errors import InputError
from cotide_core.events import NodeTerm, Requirement
from cotide_core.limits import MAX_REQUIREMENTS
from cotide_core.units import resource_amount
from cotide_kube.objects import ClaimObject, StorageCapacityObject, StorageClassObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.translation.node_terms import MATCHES_NOTHING, selected
from cotide_operator.translation.volumes.answers_by_class import AnswersByClass
from cotide_operator.translation.volumes.claims import entries_of_selector
from cotide_operator.translation.volumes.groups import drop

TERMS_KEPT: Final = 1 << 16
"""Cached alternatives of all answers about one class, for two generations (chosen: a term for each of many zones or
nodes, and some megabytes)."""


class _Capacity(NamedTuple):
    """A capacity that a driver publishes."""

    storage_class: str
    most: int
    """Bytes of the largest volume; -1 if it is unreadable."""
    where: NodeTerm
    """Nodes that reach it; all nodes if it requires no label."""


class StorageCapacities:
    """Finds room for a claim.

    Parameters
    ----------
    cache : read only; the caller reports each change of a capacity by `changed`.
    """

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._capacities: dict[str, _Capacity] = {}
        self._capacities_of: dict[str, dict[str, None]] = {}
        """Capacities by storage class."""
        self._rooms_for: AnswersByClass[int, NodeTerm] = AnswersByClass(TERMS_KEPT)
        """By requested bytes."""

    def changed(self, key: str) -> tuple[str, ...]:
        """Update the index after a change of a capacity; return the storage classes with changed room."""
        before, now = self._capacities.pop(key, None), self._cache.csistoragecapacities.get(key)
        if before is not None:
            drop(self._capacities_of, before.storage_class, key)
        after = None if now is None else _capacity(now)
        if after is not None:
            self._capacities[key] = after
            self._capacities_of.setdefault(after.storage_class, {})[key] = None
        classes = (
            tuple(capacity.storage_class for capacity in (before, after) if capacity is not None)
            if before != after
            else ()
        )
        self._rooms_for.forget(classes)
        return classes

    def rooms(self, storage_class: StorageClassObject, claim: ClaimObject, asked: int) -> tuple[NodeTerm, ...]:
        """Return the nodes with room for a claim, for a driver that publishes its capacity; empty without a
        restriction."""
        driver = self._cache.csidrivers.get(storage_class.provisioner)
        if driver is None or not driver.spec.storage_capacity or "storage" not in claim.spec.resources.requests:
            return ()
        name = storage_class.metadata.name
        return self._rooms_for.of(name, asked, lambda: self._search(name, asked))

    def _search(self, storage_class: str, asked: int) -> tuple[NodeTerm, ...]:
        capacities = self._capacities_of.get(storage_class, {})
        return _enough([self._capacities[key] for key in sorted(capacities)], asked)


def _capacity(published: StorageCapacityObject) -> _Capacity:
    """Return a published capacity; an unreadable amount, or no topology, suffices for no claim."""
    amount = published.capacity if published.maximum_volume_size is None else published.maximum_volume_size
    most, selector = -1, published.node_topology
    if amount is not None and selector is not None and entries_of_selector(selector) <= MAX_REQUIREMENTS:
        with contextlib.suppress(InputError):
            most = resource_amount("storage", amount)
    return _Capacity(published.storage_class_name, most, NodeTerm() if selector is None else selected(selector))


def _enough(capacities: list[_Capacity], asked: int) -> tuple[NodeTerm, ...]:
    """Return the alternatives with enough room; no term at all means all nodes."""
    values: dict[str, list[str]] = {}
    others: list[NodeTerm] = []
    for capacity in capacities:
        labels = capacity.where.labels
        if capacity.most < asked:
            continue
        if not labels:
            return ()
        if len(labels) == 1 and labels[0].operator == "In":  # as for nodes with local disks: one term for all
            values.setdefault(labels[0].key, []).extend(labels[0].values)
        elif len(others) < MAX_REQUIREMENTS:
            others.append(capacity.where)
    merged = [NodeTerm(labels=(Requirement(key, "In", tuple(sorted(set(some)))),)) for key, some in values.items()]
    return (*merged, *others) or (MATCHES_NOTHING,)
