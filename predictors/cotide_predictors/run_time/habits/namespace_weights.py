"""What each namespace taught the mixture of past runs: its weights, the quantile that it takes, the outcomes of
forecasts.

Used by `live_mixture`, kept by `kept_habits`. In a batch log all users teach one set, as they share one machine's
queue. Live, the tenant with the most pods would move that one set. Next to a tenant with runs of one length, the upper
forecasts of another covered 57 % of its runs, not nine in ten (measured, ten runs to one). So each namespace begins
with the weights of this module and learns for itself. Invariants: what one namespace learned changes no forecast of
another's. Of too many namespaces the least recently learned goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats, Integers
from cotide_predictors.run_time.habits.likeness import NAMESPACE_BYTES
from cotide_predictors.run_time.kernels.run_habits import (
    BROAD,
    CASES,
    CELLS,
    COMPONENTS,
    KEYS,
    LAGS,
    LEVELS_TAKEN,
    RATIO,
    REQUEST,
)

MOST_NAMESPACES: Final = 2_000
"""Chosen, as of the other forecasters: 12 KB each, 23 MB in all."""
NEXT_KIND: Final = 0.5
"""First weight of a kind of likeness against the one that is more alike (chosen, as the next three, on the first
12,000 jobs of KTH-SP2 and CTC-SP2 with users as namespaces; HPC2N, LLNL-Atlas and SDSC-BLUE follow)."""
NEXT_LAG: Final = 0.7
"""First weight of a run, or a share of the forecast, against the one after it."""
RATIO_SHARE: Final = 0.7
"""First weight of the latest share of the completion model's forecast, against that forecast itself."""
WIDE_SHARE: Final = 0.5
"""First weight of a component counted widely, against narrowly."""
BROAD_SHARE: Final = 0.02
"""The same of the component that is even over all times (chosen). Without an enforced end it carries no information,
and half of a newcomer's forecast would be days.
"""
FIRST_LEVEL: Final = 0.8
"""Quantile of the mixture that is taken first, so that nine in ten runs do not outlive it: mixtures are wider than the
outcomes (chosen on the same logs).
"""
ROUNDING: Final = 1e-5
"""Largest difference from 1 of the sum of one case's weights in a file (single precision)."""
BYTES_A_NAMESPACE: Final = NAMESPACE_BYTES + 4 * (1 + 2 * CELLS)
BYTES_A_CASE: Final = 4 * (2 + 2 * COMPONENTS) + 8
"""Of the files, in single precision."""

Arrays = Mapping[str, NDArray[Any]]


class Learned(NamedTuple):
    """What one namespace taught; arrays as in `run_habits.Habits`, changed in place.

    Attributes
    ----------
    weights : (CASES, 2, COMPONENTS). counts : (CASES,). level : (1,). outcomes : (2, CELLS).
    """

    weights: Floats
    counts: Integers
    level: Floats
    outcomes: Floats


class NamespaceWeights:
    """What namespaces taught, by `likeness.namespace_key`, the last that learned at the end."""

    def __init__(self) -> None:
        self._first = untaught()
        self._learned: dict[bytes, Learned] = {}

    def of(self, namespace: bytes) -> Learned:
        """Return what a namespace taught, read only; the first weights where it taught nothing."""
        return self._learned.get(namespace, self._first)

    def taught(self, namespace: bytes) -> Learned:
        """Return what a namespace taught, to be changed, as the latest."""
        found = self._learned.pop(namespace, None)
        if found is None:
            if len(self._learned) >= MOST_NAMESPACES:
                del self._learned[next(iter(self._learned))]
            found = untaught()
        self._learned[namespace] = found
        return found

    def retain(self, namespaces: Collection[bytes]) -> None:
        """Keep these namespaces only."""
        self._learned = {key: found for key, found in self._learned.items() if key in namespaces}

    def arrays(self, most_bytes: int | None = None) -> dict[str, NDArray[Any]]:
        """Return arrays of the n namespaces, the last that learned at the end, and of the m cases that they met.

        Parameters
        ----------
        most_bytes : of all together; then in single precision, and of the latest namespaces alone.
        """
        kept = list(self._learned.items())
        if most_bytes is not None:
            sizes = [
                BYTES_A_NAMESPACE + BYTES_A_CASE * np.count_nonzero(learned.counts) for _, learned in reversed(kept)
            ]
            fitting = int(np.searchsorted(np.cumsum(sizes), most_bytes, side="right"))
            kept = kept[len(kept) - fitting :]
        precision = np.float64 if most_bytes is None else np.float32
        keys = np.frombuffer(b"".join(key for key, _ in kept), np.uint8).reshape(len(kept), NAMESPACE_BYTES)
        # One array of all rows, since one row by itself costs as much as reading a hundred at once.
        none = untaught()
        weights, counts, levels, outcomes = (
            np.array([learned[part] for _, learned in kept] or [none[part]])[: len(kept)] for part in range(len(none))
        )
        met = counts > 0
        return {
            "learners": keys,
            "levels": levels[:, 0].astype(precision),
            "outcomes": outcomes.astype(precision),
            "cases": np.argwhere(met).astype(np.int32),
            "case_counts": counts[met],
            "case_weights": weights[met].astype(precision),
        }

    def replace(self, learned: dict[bytes, Learned]) -> None:
        """Hold exactly these, as `read` returned them."""
        self._learned = learned

    def __len__(self) -> int:
        return len(self._learned)


