"""Quantiles with calibrated coverage: the level requested of the distributions follows the misses of completed jobs.

Called with forecasts of `rolling`; reservations take the upper quantiles. Users' habits drift, and distributions
learned from the past are too narrow for later jobs. So each target has one working level. A completed job that outlived
its quantile raises the level; one that did not lowers it, as in adaptive conformal inference (Gibbs and Candes, 2021).
The level moves in log odds here, so that it stays inside (0, 1). Invariant: a job's quantile uses completions before
its submission.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_predictors.run_time.distributions import Distributions
from cotide_predictors.run_time.jobs import Ints

STEP: Final = 0.02
"""Step of the level's log odds for a missed job, less the target's share (chosen: follows hundreds of jobs)."""
REACH: Final = 7.0
"""Bound of the level's log odds, .999 (chosen)."""


def kept_quantile(events: Ints, forecasts: Distributions, run_seconds: Floats, target: float) -> Floats:
    """Return (n,) seconds that a share ``target`` of the jobs does not outlive, level corrected as jobs complete.

    Parameters
    ----------
    events : as in `jobs.event_order`. run_seconds : (n,) read for completions only.
    """
    out = np.empty(len(forecasts))
    cumulative = np.cumsum(forecasts.masses, axis=1)
    _walk(events, cumulative, forecasts.edges, run_seconds, target, out)
    return out


@compiled
def _walk(events: Ints, cumulative: Floats, edges: Floats, run: Floats, target: float, out: Floats) -> None:
    odds = np.log(target / (1.0 - target))
    last = cumulative.shape[1] - 1
    for event in events:
        if event < 0:
            missed = 1.0 if run[~event] > out[~event] else 0.0
            odds = min(max(odds + STEP * (missed - (1.0 - target)), -REACH), REACH)
            continue
        level = 1.0 / (1.0 + np.exp(-odds))
        index = 0
        while index < last and cumulative[event, index] < level:
            index += 1
        before = cumulative[event, index - 1] if index > 0 else 0.0
        mass = cumulative[event, index] - before
        share = min(max((level - before) / mass, 0.0), 1.0) if mass > 0.0 else 1.0
        out[event] = np.exp(edges[index] + share * (edges[index + 1] - edges[index]))
