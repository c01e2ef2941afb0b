"""The attached volumes by CSI driver and node, counted from pods and from the status of nodes.

Owned by `pod_matches.PodMatches`, which reports each pod that is counted on a row or removed from it, and the volumes
that a node's status lists as attached. `placement.constraints` reads it. Two pods of one node that share a volume
attach it once. Only volumes of limited drivers are reported, so a cluster without limits keeps nothing here. Invariant:
the numbers equal a recount over all placed pods and nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

Attachments = tuple[tuple[str, str], ...]
"""(driver, volume)"""
_NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})


class AttachedVolumes:
    """Volumes by driver and row."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, dict[int, int]]] = {}
        """For each driver and volume, the pods by row that use it."""
        self._hanging: dict[str, dict[int, set[str]]] = {}
        """For each driver, the volumes by row that the node's status lists."""
        self._used: dict[str, dict[int, int]] = {}
        """For each driver, the number of different volumes by row, from pods and from the status."""
        self._versions: dict[str, int] = {}

    def hold(self, attachments: Attachments, row: int, sign: int, clock: int) -> None:
        """Count a pod's volumes on a row (1), or remove them (-1)."""
        for driver, volume in attachments:
            self._versions[driver] = clock
            rows = self._rows.setdefault(driver, {}).setdefault(volume, {})
            before = rows.get(row, 0)
            after = before + sign
            if after:
                rows[row] = after
            else:
                rows.pop(row, None)
                if not rows:
                    del self._rows[driver][volume]
            if bool(after) is not bool(before) and volume not in self._hanging.get(driver, {}).get(row, ()):
                self._use(driver, row, 1 if after else -1)

    def hang(self, before: Attachments, now: Attachments, row: int, clock: int) -> None:
        """Replace the volumes that a node's status lists for a row."""
        for sign, changed in ((-1, set(before) - set(now)), (1, set(now) - set(before))):
            for driver, volume in changed:
                self._versions[driver] = clock
                hanging = self._hanging.setdefault(driver, {}).setdefault(row, set())
                if sign > 0:
                    hanging.add(volume)
                else:
                    hanging.discard(volume)
                    if not hanging:
                        del self._hanging[driver][row]
                    if not self._hanging[driver]:
                        del self._hanging[driver]
                if row not in self.rows_of(driver, volume):
                    self._use(driver, row, sign)

    def _use(self, driver: str, row: int, sign: int) -> None:
        used = self._used.setdefault(driver, {})
        used[row] = used.get(row, 0) + sign
        if not used[row]:
            del used[row]

    def used(self, driver: str) -> Mapping[int, int]:
        """Return how many different volumes of a driver are attached, by row."""
        return self._used.get(driver, _NOWHERE)

    def rows_of(self, driver: str, volume: str) -> Mapping[int, int]:
        """Return the rows with pods that use a volume."""
        return self._rows.get(driver, {}).get(volume, _NOWHERE)

    def is_attached(self, attachments: Attachments) -> bool:
        """Return whether a placed pod uses one of the volumes: another pod on its node attaches it without cost."""
        return any(self.rows_of(driver, volume) for driver, volume in attachments)

    def version(self, attachments: Attachments) -> int:
        """Return a number that rises with every change to these volumes."""
        return max((self._versions.get(driver, 0) for driver, _ in attachments), default=0)
