"""Boosted trees over log-runtime bins: the chance that a job ends in a bin, given that it got there.

Called by `rolling`, which chooses the training jobs. A job becomes one row for each bin up to its own, labelled with
whether it ended there, so one set of trees serves all bins. Each row holds the bin and how far it lies from each anchor
(the request, the last runs, the heuristics): "ends near its twin's last run" is then one split, for any length. Bins
that a job outlived outnumber the bins of an end; a share of them is drawn and weighted up.

Invariant: the masses of a forecast add up to 1, the last bin taking what outlives all others.
"""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
import xgboost

from cotide_core.kernels.array_types import Floats
from cotide_predictors.estimator import Estimator
from cotide_predictors.run_time.distributions import Distributions
from cotide_predictors.run_time.jobs import Ints
from cotide_predictors.run_time.tree_features import TreeFeatures

LONGEST_SECONDS: Final = 2.0e6
"""End of the last bin: 23 days, above the longest run of the archive's logs used here (chosen)."""


class HazardTrees(Estimator):
    """Run-time distributions from features.

    Parameters
    ----------
    bins : K of equal width in log seconds, from 1 s to `LONGEST_SECONDS`.
    trees, depth, learning_rate, ridge, least_weight, row_share, max_bin : of the boosting.
    drawn : in (0, 1], share of outlived bins that is learned from.

    The defaults were chosen on the KTH-SP2 and LLNL-Atlas logs.

    Attributes
    ----------
    edges_ : (K + 1,) log seconds.
    booster_ : the trees.
    """

    def __init__(
        self,
        *,
        bins: int = 64,
        trees: int = 50,
        depth: int = 6,
        learning_rate: float = 0.15,
        ridge: float = 1.0,
        least_weight: float = 20.0,
        row_share: float = 0.7,
        max_bin: int = 64,
        drawn: float = 0.2,
        random_state: int = 0,
    ) -> None:
        self.bins = bins
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.ridge = ridge
        self.least_weight = least_weight
        self.row_share = row_share
        self.max_bin = max_bin
        self.drawn = drawn
        self.random_state = random_state

    def edges(self) -> Floats:
        """Return the (bins + 1,) log seconds between which bins lie."""
        return np.linspace(0.0, np.log(LONGEST_SECONDS), self.bins + 1)

    def fit(self, features: TreeFeatures, run_seconds: Floats) -> Self:
        """Learn from n completed jobs."""
        self.edges_ = self.edges()
        ended = self._bin_of(run_seconds)
        generator = np.random.default_rng(self.random_state)
        job = np.repeat(np.arange(len(ended)), ended + 1)
        index = np.arange(len(job)) - np.repeat(np.cumsum(ended + 1) - ended - 1, ended + 1)
        label = index == ended[job]
        taken = label | (generator.random(len(job)) < self.drawn)
        job, index, label = job[taken], index[taken], label[taken]
        data = xgboost.QuantileDMatrix(
            self._matrix(features, job, index),
            label.astype(np.float32),
            weight=np.where(label, 1.0, 1.0 / self.drawn),
            max_bin=self.max_bin,
            nthread=1,
        )
        parameters: dict[str, Any] = {
            "objective": "binary:logistic",
            "eta": self.learning_rate,
            "max_depth": self.depth,
            "reg_lambda": self.ridge,
            "min_child_weight": self.least_weight,
            "subsample": self.row_share,
            "max_bin": self.max_bin,
            "tree_method": "hist",
            "seed": self.random_state,
            "nthread": 1,
        }
        self.booster_ = xgboost.train(parameters, data, self.trees)
        return self

    def predict(self, features: TreeFeatures) -> Distributions:
        """Return the distributions of n jobs."""
        job = np.repeat(np.arange(len(features)), self.bins)
        index = np.tile(np.arange(self.bins), len(features))
        matrix = self._matrix(features, job, index)
        ends = np.asarray(self.booster_.inplace_predict(matrix, validate_features=False), dtype=np.float64)
        ends = ends.reshape(len(features), self.bins)
        ends[:, -1] = 1.0
        outlived = np.cumprod(1.0 - ends, axis=1)
        reached = np.concatenate([np.ones((len(features), 1)), outlived[:, :-1]], axis=1)
        return Distributions(self.edges_, reached * ends)

    def _bin_of(self, seconds: Floats) -> Ints:
        found = np.searchsorted(self.edges_, np.log(seconds), side="right") - 1
        return np.clip(found, 0, self.bins - 1).astype(np.int64)

    def _matrix(self, features: TreeFeatures, job: Ints, index: Ints) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return a row for each (job, bin): the bin's centre, its distance from the anchors, the context."""
        centre = (self.edges_[:-1] + self.edges_[1:])[index] / 2
        anchors = features.anchors[job]
        parts = [centre[:, None], centre[:, None] - anchors, features.context[job]]
        return np.concatenate(parts, axis=1, dtype=np.float32)
