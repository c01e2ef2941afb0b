"""The mixture density network's forecasts of a whole log, refitted in between on a window of completed jobs.

Called by the lab. The window and its moments are those of the trees (`rolling.rebuilds`): jobs that finished before the
refit, latest and older ones. The first refit starts from new weights, the others continue from its weights. Invariant:
as in `rolling`, a run time that is not over cannot move a forecast.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.run_time.mixture_density.density_network import DensityNetwork
from cotide_lab.predictors.run_time.rolling import Progress, rebuilds
from cotide_predictors.run_time.gaussian_mixtures import GaussianMixtures
from cotide_predictors.run_time.jobs import JobTable, RunLog
from cotide_predictors.run_time.kalman.regressors import MIDDLE_LOG_REQUEST, regressors_of
from cotide_predictors.run_time.tree_features import DAY_SECONDS, TreeFeatures, tree_features


def rolling_mixtures(
    log: RunLog,
    inputs: Floats,
    *,
    model: DensityNetwork | None = None,
    every_seconds: float = DAY_SECONDS,
    progress: Progress | None = None,
) -> GaussianMixtures:
    """Return the mixtures of all jobs; before the first refit one broad Gaussian around the middle of requests.

    Parameters
    ----------
    inputs : (n, d) as `thesis_inputs` or `past_inputs` give them.
    model : fitted in place. progress : called with the share of submissions answered after every refit.
    """
    network = DensityNetwork() if model is None else model
    answers = broad_mixtures(len(log), network.components)
    fitted = False
    for rebuild in rebuilds(log, every_seconds=every_seconds, random_state=network.random_state):
        learned = (inputs[rebuild.learned], log.run_seconds[rebuild.learned])
        network = network.refit(*learned) if fitted else network.fit(*learned)
        fitted = True
        found = network.predict(inputs[rebuild.answered])
        answers.weights[rebuild.answered], answers.means[rebuild.answered] = found.weights, found.means
        answers.deviations[rebuild.answered] = found.deviations
        if progress is not None:
            progress(rebuild.answered.stop / len(log))
    return answers


def broad_mixtures(count: int, components: int) -> GaussianMixtures:
    """Return the forecasts before the first refit: one Gaussian, repeated for each component."""
    shape = (count, components)
    return GaussianMixtures(
        np.full(shape, 1.0 / components), np.full(shape, MIDDLE_LOG_REQUEST - 2.0), np.full(shape, 2.5)
    )


def thesis_columns(jobs: JobTable) -> Floats:
    """Return (n, d) the inputs of section 6.3.1: the request, the processors, the calendar."""
    return regressors_of(jobs)[:, 1:]


def thesis_inputs(log: RunLog) -> Floats:
    """Return (n, d) those of a log's jobs."""
    return thesis_columns(log.jobs)


def past_inputs(log: RunLog) -> Floats:
    """Return (n, d) those, and the user's past runs as the trees see them."""
    return joined_inputs(thesis_inputs(log), tree_features(log))


def joined_inputs(own: Floats, past: TreeFeatures) -> Floats:
    """Return (k, d) inputs of k jobs: their own columns, and their users' past runs."""
    return np.concatenate([own, past.anchors, past.context], axis=1)