def untaught() -> Learned:
    """Return the first state of a namespace."""
    counts, level = np.zeros(CASES, np.int64), np.full(1, FIRST_LEVEL)
    return Learned(np.tile(_first_weights(), (CASES, 1, 1)), counts, level, np.zeros((2, CELLS)))


def read(arrays: Arrays, keys: Iterable[bytes]) -> dict[bytes, Learned]:
    """Return by namespace what `NamespaceWeights.arrays` gave, from untrusted arrays.

    Parameters
    ----------
    keys : of the namespaces, checked already.

    Raises
    ------
    ValueError
        One sentence that names the fault. KeyError where an array is missing.
    """
    names = tuple(keys)
    levels = _bounded(arrays["levels"], (len(names),), *LEVELS_TAKEN)
    outcomes = _bounded(arrays["outcomes"], (len(names), 2, CELLS), 0.0, 2.0**53)
    if (outcomes[:, 1] > outcomes[:, 0] * (1 + ROUNDING) + ROUNDING).any():
        raise ValueError("an accuracy is above 1")
    cases, counts = arrays["cases"], arrays["case_counts"]
    met = len(cases)
    weights = _bounded(arrays["case_weights"], (met, 2, COMPONENTS), 0.0, 1.0)
    if cases.dtype != np.int32 or cases.shape != (met, 2) or counts.dtype != np.int64 or counts.shape != (met,):
        raise ValueError(f"cases of shape {cases.shape} and type {cases.dtype}")
    if (cases < 0).any() or (cases >= (len(names), CASES)).any() or (counts < 1).any():
        raise ValueError("a case is invalid or unused")
    if not np.allclose(weights.sum(axis=(1, 2)), 1.0, rtol=0.0, atol=ROUNDING):
        raise ValueError("weights do not add up to 1")
    found = [untaught() for _ in names]
    for learned, level, outcome in zip(found, levels, outcomes, strict=True):
        learned.level[0], learned.outcomes[:] = level, outcome
    for (row, case), count, own in zip(cases.tolist(), counts.tolist(), weights, strict=True):
        found[row].weights[case], found[row].counts[case] = own, count
    return dict(zip(names, found, strict=True))


def _bounded(array: NDArray[Any], shape: tuple[int, ...], low: float, high: float) -> Floats:
    if array.shape != shape or array.dtype not in (np.float64, np.float32):
        raise ValueError(f"shape {array.shape} and type {array.dtype}, not {shape}")
    numbers: Floats = array.astype(np.float64)
    if not ((numbers >= low - ROUNDING) & (numbers <= high + ROUNDING)).all():
        raise ValueError("a number is not finite, too small or too large")
    return np.clip(numbers, low, high)


@cache
def _first_weights() -> Floats:
    """Return the (2, COMPONENTS) weights of each case before any run, which add up to 1; read only."""
    weights = np.ones((2, COMPONENTS))
    lags = NEXT_LAG ** np.arange(LAGS)
    for kind in range(KEYS):
        weights[:, kind * LAGS : (kind + 1) * LAGS] = NEXT_KIND**kind * lags
    weights[:, RATIO:REQUEST] = RATIO_SHARE * lags
    weights[:, BROAD] = BROAD_SHARE
    weights[1] *= WIDE_SHARE
    weights /= weights.sum()
    weights.setflags(write=False)
    return weights
