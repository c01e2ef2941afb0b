"""Exponential smoothing of a user's runs (Naghshnejad 2019, eq. 5.6), a baseline of the Kalman filters.

Called by the lab and by the drivers of single events. Its weight, and whether seconds or their logarithms are smoothed,
is chosen on completed jobs by the rule of the filters (`settings_choice`). Invariant: as everywhere here, only
completions before a submission count.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_predictors.run_time.heuristics import bounded
from cotide_predictors.run_time.jobs import Ints, JobTable, RunLog, codes, event_order
from cotide_predictors.run_time.kalman.settings_choice import SettingsChoice


class Smoothing(NamedTuple):
    """``kept`` : lambda, the share of the level that a new run leaves. ``in_logs`` : levels are of log seconds."""

    kept: float
    in_logs: bool


KEPT: Final = 0.1
"""Lambda before the first choice and of the live forecaster; the thesis gives none. Chosen: the best above 0 on the
first 12,000 jobs of HPC2N, the thesis's own tuning log. 0, the last run alone, is a little better there.
"""
SETTINGS: Final = (
    Smoothing(KEPT, False),
    *(
        Smoothing(kept, in_logs)
        for in_logs in (False, True)
        for kept in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
        if (kept, in_logs) != (KEPT, False)
    ),
)


class Smoother:
    """The levels of a log's users, and the moments at which their setting is chosen.

    Parameters
    ----------
    jobs : n jobs. setting : holds for ever; None chooses from `SETTINGS`.
    """

    def __init__(self, jobs: JobTable, setting: Smoothing | None = None) -> None:
        self._keys = codes(jobs.user)
        self._requested = jobs.requested_seconds
        self._levels = self._begun()
        self._choice = SettingsChoice(SETTINGS)
        self._fixed = setting

    def walk(self, events: Ints, run_seconds: Floats, out: Floats) -> None:
        """Take events in order: write a submission's level to ``out``, move the user's at a completion.

        Parameters
        ----------
        events : as in `event_order`, or any piece of it. run_seconds : (n,) read for completions only.
        out : (n,) seconds, nan without a past.
        """
        while len(events):
            if self._fixed is None and self._choice.is_due():
                self._choice.choose(run_seconds, lambda setting, asked: self._trial(setting, asked, run_seconds))
            piece = events if self._fixed is not None else self._choice.piece_of(events)
            setting = self._fixed or self._choice.setting
            walk_levels(piece, self._keys, run_seconds, setting.kept, setting.in_logs, self._levels, out)
            events = events[len(piece) :]

    def _trial(self, setting: Smoothing, events: Ints, run_seconds: Floats) -> Floats:
        out = np.full(len(self._keys), np.nan)
        walk_levels(events, self._keys, run_seconds, setting.kept, setting.in_logs, self._begun(), out)
        asked = events[events >= 0]
        return bounded(out[asked], self._requested[asked])

    def _begun(self) -> Floats:
        return np.full(int(self._keys.max(initial=0)) + 1, np.nan)


def exponentially_smoothed(log: RunLog, *, setting: Smoothing | None = None) -> Floats:
    """Return (n,) levels in seconds at each submission; nan without a past."""
    out = np.full(len(log), np.nan)
    Smoother(log.jobs, setting).walk(event_order(log.jobs.submit_seconds, log.finish_seconds), log.run_seconds, out)
    return out


@compiled
def walk_levels(events: Ints, keys: Ints, run: Floats, kept: float, in_logs: bool, levels: Floats, out: Floats) -> None:
    """Take events in order: write a submission's level to ``out``, move the user's at a completion.

    Parameters
    ----------
    events : as in `event_order`, or any piece of it. keys : (n,) users. run : (n,) read for completions only.
    levels : (users,) seconds, nan without a past; changed in place.
    """
    for event in events:
        if event >= 0:
            out[event] = levels[keys[event]]
        else:
            level, new = levels[keys[~event]], run[~event]
            if np.isnan(level):
                levels[keys[~event]] = new
            elif in_logs:
                levels[keys[~event]] = np.exp(kept * np.log(level) + (1.0 - kept) * np.log(new))
            else:
                levels[keys[~event]] = kept * level + (1.0 - kept) * new
