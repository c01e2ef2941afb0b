"""The answers of a forecaster of live pods' run times, and how it learns.

Implemented by the `live_*` modules here, called by `pod_run_times` and by the lab. Invariants: a forecast depends only
on runs that were learned before it. Runs of one namespace never move a forecast for another's pods through state that
is kept by key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from cotide_predictors.run_time.habits.keyed_states import KeyedStates
from cotide_predictors.run_time.habits.likeness import Likeness


class LiveForecast(Protocol):
    """One forecast; further fields belong to its forecaster."""

    @property
    def seconds(self) -> int:
        """Return whole seconds, >= 1, that order pods."""
        ...

    @property
    def upper(self) -> int:
        """Return whole seconds, not below the former, that all but one in ten runs do not outlive."""
        ...

    @property
    def alike(self) -> int:
        """Return the number of past runs, or kinds of them, behind the forecast; 0 where there is none."""
        ...


class LiveForecaster(Protocol):
    """Answers when a pod comes, learns when one has succeeded."""

    def forecast(
        self, likeness: Likeness, reference_seconds: float, *, cores: float = 1.0, hour: int = 0
    ) -> LiveForecast:
        """Forecast a run.

        Parameters
        ----------
        reference_seconds : forecast of a completion model, or the user's estimate.
        cores : requested by the pod. hour : of its arrival, of the epoch.
        """
        ...

    def learn(self, made: Any, run_seconds: float) -> None:
        """Learn the length of a run that this forecaster had forecast."""
        ...

    def retain(self, namespaces: Collection[bytes]) -> None:
        """Keep what was learned in these namespaces only, named by `likeness.namespace_key`."""
        ...

    def __len__(self) -> int:
        """Return the number of known series of pods."""
        ...


class TabledForecaster(LiveForecaster, Protocol):
    """A forecaster with all its state in tables by key."""

    @property
    def tables(self) -> dict[str, KeyedStates]:
        """Return the tables by name, to be kept and restored."""
        ...
