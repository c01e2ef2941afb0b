"""Which services' forecasts are trusted: scores of each over a recent window, and a state by the rules of host load.

Called by the learning loop with the forecasts of model and heuristic for each measured mix. Pure: no clock, no I/O::

               scored in records_min slots, coverage and Brier good
    LEARNING ------------------------------------------------------> TRUSTED
                                                                      |  ^
       coverage below its floor, or Brier worse than the heuristic's  |  | both good for return_slots slots in a row
       beyond noise                                                   v  |
                                                                   FALLEN_BACK

A record is a slot, as in `host_load.scoring`, since neighbouring samples are nearly the same. Coverage is the share
that held of the samples which the guard would have accepted; its floor is the guard's promise, 1 - threshold.
Invariant: only slots with a sample are scored, and a slot without one does not age the window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Booleans, Floats
from cotide_predictors.host_load.scoring import WINDOW_SLOTS, TrustBand
from cotide_predictors.learning.challenge import worse_beyond_noise


class Trust(StrEnum):
    """The state of a service's forecasts; the texts are conditions of its Workload."""

    LEARNING = "Learning"
    TRUSTED = "Trusted"
    FALLEN_BACK = "FallenBack"


class SlotRecord(NamedTuple):
    """Sums over the samples of one service in one slot; all are counts except the two Brier sums."""

    samples: float = 0.0
    model_brier: float = 0.0
    heuristic_brier: float = 0.0
    accepted: float = 0.0
    accepted_broken: float = 0.0
    broken: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceScores:
    """Scores of one service over the window; nan where unknown.

    Attributes
    ----------
    records : scored slots.
    precision, recall : of forecast violations, at the guard's threshold.
    brier, heuristic_brier : mean squared error of the probabilities, of the model and of the heuristic.
    coverage : share of accepted samples that held.
    """

    records: int
    precision: float
    recall: float
    brier: float
    heuristic_brier: float
    coverage: float


@dataclass
class _Service:
    state: Trust = Trust.LEARNING
    window: deque[SlotRecord] = field(default_factory=lambda: deque(maxlen=WINDOW_SLOTS))
    slot: int | None = None
    current: SlotRecord = field(default_factory=SlotRecord)
    calm: int = 0
    """Number of good slots in a row."""


def band_of(threshold: float) -> TrustBand:
    """Return the band of host load for a guard that accepts up to this probability: its floor is the promise."""
    return TrustBand(coverage_min=1.0 - threshold, return_coverage=1.0 - threshold / 2.0)


class ServiceTrust:
    """Trust in the QoS model, by service.

    Parameters
    ----------
    threshold : highest probability that the guard accepts, in (0, 1).
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.band = band_of(threshold)
        self._services: dict[str, _Service] = {}

    def score(self, services: Sequence[str], model: Floats, heuristic: Floats, broken: Booleans, slot: int) -> set[str]:
        """Take n measured samples of one slot; return the services with a changed state.

        Parameters
        ----------
        services : n keys. model, heuristic : (n,) forecasts of each. broken : (n,) measured violations.
        slot : number of the slot; a later one closes the one before.
        """
        changed = set()
        accepted = model <= self.threshold
        columns = np.column_stack(
            (
                np.ones(len(model)),
                (model - broken) ** 2,
                (heuristic - broken) ** 2,
                accepted,
                accepted & broken,
                broken,
            )
        )
        indices: dict[str, list[int]] = {}
        for index, name in enumerate(services):
            indices.setdefault(name, []).append(index)
        for name, rows in indices.items():
            service = self._services.setdefault(name, _Service())
            if service.slot is not None and service.slot != slot and self._close(service):
                changed.add(name)
            service.slot = slot
            sums = columns[rows].sum(axis=0).tolist()
            service.current = SlotRecord(*(a + b for a, b in zip(service.current, sums, strict=True)))
        return changed

    def state(self, service: str) -> Trust:
        """Return the state of a service; one without scores is learning."""
        known = self._services.get(service)
        return Trust.LEARNING if known is None else known.state

    def trusted(self) -> tuple[str, ...]:
        """Return the services that the model may decide for, sorted."""
        return tuple(sorted(name for name, service in self._services.items() if service.state is Trust.TRUSTED))

    def services(self) -> tuple[str, ...]:
        """Return the services that were scored, sorted."""
        return tuple(sorted(self._services))

    def scores(self, service: str) -> ServiceScores:
        """Return the scores of a service over the window."""
        known = self._services.get(service)
        window = [] if known is None else list(known.window)
        if not window:
            nothing = float("nan")
            return ServiceScores(0, nothing, nothing, nothing, nothing, nothing)
        sums = SlotRecord(*np.array(window).sum(axis=0).tolist())
        refused = sums.samples - sums.accepted
        found = sums.broken - sums.accepted_broken
        return ServiceScores(
            len(window),
            _share(found, refused),
            _share(found, sums.broken),
            sums.model_brier / sums.samples,
            sums.heuristic_brier / sums.samples,
            _share(sums.accepted - sums.accepted_broken, sums.accepted),
        )

    def begin_anew(self, services: Iterable[str] | None = None) -> None:
        """Forget scores and states of some services, or of all: another model has to earn its own."""
        for name in list(self._services) if services is None else services:
            self._services.pop(name, None)

    def windows(self, most: int) -> dict[str, tuple[str, list[SlotRecord]]]:
        """Return state and latest records of each service, to be kept over a restart."""
        return {
            name: (str(service.state), list(service.window)[-most:]) for name, service in sorted(self._services.items())
        }

    def restore(self, kept: Mapping[str, tuple[str, Sequence[SlotRecord]]]) -> None:
        """Take the result of `windows`."""
        for name, (state, window) in kept.items():
            service = self._services[name] = _Service(Trust(state))
            service.window.extend(SlotRecord(*slot_record) for slot_record in window)

    def _close(self, service: _Service) -> bool:
        """Take a slot that is over into the window; return whether the state changed."""
        service.window.append(service.current)
        service.current = SlotRecord()
        before = service.state
        records = np.array(service.window)
        if len(records) < self.band.records_min:
            return False
        good = self._good(records, self.band.return_coverage)
        service.calm = service.calm + 1 if good else 0
        if service.state is Trust.LEARNING and good:
            service.state = Trust.TRUSTED
        elif service.state is Trust.TRUSTED and not self._good(records, self.band.coverage_min):
            service.state = Trust.FALLEN_BACK
        elif service.state is Trust.FALLEN_BACK and service.calm >= self.band.return_slots:
            service.state = Trust.TRUSTED
        return service.state is not before

    def _good(self, records: Floats, least_coverage: float) -> bool:
        """Whether coverage and Brier score over (n, 6) records are good."""
        samples, model, heuristic, accepted, broken = records.T[:5]
        misses = int((broken > 0).sum())
        coverage = 1.0 - broken.sum() / max(1.0, accepted.sum())
        if coverage < least_coverage and misses >= self.band.misses_min:
            return False
        return not worse_beyond_noise(model / samples, heuristic / samples)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


LATEST_KEPT: Final = TrustBand().records_min
"""Records of a service that are kept over a restart: as many as a judgement needs."""
