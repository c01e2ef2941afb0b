"""Exponential smoothing of a user's runs (Naghshnejad 2019, eq. 5.6), a rival of the Kalman filters.

Called by the lab. Invariant: as everywhere here, only completions before a submission count.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_predictors.run_time.jobs import Ints, RunLog, codes, event_order

KEPT: Final = 0.5
"""Lambda, the share of the level that a new run leaves; the thesis gives none (chosen: best of .3, .5, .7 on KTH)."""


def exponentially_smoothed(log: RunLog, *, kept: float = KEPT) -> Floats:
    """Return (n,) levels in seconds as they stood at each submission; nan without a past."""
    keys = codes(log.jobs.user)
    out = np.full(len(log), np.nan)
    levels = np.full(int(keys.max(initial=0)) + 1, np.nan)
    walk_levels(event_order(log.jobs.submit_seconds, log.finish_seconds), keys, log.run_seconds, kept, levels, out)
    return out


@compiled
def walk_levels(events: Ints, keys: Ints, run: Floats, kept: float, levels: Floats, out: Floats) -> None:
    """Take events in order: write a submission's level to ``out``, move the user's at a completion.

    Parameters
    ----------
    events : as in `event_order`, or any piece of it. keys : (n,) users. run : (n,) read for completions only.
    levels : (users,) nan without a past; changed in place.
    """
    for event in events:
        if event >= 0:
            out[event] = levels[keys[event]]
        else:
            level = levels[keys[~event]]
            levels[keys[~event]] = run[~event] if np.isnan(level) else kept * level + (1.0 - kept) * run[~event]
