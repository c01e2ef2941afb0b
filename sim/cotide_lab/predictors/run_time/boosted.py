"""Grows the boosted trees of a replay, at its pauses, from jobs that are over.

Called by trace replay and by `event_forecasts`, every 24 simulated hours (Naghshnejad 2019, section 4.4.4). In between,
the kernels query the last trees (`cotide_predictors.run_time.kernels.tree_forecasts`, which writes the training rows at
submission). Invariant: trees learn only from jobs that finished before the pause. The same jobs and seed give the same
trees, since all of it runs on one thread.

xgboost, since scikit-learn's histogram boosting took 1.1 to 1.5 times as long for the reliability at the same
correlation, and four times as long for the run times.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import xgboost

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.machines import NEVER
from cotide_lab.predictors.run_time.hazard import HazardTrees
from cotide_lab.predictors.run_time.kernels.run_forecasts import RATED, TREES, TREES_RATED, Past
from cotide_lab.predictors.run_time.reliability.estimation import PARAMETERS as RATING
from cotide_lab.predictors.run_time.reliability.estimation import TREES as RATING_TREES
from cotide_lab.predictors.run_time.rolling import LEAST_JOBS, OLDER_JOBS, RECENT_JOBS, chosen
from cotide_predictors.run_time.jobs import Ints
from cotide_predictors.run_time.kernels.forest import Forest
from cotide_predictors.run_time.kernels.tree_forecasts import LENGTHS, Trees
from cotide_predictors.run_time.scores import accuracy
from cotide_predictors.run_time.tree_features import TreeFeatures

DAY_SECONDS: Final = 86_400
"""Simulated time between two rebuilds, by default (Naghshnejad 2019, section 4.4.4)."""


class TreeRefitter:
    """Returns the pauses of a replay, and gives it new trees at each.

    Parameters
    ----------
    mode : of `cotide_lab.predictors.run_time.kernels.run_forecasts`.
    submit : (n,) seconds, rising.
    seed : of all draws.
    model : of run times; refitted in place at every rebuild.
    every_seconds : between two rebuilds.
    """

    def __init__(
        self,
        mode: int,
        submit: Ints,
        *,
        seed: int = 0,
        model: HazardTrees | None = None,
        every_seconds: int = DAY_SECONDS,
    ) -> None:
        self.mode, self.submit, self.seed, self.every_seconds = mode, submit, seed, every_seconds
        self.model = model or HazardTrees(bins=LENGTHS, random_state=seed)
        self.rebuilds = 0
        """Rebuilds so far."""

    def next_pause(self, arrived: int) -> int:
        """Return when the period of the next submission began, or `NEVER` after the last submission and where no pause
        is needed.

        Parameters
        ----------
        arrived : jobs submitted so far.
        """
        if self.mode < RATED or arrived >= len(self.submit):
            return NEVER
        first = int(self.submit[0])
        return first + (int(self.submit[arrived]) - first) // self.every_seconds * self.every_seconds

    def grown(self, past: Past, at: int, run: Ints, finish: Ints, forecast: Ints) -> Past:
        """Return the past with new trees, or as it was where too few jobs are over.

        Parameters
        ----------
        at : seconds, the moment of the rebuild.
        run, forecast : (n,) seconds, read for finished jobs.
        finish : (n,) seconds; later than ``at`` for a job that is not over, even if its end is known.
        """
        over = np.flatnonzero(finish < at)
        if len(over) < LEAST_JOBS:
            return past
        over = over[np.argsort(finish[over], kind="stable")]
        number = (at - int(self.submit[0])) // self.every_seconds
        indices = chosen(len(over), number, recent=RECENT_JOBS, older=OLDER_JOBS, random_state=self.seed)
        learned, trees = over[indices], past.trees
        if self.mode in (TREES, TREES_RATED):
            trees = trees._replace(lengths=self._lengths(trees, learned, run))
        if self.mode in (RATED, TREES_RATED):
            trees = trees._replace(ratings=self._ratings(trees, learned, run, forecast))
        self.rebuilds += 1
        return past._replace(trees=trees)

    def _lengths(self, trees: Trees, learned: Ints, run: Ints) -> Forest:
        seen = TreeFeatures(trees.anchors[learned].astype(np.float64), trees.context[learned].astype(np.float64))
        return forest_of(self.model.fit(seen, run[learned].astype(np.float64)).booster_)

    def _ratings(self, trees: Trees, learned: Ints, run: Ints, forecast: Ints) -> Forest:
        came: Floats = accuracy(forecast[learned].astype(np.float64), run[learned].astype(np.float64))
        data = xgboost.QuantileDMatrix(trees.rated[learned], came, max_bin=RATING["max_bin"], nthread=1)
        return forest_of(xgboost.train({**RATING, "seed": self.seed}, data, RATING_TREES))


def forest_of(booster: xgboost.Booster) -> Forest:
    """Return a booster's trees as arrays; their sum for a row is the booster's margin."""
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    trees = learner["gradient_booster"]["model"]["trees"]
    sizes = [len(tree["left_children"]) for tree in trees]
    offsets = np.cumsum([0, *sizes])[:-1]
    shift = np.repeat(offsets, sizes)

    def column(name: str) -> Any:
        return np.concatenate([np.asarray(tree[name]) for tree in trees])

    left, right = column("left_children"), column("right_children")
    leaf = left < 0
    missing = np.where(column("default_left") != 0, left, right)
    base = float(learner["learner_model_param"]["base_score"].strip("[]"))
    if learner["objective"]["name"] == "binary:logistic":
        base = float(np.log(base / (1.0 - base)))
    return Forest(
        roots=offsets.astype(np.int32),
        feature=np.where(leaf, -1, column("split_indices")).astype(np.int32),
        threshold=column("split_conditions").astype(np.float32),
        left=(left + shift).astype(np.int32),
        right=(right + shift).astype(np.int32),
        missing=(missing + shift).astype(np.int32),
        base=np.array([base]),
    )
