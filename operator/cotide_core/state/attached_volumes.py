"""Which volumes of which CSI driver are attached to which node: counted as pods come and go, and as nodes tell.

Owned by `pod_matches.PodMatches`, which tells of each pod that is counted on a row or taken off it, and of what hangs
on a node by its own word; read by `placement.constraints`. Two pods of one node that share a volume attach it once.
Only what a node limits is told, so that nothing is kept in a cluster without limits. Invariant: the numbers are what a
recount over all placed pods and nodes gives.
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
        """Of each driver and volume, the pods by row that use it."""
        self._hanging: dict[str, dict[int, set[str]]] = {}
        """Of each driver, the volumes by row that hang there by the node's word."""
        self._used: dict[str, dict[int, int]] = {}
        """Of each driver, the different volumes by row, of pods and by the node's word."""
        self._versions: dict[str, int] = {}

    def hold(self, attachments: Attachments, row: int, sign: int, clock: int) -> None:
        """Count a pod's volumes on a row (1), or take them off (-1)."""
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
        """Take in what hangs on a row by its node's word, and no longer."""
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
        """Return the rows whose pods use a volume."""
        return self._rows.get(driver, {}).get(volume, _NOWHERE)

    def is_attached(self, attachments: Attachments) -> bool:
        """Return whether a placed pod uses one of the volumes: where it is, it costs others nothing."""
        return any(self.rows_of(driver, volume) for driver, volume in attachments)

    def version(self, attachments: Attachments) -> int:
        """Return a number that rises with every change of what concerns these volumes."""
        return max((self._versions.get(driver, 0) for driver, _ in attachments), default=0)
