"""The replay's mixture of past runs for a queue of jobs that are unknown beforehand.

Called by `pod_run_times`. The kernels of `run_habits` forecast and learn, as in trace replay. This module holds their
tables, which grow with new keys and forget the least recently used. Three points differ from a batch log. Live runs do
not end at their estimate, so only `LONGEST_SECONDS` bounds a run. The completion model's forecast takes the place of
the request (QPSM's, or the user's own estimate where there is none). It is one component among the others, and its
weight follows how often it came true. Each namespace has weights of its own (`namespace_weights`). Invariant: a
forecast uses only runs of its own namespace that were learned before it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_predictors.run_time.habits.likeness import NAMESPACE_BYTES, Likeness
from cotide_predictors.run_time.habits.namespace_shares import NamespaceShares
from cotide_predictors.run_time.habits.namespace_weights import Learned, NamespaceWeights
from cotide_predictors.run_time.kernels.run_habits import (
    KEYS,
    LAGS,
    LONGEST_SECONDS,
    Codes,
    Habits,
    habits_of,
    note_habit,
    predict_within,
)

MOST_KEYS: Final = 20_000
"""Keys of each kind of likeness. Of more keys the least recently learned go, within the limits of `namespace_shares`
(chosen: some 20 MB in all).
"""
LONGEST: Final = int(LONGEST_SECONDS)
NOBODY: Final = 0
"""Row of keys that were never learned; it stays empty."""


@dataclass(frozen=True, slots=True)
class HabitForecast:
    """One forecast, with the data that learning from its outcome needs.

    Attributes
    ----------
    seconds, upper : whole seconds: of highest expected accuracy, and that all but one in ten do not outlive.
    reliability : expected accuracy, in [0, 1].
    alike : past runs behind the forecast, of the most alike kind that has any: 0 to `LAGS`.
    reference : seconds, the completion model's forecast.
    case, cell, bins : which weights and bins of the tables it came from, see `run_habits.Habits`.
    """

    seconds: int
    upper: int
    reliability: float
    alike: int
    likeness: Likeness
    reference: int
    case: int
    cell: int
    bins: Codes


@dataclass(frozen=True, slots=True)
class MixtureState:
    """The past runs that a mixture learned; keys of each kind in order of their last use.

    Attributes
    ----------
    keys : of each of the `KEYS` kinds, (n,) keys.
    runs : of each kind, (n, LAGS) seconds, newest first.
    ratios : (n of the last kind, LAGS) run over its expected time.
    """

    keys: tuple[tuple[bytes, ...], ...]
    runs: tuple[Integers, ...]
    ratios: Floats


class RunTimeMixture:
    """Forecasts run times from the runs of similar pods.

    Parameters
    ----------
    most_keys : largest number of each kind of likeness.

    Attributes
    ----------
    weights : what each namespace taught, apart from its past runs.
    """

    def __init__(self, *, most_keys: int = MOST_KEYS) -> None:
        self._most_keys = most_keys
        self.weights = NamespaceWeights()
        one = np.zeros(1, np.int64)
        self._habits: Habits = habits_of(one, one, one)
        self._rows: tuple[dict[bytes, int], ...] = tuple({} for _ in range(KEYS))
        """Key to row, by kind; the last learned at the end."""
        self._shares = tuple(NamespaceShares() for _ in range(KEYS))
        self._free: tuple[list[int], ...] = tuple([] for _ in range(KEYS))
        self._grow(64)

    def forecast(
        self, likeness: Likeness, reference_seconds: float, *, cores: float = 1.0, hour: int = 0
    ) -> HabitForecast:
        """Forecast a run; ``cores`` and ``hour`` have no effect here.

        Parameters
        ----------
        reference_seconds : forecast of a completion model, or the user's estimate.
        """
        del cores, hour
        habits = self._with(self.weights.of(namespace_of(likeness)))
        alike = 0
        for kind in range(KEYS):
            row = self._rows[kind].get(likeness[kind], NOBODY)
            habits.keys[kind, 0] = row
            alike = alike or int(np.count_nonzero(habits.runs[kind, row]))
        reference = whole(reference_seconds)
        seconds = predict_within(habits, 0, reference, LONGEST)
        return HabitForecast(
            seconds=int(seconds),
            upper=int(habits.upper[0]),
            reliability=float(habits.reliability[0]),
            alike=alike,
            likeness=likeness,
            reference=reference,
            case=int(habits.case[0]),
            cell=int(habits.cell[0]),
            bins=habits.bins[0].copy(),
        )

    def learn(self, made: HabitForecast, run_seconds: float) -> None:
        """Learn the length of a run that was forecast here."""
        for kind in range(KEYS):
            row = self._row(kind, made.likeness[kind])
            self._habits.keys[kind, 0] = row
        # Not earlier: a new key may have enlarged the tables.
        habits = self._with(self.weights.taught(namespace_of(made.likeness)))
        habits.case[0], habits.cell[0], habits.upper[0] = made.case, made.cell, made.upper
        habits.bins[0] = made.bins
        note_habit(habits, 0, whole(run_seconds), made.reference, made.seconds)

    def retain(self, namespaces: Collection[bytes]) -> None:
        """Keep what was learned in these namespaces only, named by `likeness.namespace_key`."""
        for kind, rows in enumerate(self._rows):
            for key in [key for key in rows if key[:NAMESPACE_BYTES] not in namespaces]:
                self._forget(kind, key)
        self.weights.retain(namespaces)

    def state(self, most: int | None = None) -> MixtureState:
        """Return the past runs, of each kind at most the ``most`` keys that were learned last."""
        habits = self._habits
        kept = [list(rows.items())[-most:] if most else list(rows.items()) for rows in self._rows]
        rows = [np.array([row for _, row in items], np.int64) for items in kept]
        return MixtureState(
            keys=tuple(tuple(key for key, _ in items) for items in kept),
            runs=tuple(habits.runs[kind, row] for kind, row in enumerate(rows)),
            ratios=habits.ratios[rows[-1]],
        )

    def restore(self, state: MixtureState) -> None:
        """Begin with the past runs that an earlier mixture learned; ``weights`` are restored separately."""
        for rows in self._rows:
            rows.clear()
        self._shares = tuple(NamespaceShares() for _ in range(KEYS))
        for free in self._free:
            free.clear()
        self._habits.runs[:] = 0
        self._habits.ratios[:] = 0.0
        for kind, keys in enumerate(state.keys):
            for key, runs in zip(keys, state.runs[kind], strict=True):
                row = self._row(kind, key)
                self._habits.runs[kind, row] = runs
        for key, ratios in zip(state.keys[-1], state.ratios, strict=True):
            row = self._rows[-1].get(key, NOBODY)
            if row != NOBODY:
                self._habits.ratios[row] = ratios

    def __len__(self) -> int:
        """Return the keys of the most alike kind."""
        return len(self._rows[0])

    def _with(self, learned: Learned) -> Habits:
        """Return the tables with the weights of one namespace."""
        return self._habits._replace(
            weights=learned.weights, counts=learned.counts, level=learned.level, outcomes=learned.outcomes
        )

    def _row(self, kind: int, key: bytes) -> int:
        """Return the row of a key that is learned now, and make it the latest."""
        rows, free = self._rows[kind], self._free[kind]
        row = rows.pop(key, None)
        if row is None:
            if len(rows) >= self._most_keys:
                self._forget(kind, self._shares[kind].to_forget(next(iter(rows)), key))
            row = free.pop() if free else len(rows) + 1
            if row >= self._habits.runs.shape[1]:
                self._grow(2 * row)
        rows[key] = row
        self._shares[kind].learned(key)
        return row

    def _forget(self, kind: int, key: bytes) -> None:
        row = self._rows[kind].pop(key)
        self._shares[kind].forgotten(key)
        self._habits.runs[kind, row] = 0
        if kind == KEYS - 1:
            self._habits.ratios[row] = 0.0
        self._free[kind].append(row)

    def _grow(self, rows: int) -> None:
        habits = self._habits
        runs = np.zeros((KEYS, rows, LAGS), np.int64)
        runs[:, : habits.runs.shape[1]] = habits.runs
        ratios = np.zeros((rows, LAGS))
        ratios[: len(habits.ratios)] = habits.ratios
        self._habits = habits._replace(runs=runs, ratios=ratios)


def namespace_of(likeness: Likeness) -> bytes:
    """Return the `likeness.namespace_key` of a pod."""
    return likeness[0][:NAMESPACE_BYTES]


def whole(seconds: float) -> int:
    """Return whole seconds that the bins hold."""
    return max(1, min(LONGEST, round(seconds)))
