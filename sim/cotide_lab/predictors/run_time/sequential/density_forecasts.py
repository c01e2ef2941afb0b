"""The mixture density network, one submission and completion after the other.

Called by `catalogue`; network, window and moments of the refits are those of `mixture_density.rolling_density`.
Invariant: as of `forecaster`.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.run_time.mixture_density.density_network import DensityNetwork
from cotide_lab.predictors.run_time.mixture_density.rolling_density import (
    broad_mixtures,
    joined_inputs,
    thesis_columns,
)
from cotide_lab.predictors.run_time.sequential.rebuilding import FeatureWalk, RebuildPeriods
from cotide_predictors.run_time.jobs import SHORTEST_SECONDS, Ints, JobTable
from cotide_predictors.run_time.sequential.forecaster import Answers, answers_of


class SequentialDensity:
    """The network of Naghshnejad 2019, section 6.3, with the user's past runs among its inputs.

    Parameters
    ----------
    network : fitted in place. every_seconds : between two refits.

    Attributes
    ----------
    refits : made so far.
    """

    def __init__(self, jobs: JobTable, network: DensityNetwork, every_seconds: float) -> None:
        self._jobs = jobs
        self._network = network
        self._own = thesis_columns(jobs)
        self._walk = FeatureWalk(jobs)
        first = float(jobs.submit_seconds[0]) if len(jobs) else 0.0
        self._periods = RebuildPeriods(first, every_seconds, network.random_state)
        self._run = np.empty(len(jobs))
        self.refits = 0

    def finished(self, jobs: Ints, run_seconds: Floats, finish_seconds: Floats) -> None:
        """Learn."""
        self._run[jobs] = np.maximum(run_seconds, SHORTEST_SECONDS)
        self._walk.finished(jobs, self._run[jobs], finish_seconds)
        self._periods.finished(jobs, finish_seconds)

    def submitted(self, rows: slice) -> Answers:
        """Forecast."""
        asked = self._jobs.rows(rows)
        self._walk.submitted(rows)
        learned = self._periods.due(float(asked.submit_seconds[0]))
        if learned is not None:
            fit = self._network.refit if self.refits else self._network.fit
            fit(self._inputs(learned), self._run[learned])
            self.refits += 1
        if self.refits:
            found = self._network.predict(self._inputs(rows))
        else:
            found = broad_mixtures(len(asked), self._network.components)
        return answers_of(found, asked.requested_seconds)

    def _inputs(self, chosen: Ints | slice) -> Floats:
        return joined_inputs(self._own[chosen], self._walk.features.rows(chosen))
