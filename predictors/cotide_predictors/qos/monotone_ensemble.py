"""Log odds from features: monotone boosted trees on a monotone logistic base.

Used by `qos.QosModel`, which builds the features and calibrates the output. The trees follow the measurements. The base
gives them a slope to start from, and goes on outside the box of training features, where they stop::

    log odds(x) = base(x) - (1 - share) base(x clipped to the box) + trees(x)

With ``share`` = 1 the trees correct the whole base, with 0 it only counts outside the box. Invariant: every term is
monotone in the directions of `mix_features.FEATURES`, and so is the sum, in single precision too.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from cotide_core.errors import ModelError
from cotide_core.kernels.array_types import Floats
from cotide_predictors.estimator import Estimator
from cotide_predictors.persistence.boosted_trees import BoostedTrees
from cotide_predictors.qos.mix_features import MONOTONE, smooth_matrix
from cotide_predictors.qos.monotone_logistic import MonotoneLogistic


class MonotoneEnsemble(Estimator):
    """Monotone trees with a monotone logistic base; parameters as in `qos.QosModel`.

    Parameters
    ----------
    share : in [0, 1], the share of the base under the trees inside the box.

    Attributes
    ----------
    low_, high_ : (k,) corners of the box of training features.
    base_ : the logistic base.
    trees_ : the trees.
    booster_bytes_ : the trees as UBJ; predictions come from these bytes.
    """

    def __init__(
        self,
        *,
        trees: int,
        depth: int,
        learning_rate: float,
        ridge: float,
        least_weight: float,
        inverse_ridge: float,
        share: float,
        random_state: int,
    ) -> None:
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.ridge = ridge
        self.least_weight = least_weight
        self.inverse_ridge = inverse_ridge
        self.share = share
        self.random_state = random_state

    def fit(self, features: Floats, violated: Floats, weights: Floats) -> Self:
        """Learn from (n, k) features, (n,) labels 0 or 1 and (n,) weights."""
        import xgboost  # heavy, and only training needs it

        self.low_, self.high_ = features.min(axis=0), features.max(axis=0)
        smooth = smooth_matrix(features, self._pressure_range())
        self.base_ = MonotoneLogistic(inverse_ridge=self.inverse_ridge).fit(smooth, violated, weights)
        parameters: dict[str, Any] = {
            "objective": "binary:logistic",
            "eta": self.learning_rate,
            "max_depth": self.depth,
            "reg_lambda": self.ridge,
            "min_child_weight": self.least_weight,
            "monotone_constraints": MONOTONE,
            "base_score": 0.5,
            "tree_method": "hist",
            "seed": self.random_state,
            "nthread": 1,
        }
        data = xgboost.DMatrix(features, violated, weight=weights, base_margin=self._start(features), nthread=1)
        self.load_booster(bytes(xgboost.train(parameters, data, self.trees).save_raw("ubj")))
        return self

    def decision_function(self, features: Floats) -> Floats:
        """Return (n,) log odds, all rows in one call.

        The start is added here. As ``base_margin`` it would go through a matrix that ignores nthread, and its OpenMP
        barrier costs 5 ms a call on a busy machine.
        """
        return self._start(features) + self.trees_.margin(features)

    def load_booster(self, payload: bytes) -> None:
        """Take the trees from UBJ bytes; raise `ModelError` where they are invalid."""
        try:
            self.trees_ = BoostedTrees.of(payload, len(MONOTONE))
        except ValueError as error:
            raise ModelError(f"the trees are not an xgboost model that this program can use: {error}") from error
        except (LookupError, TypeError, AttributeError) as error:
            raise ModelError(f"the trees differ from those that this program grows: {error}") from error
        self.booster_bytes_ = payload

    def _start(self, features: Floats) -> Floats:
        """Return (n,) start margins of the trees."""
        start = self.base_.decision_function(smooth_matrix(features, self._pressure_range()))
        if self.share < 1.0:
            boxed = np.clip(features, self.low_, self.high_)
            inside = self.base_.decision_function(smooth_matrix(boxed, self._pressure_range()))
            start = start - (1.0 - self.share) * inside
        return start

    def _pressure_range(self) -> tuple[float, float]:
        return float(self.low_[-1]), float(self.high_[-1])
