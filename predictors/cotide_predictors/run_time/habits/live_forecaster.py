"""What a forecaster of live pods' run times answers, and learns from.

Implemented by the `live_*` modules here, called by `pod_run_times` and by the lab. Invariants: a forecast rests on runs
that were learned before it and on nothing else; runs of one namespace never move a forecast of another's pods by what
is kept by key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from cotide_predictors.run_time.habits.keyed_states import KeyedStates
from cotide_predictors.run_time.habits.likeness import Likeness


class LiveForecast(Protocol):
    """One forecast; what else it holds is its forecaster's own."""

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
        """Return past runs, or kinds of them, that it rests on; 0 where there is none."""
        ...


class LiveForecaster(Protocol):
    """Answers when a pod comes, learns when one has succeeded."""

    def forecast(
        self, likeness: Likeness, reference_seconds: float, *, cores: float = 1.0, hour: int = 0
    ) -> LiveForecast:
        """Forecast a run.

        Parameters
        ----------
        reference_seconds : what a completion model, or the user, says.
        cores : that the pod asks for. hour : of the epoch, in which it came.
        """
        ...

    def learn(self, made: Any, run_seconds: float) -> None:
        """Learn how long a run took about which this forecaster made a forecast."""
        ...

    def retain(self, namespaces: Collection[bytes]) -> None:
        """Drop what was learned in other namespaces than these, named by `likeness.namespace_key`."""
        ...

    def __len__(self) -> int:
        """Return the series of pods that it knows."""
        ...


class TabledForecaster(LiveForecaster, Protocol):
    """A forecaster whose all lies in tables by key."""

    @property
    def tables(self) -> dict[str, KeyedStates]:
        """Return the tables by name, to be kept and restored."""
        ...
