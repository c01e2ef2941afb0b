"""The inputs of the regressions for a job: Table 5.1 of Naghshnejad 2019, in logs and of about one in size.

Called by `forecasts`. The table's free capacity is left out: a log's jobs do not record it, and a replay's schedule
would have to supply it. Invariant: a function of the job's own row alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.jobs import JobTable
from cotide_predictors.run_time.tree_features import DAY_SECONDS, WEEK_SECONDS

REGRESSORS: Final = ("constant", "request", "processors", "day_cos", "day_sin", "week_cos", "week_sin")
MIDDLE_LOG_REQUEST: Final = 8.5
"""An hour and a half: the value of a missing request, and the origin of requests in logs (chosen)."""


def regressors_of(jobs: JobTable) -> Floats:
    """Return (n, 7) regressors, in the order of `REGRESSORS`."""
    day = 2 * np.pi * (jobs.submit_seconds % DAY_SECONDS) / DAY_SECONDS
    week = 2 * np.pi * (jobs.submit_seconds % WEEK_SECONDS) / WEEK_SECONDS
    asked = np.log(np.where(jobs.requested_seconds > 1.0, jobs.requested_seconds, np.exp(MIDDLE_LOG_REQUEST)))
    columns = [
        np.ones(len(jobs)),
        (asked - MIDDLE_LOG_REQUEST) / 2.0,
        np.log(np.maximum(jobs.processors, 1.0)) / 2.0,
        np.cos(day),
        np.sin(day),
        np.cos(week),
        np.sin(week),
    ]
    return np.ascontiguousarray(np.column_stack(columns))
