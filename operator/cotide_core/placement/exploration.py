"""A few uncertain refusals are tried, so that the guard doesn't censor the data of its own model.

`placer` calls it when the guard refused every node. Refused placements yield no measurements, so a model that refuses
too much would never improve. Two bounds hold: explored placements are at most `share` of the accepted ones next to the
same service, and their probability is at most `ceiling`. Exclusive services and online pods are excluded. It counts and
draws nothing, so that a ledger replays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cotide_core.config import ExplorationConfig
from cotide_core.state.remembered import Remembered
from cotide_core.state.snapshot import Snapshot

LEAST_ACCEPTED: Final = 20
"""Accepted placements next to a service before the first trial there (chosen: one in the first twenty is too many)."""
SERVICES_KEPT: Final = 4096
"""Services of a generation (chosen: more than a large cluster has; an older service that returns starts from zero)."""


@dataclass(slots=True)
class _Placements:
    accepted: int = 0
    tried: int = 0


class Exploration:
    """The budget of trials, by service.

    Parameters
    ----------
    config : its bounds; None for no trials.
    """

    def __init__(self, config: ExplorationConfig | None) -> None:
        self._config = config or ExplorationConfig(0.0, 0.0)
        self._counts: Remembered[str, _Placements] = Remembered(SERVICES_KEPT)

    def accepted(self, snapshot: Snapshot, row: int) -> None:
        """Count a placement that the guard admitted next to the services of a row."""
        if self._config.share:
            for service in _services(snapshot, row):
                self._of(service).accepted += 1

    def allows(self, snapshot: Snapshot, row: int, probability: float) -> bool:
        """Whether a refused placement on a row may be tried now."""
        if not self._config.share or probability > self._config.probability or snapshot.exclusive_counts.item(row):
            return False
        services = _services(snapshot, row)
        return bool(services) and all(self._left(service) for service in services)

    def tried(self, snapshot: Snapshot, row: int) -> None:
        """Count a trial."""
        for service in _services(snapshot, row):
            self._of(service).tried += 1

    def _left(self, service: str) -> bool:
        counted = self._of(service)
        return counted.accepted >= LEAST_ACCEPTED and counted.tried + 1 <= self._config.share * counted.accepted

    def _of(self, service: str) -> _Placements:
        found = self._counts.get(service)
        if found is None:
            found = _Placements()
            self._counts.make_room()
            self._counts.keep(service, found)
        return found


def _services(snapshot: Snapshot, row: int) -> set[str]:
    return {service_pod.workload for service_pod in snapshot.columns.services[row]}
