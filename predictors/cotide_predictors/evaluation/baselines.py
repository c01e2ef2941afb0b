"""What the models are measured against: the usual estimators, each with sensible scaling.

Called only by evaluation. QoS rivals answer for the one limit they were trained for and see the mix as plain columns
(rate, pressure, count and size of each type); completion rivals see type columns, log size, rate and pressure and
learn log seconds, which served SVR and the linear model far better than seconds and made no odds to the forests.
Contract as `QosModel` and `CompletionModel`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats
from cotide_predictors.completion.completion_model import JobBatch
from cotide_predictors.estimator import Estimator


class QosRival(Estimator):
    """A classifier of plain columns, for one limit.

    Parameters
    ----------
    method : a key of `QOS_RIVALS`.
    limit_milliseconds : the limit that labels are made for.
    random_state : seed.
    """

    def __init__(self, *, method: str, limit_milliseconds: float, random_state: int = 0) -> None:
        self.method = method
        self.limit_milliseconds = limit_milliseconds
        self.random_state = random_state

    def fit(self, mixes: MixBatch, latency_milliseconds: Floats) -> Self:
        """Learn from (n,) latencies; where all rows are of one kind, that kind is the answer."""
        columns, violated = self._columns(mixes), latency_milliseconds > self.limit_milliseconds
        self.constant_ = float(violated[0]) if violated.all() or not violated.any() else None
        if self.constant_ is None:
            self.estimator_ = QOS_RIVALS[self.method](self.random_state).fit(columns, violated)
        return self

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities of breaking the limit."""
        if self.constant_ is not None:
            return np.full(len(mixes), self.constant_)
        return np.asarray(self.estimator_.predict_proba(self._columns(mixes))[:, 1], dtype=np.float64)

    def predict(self, mixes: MixBatch) -> NDArray[np.bool_]:
        """Return (n,) whether the limit is broken, as the estimator itself decides."""
        if self.constant_ is not None:
            return np.full(len(mixes), self.constant_ > 0)
        return np.asarray(self.estimator_.predict(self._columns(mixes)), dtype=np.bool_)

    def _columns(self, mixes: MixBatch) -> Floats:
        rate = mixes.requests_per_second
        if self.method == RATE_ONLY:
            return rate[:, None]
        others = (mixes.other_requests_per_second, mixes.cpu_pressure, mixes.counts, mixes.input_bytes)
        return np.column_stack((rate, *others))


class PlattSvm(Estimator):
    """RBF support vectors whose distances become probabilities by a logistic fit on held-out distances."""

    def __init__(self, *, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, columns: Floats, violated: NDArray[np.bool_]) -> Self:
        """Fit on (n, k) columns and (n,) labels of both kinds."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVC

        machine = make_pipeline(StandardScaler(), SVC(kernel="rbf"))
        self.machine_ = machine.fit(columns, violated)
        rarer = int(min(violated.sum(), (~violated).sum()))
        self.platt_ = None
        if rarer >= 2:
            folds = StratifiedKFold(min(4, rarer), shuffle=True, random_state=self.random_state)
            distance = cross_val_predict(machine, columns, violated, cv=folds, method="decision_function")
            self.platt_ = LogisticRegression().fit(distance[:, None], violated)
        return self

    def predict(self, columns: Floats) -> NDArray[np.bool_]:
        """Return (n,) sides of the boundary."""
        return np.asarray(self.machine_.predict(columns), dtype=np.bool_)

    def predict_proba(self, columns: Floats) -> Floats:
        """Return (n, 2) probabilities; 0 or 1 by the side where there was too little to calibrate with."""
        if self.platt_ is None:
            broken = self.predict(columns).astype(np.float64)
            return np.column_stack((1.0 - broken, broken))
        return np.asarray(self.platt_.predict_proba(self.machine_.decision_function(columns)[:, None]))


class CompletionRival(Estimator):
    """A regressor of plain columns onto log seconds.

    Parameters
    ----------
    method : a key of `COMPLETION_RIVALS`.
    random_state : seed.
    """

    def __init__(self, *, method: str, random_state: int = 0) -> None:
        self.method = method
        self.random_state = random_state

    def fit(self, jobs: JobBatch, seconds: Floats) -> Self:
        """Learn from (n,) run times > 0."""
        self.types_ = tuple(sorted(set(jobs.types)))
        self.estimator_ = COMPLETION_RIVALS[self.method](self.random_state).fit(self._columns(jobs), np.log(seconds))
        return self

    def predict(self, jobs: JobBatch) -> Floats:
        """Return (n,) seconds."""
        return np.exp(np.asarray(self.estimator_.predict(self._columns(jobs)), dtype=np.float64))

    def _columns(self, jobs: JobBatch) -> Floats:
        kinds = (np.asarray(jobs.types)[:, None] == np.asarray(self.types_)[None, :]).astype(np.float64)
        size = np.log(np.maximum(jobs.input_bytes, 1.0))
        if self.method == PAPER_FOREST:
            return np.column_stack((kinds, size))
        return np.column_stack((kinds, size, jobs.requests_per_second, jobs.cpu_pressure))


def _logistic(random_state: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, random_state=random_state))


def _boosting(random_state: int) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=100, n_jobs=1, random_state=random_state)


def _linear(random_state: int) -> Any:
    from sklearn.linear_model import LinearRegression

    del random_state
    return LinearRegression()


def _support_vectors(random_state: int) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    del random_state
    # C and epsilon for log seconds (chosen: the best of a few on the measured grid, so that the rival is strong).
    return make_pipeline(StandardScaler(), SVR(C=10.0, epsilon=0.02))


def _forest(random_state: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(n_estimators=100, random_state=random_state)


RATE_ONLY: Final = "xgboost, rate only"
PAPER_FOREST: Final = "forest without rate (paper)"
QOS_RIVALS: Final[dict[str, Callable[[int], Any]]] = {
    "xgboost, plain (paper)": _boosting,
    "logistic regression": _logistic,
    "svm, rbf": lambda seed: PlattSvm(random_state=seed),
    RATE_ONLY: _boosting,
}
COMPLETION_RIVALS: Final[dict[str, Callable[[int], Any]]] = {
    "svr, rbf": _support_vectors,
    "linear regression": _linear,
    "forest with rate": _forest,
    PAPER_FOREST: _forest,
}
