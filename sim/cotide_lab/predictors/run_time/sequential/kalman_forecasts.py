"""The Kalman filters, one submission and completion after the other.

Called by `catalogue`; the filters and the moments at which their noise is chosen are those of `kalman.forecasts`.
Invariant: as of `forecaster`.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.jobs import Ints, JobTable
from cotide_predictors.run_time.kalman.fixed_multiple import mixtures_of
from cotide_predictors.run_time.kalman.forecasts import Filters, Kind
from cotide_predictors.run_time.sequential.forecaster import Answers, answers_of


class SequentialKalman:
    """FMKF or MLKF (Naghshnejad 2019, sections 5.3.3 and 5.3.4)."""

    def __init__(self, jobs: JobTable, kind: Kind) -> None:
        self._jobs = jobs
        self._filters = Filters(kind, jobs)
        self._logs = np.zeros(len(jobs))
        self._out = np.empty((len(jobs), 6))

    def finished(self, jobs: Ints, run_seconds: Floats, finish_seconds: Floats) -> None:
        """Learn."""
        del finish_seconds
        self._logs[jobs] = np.log(run_seconds)
        self._filters.walk(~jobs, self._logs, self._out)

    def submitted(self, rows: slice) -> Answers:
        """Forecast."""
        self._filters.walk(np.arange(rows.start, rows.stop), self._logs, self._out)
        return answers_of(mixtures_of(self._out[rows]), self._jobs.requested_seconds[rows])
