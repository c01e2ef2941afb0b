"""The volumes that are attached to each node, and the limits of drivers.

`reader` calls it. Semantics: kube-scheduler's plugin NodeVolumeLimits. Invariant: the result omits drivers without a
limit on any node.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotide_core.limits import INT32_MOST, MAX_NODE_RESOURCES, MAX_VOLUMES
from cotide_kube.objects import ClaimObject
from cotide_operator.cache.object_cache import Kind, ObjectCache, key_of
from cotide_operator.translation.volumes.claims import storage_class_of
from cotide_operator.translation.volumes.groups import drop


class NodeAttachments:
    """Indexes attachments and limits.

    Parameters
    ----------
    cache : read only.
    """

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._limits: dict[str, tuple[tuple[str, int], ...]] = {}
        """Attachable volumes of each driver, by node."""
        self._limited: dict[str, int] = {}
        """Number of nodes with a limit, by driver."""
        self._attachments_of: dict[str, dict[str, None]] = {}
        """Attachments by node."""
        self._attached: dict[str, tuple[str, str]] = {}
        """Node and volume of each attachment."""
        self._attached_volumes: dict[str, dict[str, None]] = {}
        """Attachments by volume."""

    def limits_of(self, node: str) -> tuple[tuple[str, int], ...]:
        """Return the drivers with a limit on a node, and the number of volumes that can be attached."""
        return self._limits.get(node, ())

    def attached_to(self, node: str) -> tuple[tuple[str, str], ...]:
        """Return the attached volumes of a node, of drivers with a limit there; beyond the bound the first by name."""
        limited = {driver for driver, _ in self._limits.get(node, ())}
        found: set[tuple[str, str]] = set()
        for name in sorted(self._attachments_of.get(node, ())) if limited else ():
            attachment = self._cache.volumeattachments.get(name)
            if attachment is None or attachment.spec.attacher not in limited:
                continue
            volume = self._cache.persistentvolumes.get(attachment.spec.source.persistent_volume_name)
            if volume is not None and volume.spec.csi is not None and len(found) < MAX_VOLUMES:
                found.add((attachment.spec.attacher, volume.spec.csi.volume_handle))
        return tuple(sorted(found))

    def nodes_concerned(self, kind: Kind, key: str) -> Iterable[str]:
        """Update the index after a change of an object; return the nodes that it affects."""
        match kind:
            case "csinodes":
                return (key,)
            case "persistentvolumes":
                return {self._attached[name][0] for name in self._attached_volumes.get(key, ())}
            case "volumeattachments":
                before = self._attached.pop(key, None)
                if before is not None:
                    drop(self._attachments_of, before[0], key)
                    drop(self._attached_volumes, before[1], key)
                now = self._cache.volumeattachments.get(key)
                after = None if now is None else (now.spec.node_name, now.spec.source.persistent_volume_name)
                if after is not None:
                    self._attached[key] = after
                    self._attachments_of.setdefault(after[0], {})[key] = None
                    self._attached_volumes.setdefault(after[1], {})[key] = None
                return {pair[0] for pair in (before, after) if pair is not None}
            case _:
                return ()

    def limits_changed(self, node: str) -> bool:
        """Update the limits of a node; return whether a driver got its first limit, or lost its last."""
        found = self._cache.csinodes.get(node)
        after: tuple[tuple[str, int], ...] = ()
        if found is not None:
            drivers = found.spec.drivers[:MAX_NODE_RESOURCES]
            counts = {
                node_driver.name: node_driver.allocatable.count
                for node_driver in drivers
                if node_driver.allocatable is not None
            }
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

    def attachments(self, claims: Iterable[ClaimObject | None]) -> tuple[tuple[str, str], ...]:
        """Return the volumes of drivers with a limit on any node; for an unbound claim, the future volume."""
        if not self._limited:
            return ()
        found = set()
        for claim in claims:
            if claim is None:
                continue
            volume = self._cache.persistentvolumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
            if volume is not None and volume.spec.csi is not None:
                found.add((volume.spec.csi.driver, volume.spec.csi.volume_handle))
            elif not claim.spec.volume_name:
                storage_class = self._cache.storageclasses.get(storage_class_of(claim))
                if storage_class is not None:
                    found.add((storage_class.provisioner, key_of(claim.metadata)))
        return tuple(sorted(pair for pair in found if pair[0] in self._limited))
