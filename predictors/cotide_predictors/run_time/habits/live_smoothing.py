"""Exponential smoothing of each owner's runs (Naghshnejad 2019, eq. 5.6) for pods that are unknown beforehand.

Called by `live_catalogue`. The rule of `kalman.smoothing` by owner. An owner without a past gets the level of its
namespace, and a namespace without one gets the completion model's forecast. Invariant: as of `live_forecaster`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_predictors.run_time.habits.keyed_states import (
    MOST_NAMESPACES_KEPT,
    MOST_OWNERS,
    KeyedStates,
    OwnersAndNamespaces,
)
from cotide_predictors.run_time.habits.likeness import Likeness
from cotide_predictors.run_time.habits.live_mixture import LONGEST, whole
from cotide_predictors.run_time.habits.upper_margin import FIRST_MARGIN, MARGINS, moved, upper_seconds
from cotide_predictors.run_time.kalman.smoothing import KEPT


@dataclass(frozen=True, slots=True)
class LevelForecast:
    """One forecast: whole seconds as everywhere, and the keys of the levels that its outcome moves."""

    seconds: int
    upper: int
    alike: int
    owner: bytes
    namespace: bytes


class LiveSmoothing(OwnersAndNamespaces):
    """Levels of owners and of namespaces, seconds."""

    def __init__(self, *, most_owners: int = MOST_OWNERS, most_namespaces: int = MOST_NAMESPACES_KEPT) -> None:
        owners = KeyedStates(np.array([0.0]), np.array([float(LONGEST)]), most_owners)
        namespaces = KeyedStates(np.array([0.0, MARGINS[0]]), np.array([float(LONGEST), MARGINS[1]]), most_namespaces)
        super().__init__(owners, namespaces)

    def forecast(
        self, likeness: Likeness, reference_seconds: float, *, cores: float = 1.0, hour: int = 0
    ) -> LevelForecast:
        """Forecast a run."""
        del cores, hour
        _, owner, _, namespace = likeness
        own, all_of_it = self._owners.get(owner), self._namespaces.get(namespace)
        row = all_of_it if own is None else own
        seconds = whole(reference_seconds if row is None else float(row[0]))
        margin = FIRST_MARGIN if all_of_it is None else float(all_of_it[1])
        return LevelForecast(seconds, whole(upper_seconds(seconds, margin)), int(row is not None), owner, namespace)

    def learn(self, made: LevelForecast, run_seconds: float) -> None:
        """Move the levels of the owner and of the namespace, and the namespace's margin."""
        own, all_of_it = self._owners.get(made.owner), self._namespaces.get(made.namespace)
        seconds = float(whole(run_seconds))
        self._owners.put(made.owner, np.array([_smoothed(None if own is None else float(own[0]), seconds)]))
        level, margin = (None, FIRST_MARGIN) if all_of_it is None else (float(all_of_it[0]), float(all_of_it[1]))
        margin = moved(margin, seconds > made.upper)
        self._namespaces.put(made.namespace, np.array([_smoothed(level, seconds), margin]))


def _smoothed(level: float | None, seconds: float) -> float:
    return seconds if level is None else KEPT * level + (1.0 - KEPT) * seconds
