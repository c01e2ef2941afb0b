"""The baselines of boosted trees in estimating how accurate a forecast is (Naghshnejad 2019, Table 4.2), and the
features that matter to the trees (Fig. 4.9).

Called by `cotide experiment run-times`; `estimation.rolling_reliability` rebuilds each in the same way. All see the
thesis's inputs: the sixteen features of Table 4.1 and the forecast. Invariant: as there, a job that is not over moves
no estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from scipy.spatial import KDTree
from sklearn.tree import DecisionTreeRegressor

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.run_time.reliability.estimation import Completed, Estimate, Learn, boosted, fitted_trees
from cotide_predictors.run_time.regression import FEATURES
from cotide_predictors.run_time.scores import accuracy

PRINTED_FEATURES: Final = (*FEATURES, "forecast")
LEAST_LEAF: Final = 20
"""Jobs in a leaf of the decision tree (chosen: as many as keep a leaf's mean within a twentieth or so)."""
NEIGHBOURS: Final = 5
"""Of CNK (Bosnic and Kononenko 2008 take five)."""


def printed_columns(table: Floats, forecast_seconds: Floats) -> Floats:
    """Return (n, 17) columns in the order of `PRINTED_FEATURES`; times in hours.

    Parameters
    ----------
    table : (n, 16) of `regression.table_4_1`. forecast_seconds : (n,).
    """
    return np.column_stack([table, forecast_seconds / 3600.0])


def decision_tree(done: Completed, seed: int) -> Estimate:
    """Fit one regression tree to the accuracies of completed jobs."""
    tree = DecisionTreeRegressor(min_samples_leaf=LEAST_LEAF, random_state=seed)
    tree.fit(done.columns, accuracy(done.forecast_seconds, done.run_seconds))

    def estimate(columns: Floats, forecast_seconds: Floats) -> Floats:
        del forecast_seconds
        return np.asarray(tree.predict(columns), dtype=np.float64)

    return estimate


def nearest_neighbours(done: Completed, seed: int) -> Estimate:
    """Return CNK (Bosnic and Kononenko 2008): the distance of a forecast from the mean run of the nearest completed
    jobs.

    The source takes the difference, an error; here it is eq. 4.2 of both, which makes it comparable with the others.
    Columns are scaled to unit deviation.
    """
    del seed
    centre, spread = done.columns.mean(axis=0), done.columns.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    nearest = KDTree((done.columns - centre) / scale)
    count = min(NEIGHBOURS, len(done.columns))

    def estimate(columns: Floats, forecast_seconds: Floats) -> Floats:
        _, rows = nearest.query((columns - centre) / scale, k=count)
        means = done.run_seconds[rows].reshape(len(columns), count).mean(axis=1)
        return accuracy(forecast_seconds, means)

    return estimate


BASELINES: Final[Mapping[str, Learn]] = MappingProxyType(
    {"gradient boosting": boosted, "decision tree": decision_tree, "cnk": nearest_neighbours}
)
"""The columns of Table 4.2."""


def importances(done: Completed, seed: int) -> dict[str, float]:
    """Return the reduction of the boosted trees' loss by each of `PRINTED_FEATURES`, the most important as 100.

    The sum over all splits by it; features that no split uses are 0.
    """
    gain = fitted_trees(done, seed).get_score(importance_type="total_gain")
    found = {name: float(gain.get(f"f{column}", 0.0)) for column, name in enumerate(PRINTED_FEATURES)}  # type: ignore[arg-type]  # one number, of one target
    most = max(found.values()) or 1.0
    return {name: 100.0 * value / most for name, value in sorted(found.items(), key=lambda pair: -pair[1])}
