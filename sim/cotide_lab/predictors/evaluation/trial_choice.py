"""Chooses a contender's settings on held-out cells of its training rows: the same number of trials for each contender.

Called by `held_out` and `baselines`. A trial is scored by the log loss of its probabilities on `SPLITS` random 3:1
splits of the training cells. Invariant: the contender's test rows take no part; the same rows and seed give the same
choice, and the earlier of two equal trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats, Indices

TRIALS: Final = 6
"""Number of settings for each contender's choice; the first holds where the rows do not suffice for a choice
(chosen).
"""
SPLITS: Final = 2
"""Random splits of the training cells for the score of a trial (chosen: two bound the time of an evaluation)."""
LEAST_CELLS: Final = 8
"""Fewer training cells give no choice (chosen: two held out in each split)."""
HELD_SHARE: Final = 0.25
"""As in `held_out`: 3:1 (Ou 2024, section 3.1)."""
SUREST: Final = 1e-3
"""Distance of probabilities from 0 and 1, so that one sure mistake is no infinite loss (chosen)."""


Trial = TypeVar("Trial")


def choose(
    trials: Sequence[Trial], cells: Indices, seed: int, loss: Callable[[Trial, Indices, Indices], float]
) -> Trial:
    """Return the trial with the lowest summed loss.

    Parameters
    ----------
    cells : (n,) of the training rows; rows of one cell stay together.
    loss : of a trial that learns from the first rows and answers for the second; nan where it cannot be scored.

    Raises
    ------
    ValueError
        When there are not exactly `TRIALS` trials.
    """
    if len(trials) != TRIALS:
        raise ValueError(f"each contender has {TRIALS} trials, not {len(trials)}")
    names = np.unique(cells)
    if len(names) < LEAST_CELLS:
        return trials[0]
    splits = []
    for number in range(SPLITS):
        drawn = np.random.default_rng((seed, number, 7)).permutation(names)
        inside = np.isin(cells, drawn[: max(1, round(HELD_SHARE * len(names)))])
        splits.append((np.flatnonzero(~inside), np.flatnonzero(inside)))
    losses = np.array([[loss(trial, learned, held) for learned, held in splits] for trial in trials])
    usable = np.isfinite(losses).all(axis=0)
    if not usable.any():
        return trials[0]
    return trials[int(losses[:, usable].sum(axis=1).argmin())]


def log_loss(probability: Floats, violated: NDArray[np.bool_]) -> float:
    """Return the mean log loss of (n,) probabilities."""
    sure = np.clip(probability, SUREST, 1.0 - SUREST)
    return float(-np.mean(np.where(violated, np.log(sure), np.log1p(-sure))))
