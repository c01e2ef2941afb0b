"""A few uncertain refusals are tried after all, so that the guard doesn't censor what its model learns from.

Asked by `placer` when the guard refused every node. What is refused is never measured, so a model that refuses too much
would never find out. Bounded twice: an explored placement is at most `share` of those that were accepted beside the
same service, and its probability at most `ceiling`. Never beside an exclusive service, and never for an online pod.
Deterministic: it counts, and draws nothing, so that a ledger replays.
"""

from __future__ import annotations

from typing import Final

from cotide_core.config import ExplorationConfig
from cotide_core.state.snapshot import Snapshot

LEAST_ACCEPTED: Final = 20
"""Accepted placements beside a service before anything is tried there (chosen: one in the first twenty is too many)."""


class Exploration:
    """The budget of trials, by service.

    Parameters
    ----------
    config : its bounds; None for no trial at all.
    """

    def __init__(self, config: ExplorationConfig | None) -> None:
        self._config = config or ExplorationConfig(0.0, 0.0)
        self._accepted: dict[str, int] = {}
        self._tried: dict[str, int] = {}

    def accepted(self, snapshot: Snapshot, row: int) -> None:
        """Count a placement that the guard let pass beside the services of a row."""
        if self._config.share:
            for service in _services(snapshot, row):
                self._accepted[service] = self._accepted.get(service, 0) + 1

    def allows(self, snapshot: Snapshot, row: int, probability: float) -> bool:
        """Whether a refused placement on a row may be tried now."""
        if not self._config.share or probability > self._config.probability or snapshot.exclusive_counts.item(row):
            return False
        services = _services(snapshot, row)
        return bool(services) and all(self._left(service) for service in services)

    def tried(self, snapshot: Snapshot, row: int) -> None:
        """Count a trial."""
        for service in _services(snapshot, row):
            self._tried[service] = self._tried.get(service, 0) + 1

    def _left(self, service: str) -> bool:
        accepted = self._accepted.get(service, 0)
        return accepted >= LEAST_ACCEPTED and self._tried.get(service, 0) + 1 <= self._config.share * accepted


def _services(snapshot: Snapshot, row: int) -> set[str]:
    return {one.workload for one in snapshot.columns.services[row]}
