"""Was the promotion right? A new model and the one before it both forecast all later measurements.

Called by the learning loop after a promotion; decides when to roll back. Pure. Records are slots, as in
`service_trust`. Invariant: one bad slot is chance. From `LEAST_SLOTS` on the new model is rolled back when its Brier
score is worse beyond noise, or when its coverage is below the guard's promise while its predecessor's is not.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Booleans, Floats
from cotide_predictors.host_load.scoring import WINDOW_SLOTS
from cotide_predictors.learning.challenge import worse_beyond_noise
from cotide_predictors.learning.service_trust import band_of

LEAST_SLOTS: Final = 12
"""Slots before any judgement: an hour (chosen, as host load's return)."""


class Probation:
    """The live comparison of a promoted model with the one before it.

    Parameters
    ----------
    threshold : highest probability that the guard accepts.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._band = band_of(threshold)
        self._slots: dict[int, Floats] = {}

    @property
    def over(self) -> bool:
        """Whether the new model has been in use for a day."""
        return len(self._slots) >= WINDOW_SLOTS

    def score(self, new: Floats, before: Floats, broken: Booleans, slot: int) -> None:
        """Take (n,) probabilities of both and the measurements, in one slot."""
        columns = [np.array([float(len(broken))])]
        for probability in (new, before):
            accepted = probability <= self._threshold
            columns.append(np.array([((probability - broken) ** 2).sum(), accepted.sum(), (accepted & broken).sum()]))
        self._slots[slot] = self._slots.get(slot, np.zeros(7)) + np.concatenate(columns)

    def why_back(self) -> str:
        """Return the reason for a rollback in one sentence; empty without any."""
        if len(self._slots) < LEAST_SLOTS:
            return ""
        records = np.array([self._slots[slot] for slot in sorted(self._slots)])
        count, new, accepted, lost, before, accepted_before, lost_before = records.T
        if worse_beyond_noise(new / count, before / count):
            return (
                f"its live Brier score is {new.sum() / count.sum():.4f}, that of the model before"
                f" {before.sum() / count.sum():.4f}"
            )
        coverage = 1.0 - lost.sum() / max(1.0, accepted.sum())
        coverage_before = 1.0 - lost_before.sum() / max(1.0, accepted_before.sum())
        floor, misses = self._band.coverage_min, int((lost > 0).sum())
        if coverage < floor <= coverage_before and misses >= self._band.misses_min:
            broke, broke_before = 1 - coverage, 1 - coverage_before
            return f"{broke:.0%} of the samples that it accepts broke, {broke_before:.0%} of those of its predecessor"
        return ""
