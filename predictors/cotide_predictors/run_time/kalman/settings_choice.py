"""Settings of the filters and of their baseline, exponential smoothing: one rule and one budget for both.

Called by `forecasts` and `smoothing`. Whenever the number of completed jobs has doubled, each of `TRIALS` settings
forecasts the latest completed jobs once more. It starts from the first state and takes the events in order. The setting
with the highest mean accuracy (Naghshnejad 2019, eq. 5.13) holds from then on. Invariant: only completed jobs take
part; the earlier of two equal settings wins; events in pieces give the same result as all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.jobs import Ints
from cotide_predictors.run_time.scores import accuracy

TRIALS: Final = 24
"""Settings that each forecaster chooses from (chosen)."""
FIRST_CHOICE_JOBS: Final = 200
"""Completions before the first choice (chosen)."""
JUDGED_JOBS: Final = 2000
"""Latest completions that a choice is made on (chosen: half a second of trials)."""

Setting = TypeVar("Setting")
Trial = Callable[[Setting, Ints], Floats]
"""A setting and events to the forecasts, seconds, of the jobs that are submitted among them, in their order."""


class SettingsChoice(Generic[Setting]):
    """Counts completions and decides when to choose.

    Parameters
    ----------
    settings : `TRIALS` of them; the first holds until the first choice.

    Raises
    ------
    ValueError
        When there are more or fewer settings.
    """

    def __init__(self, settings: Sequence[Setting]) -> None:
        if len(settings) != TRIALS:
            raise ValueError(f"each forecaster has {TRIALS} settings, not {len(settings)}")
        self.setting = settings[0]
        self._settings = settings
        self._seen: list[Ints] = []
        self._count = 0
        self._wanted = FIRST_CHOICE_JOBS

    def piece_of(self, events: Ints) -> Ints:
        """Return the first events, up to the completion after which a choice is due, and note them as seen."""
        done = self._count + np.cumsum(events < 0)
        piece = events[: int(np.searchsorted(done, self._wanted)) + 1]
        self._seen.append(piece)
        self._count = int(done[len(piece) - 1])
        return piece

    def is_due(self) -> bool:
        """Whether the completed jobs have doubled since the last choice."""
        return self._count == self._wanted

    def choose(self, run_seconds: Floats, trial: Trial[Setting]) -> None:
        """Put the most accurate setting in force.

        Parameters
        ----------
        run_seconds : (n,) read for completed jobs only.
        """
        self._wanted *= 2
        seen = np.concatenate(self._seen)
        self._seen = [seen]
        completed = ~seen[seen < 0][-JUDGED_JOBS:]
        events = seen[np.isin(np.where(seen < 0, ~seen, seen), completed)]
        actual = run_seconds[events[events >= 0]]
        scores = [float(accuracy(trial(setting, events), actual).mean()) for setting in self._settings]
        self.setting = self._settings[int(np.argmax(scores))]
