"""May a challenger replace the forecaster of peaks that node planning uses? Both forecast the same slots, one in
shadow.

Called live at the end of each slot. A day of slots is one challenge, judged once, at its end, by the rules of
`challenge`. Slots are scored by blocks of time, a block counts once, and noise is the difference between blocks. The
score is the pinball loss at the planned quantile, averaged over nodes; an honest forecast has the lowest expected loss.
Invariants: a challenger that is worse beyond noise for cpu or for memory is refused. So is one that is not better
beyond noise for both together, since a change without a gain is a needless risk. A challenge that is over is forgotten:
no slot is judged twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.learning.challenge import worse_beyond_noise

SLOTS: Final = 288
"""Scored slots of a challenge: a day of five minutes, so that its eight blocks see day and night (chosen)."""
LEAST_SHARE: Final = 0.02
"""Of the champion's loss: a smaller difference counts as none (chosen)."""
RESOURCES: Final = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class PeakVerdict:
    """The outcome of a challenge.

    Attributes
    ----------
    promoted : whether the challenger takes over.
    gain : relative reduction of the champion's loss, the mean over cpu and memory.
    worse : resources with a challenger that is worse beyond noise.
    """

    promoted: bool
    gain: float
    worse: tuple[str, ...]


class PeakChallenge:
    """The running challenge.

    Parameters
    ----------
    slots : scored slots until the judgement, >= 8.
    """

    def __init__(self, *, slots: int = SLOTS) -> None:
        self.slots = slots
        self._losses: list[Floats] = []

    @property
    def scored(self) -> int:
        """Return the number of scored slots."""
        return len(self._losses)

    def losses(self) -> Floats:
        """Return (2, 2) mean losses so far, of champion and challenger for cpu and memory; nan before any."""
        return np.mean(self._losses, axis=0) if self._losses else np.full((2, 2), np.nan)

    def score(self, losses: Floats) -> PeakVerdict | None:
        """Take in a slot's (2, 2) losses; return the verdict when it was the challenge's last."""
        if not np.isfinite(losses).all():
            return None
        self._losses.append(losses)
        if len(self._losses) < self.slots:
            return None
        verdict = judged(np.stack(self._losses))
        self._losses = []
        return verdict


def judged(losses: Floats) -> PeakVerdict:
    """Judge (s, 2, 2) losses of s >= 8 slots in order of time, of champion and challenger for cpu and memory."""
    usual = np.maximum(losses[:, 0].mean(axis=0), 1e-12)
    shares = losses / usual
    worse = tuple(
        name
        for column, name in enumerate(RESOURCES)
        if worse_beyond_noise(shares[:, 1, column], shares[:, 0, column], LEAST_SHARE)
    )
    champion, challenger = shares.mean(axis=2).T
    promoted = not worse and worse_beyond_noise(champion, challenger, LEAST_SHARE)
    return PeakVerdict(promoted, float(1.0 - challenger.mean()), worse)


def pinball(values: Floats, quantiles: Floats, level: float) -> float:
    """Return the mean pinball loss of forecasts (n,) of a quantile, nan without any value."""
    away = values - quantiles
    return float(np.mean(np.maximum(level * away, (level - 1.0) * away))) if len(values) else float("nan")
