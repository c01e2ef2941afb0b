"""The baselines of the models: the usual estimators, each with sensible scaling.

Called by evaluation and the experiments. QoS baselines answer for the one limit of their training. Each sees the mix as
it is (rates, pressure, count and size of each type), and in logarithms with their products, as our smooth base does. It
chooses its settings on held-out cells of its own training rows (`trial_choice`). Two contenders ignore the mix: one
refuses every mix, one accepts every mix. Completion baselines see type columns, log size, rate and pressure and learn
log seconds. Log seconds served SVR and the linear model far better than seconds and made no difference to the forests.
Contract as `QosModel` and `CompletionModel`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats, Indices
from cotide_lab.predictors.evaluation.trial_choice import choose, log_loss
from cotide_predictors.completion.completion_model import JobBatch
from cotide_predictors.estimator import Estimator
from cotide_predictors.qos.mixes import cells_of

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QosMethod:
    """A way to classify mixes.

    Attributes
    ----------
    build : settings and seed to an unfitted estimator; None for a contender that always answers ``constant``.
    trials : `trial_choice.TRIALS` settings, the library's usual ones first.
    constant : fixed probability; None for an estimator.
    """

    build: Callable[[Settings, int], Any] | None
    trials: tuple[Settings, ...] = ()
    constant: float | None = None


class QosBaseline(Estimator):
    """A classifier of mixes, for one limit.

    Parameters
    ----------
    method : a key of `QOS_BASELINES`.
    limit_milliseconds : the limit for the labels.
    random_state : seed.

    Attributes
    ----------
    settings_ : chosen on held-out cells of the training rows; empty for a constant answer.
    """

    def __init__(self, *, method: str, limit_milliseconds: float, random_state: int = 0) -> None:
        self.method = method
        self.limit_milliseconds = limit_milliseconds
        self.random_state = random_state

    def fit(self, mixes: MixBatch, latency_milliseconds: Floats) -> Self:
        """Learn from (n,) latencies; where all rows are of one kind, that kind is the answer."""
        columns, violated = self._columns(mixes), latency_milliseconds > self.limit_milliseconds
        method = QOS_BASELINES[self.method]
        self.settings_: Settings = {}
        self.constant_ = method.constant
        if method.build is None:
            return self
        if violated.all() or not violated.any():
            self.constant_ = float(violated[0])
            return self
        build, seed = method.build, self.random_state

        def loss(settings: Settings, learned: Indices, held: Indices) -> float:
            if len(np.unique(violated[learned])) < 2:
                return float("nan")
            found = build(settings, seed).fit(columns[learned], violated[learned])
            return log_loss(np.asarray(found.predict_proba(columns[held])[:, 1]), violated[held])

        self.settings_ = choose(method.trials, cells_of(mixes), seed, loss)
        self.estimator_ = build(self.settings_, seed).fit(columns, violated)
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
        return mixes.requests_per_second[:, None] if self.method == RATE_ONLY else qos_columns(mixes)


def qos_columns(mixes: MixBatch) -> Floats:
    """Return the (n, 6 + 3 types) columns that every baseline sees.

    The columns: rate, rate of the others, pressure, count and bytes of each type; log1p of both rates and of all bytes;
    the product of the log rate with each count.
    """
    rate = np.log1p(mixes.requests_per_second)[:, None]
    other = np.log1p(mixes.other_requests_per_second)[:, None]
    size = np.log1p(mixes.input_bytes.sum(axis=1))[:, None]
    plain = (mixes.requests_per_second, mixes.other_requests_per_second, mixes.cpu_pressure)
    return np.column_stack((*plain, mixes.counts, mixes.input_bytes, rate, other, size, mixes.counts * rate))


class PlattSvm(Estimator):
    """RBF support vectors; a logistic fit on held-out distances turns their distances into probabilities.

    Parameters
    ----------
    softness, width : C and gamma of scikit-learn's SVC.
    """

    def __init__(self, *, softness: float = 1.0, width: float | str = "scale", random_state: int = 0) -> None:
        self.softness = softness
        self.width = width
        self.random_state = random_state

    def fit(self, columns: Floats, violated: NDArray[np.bool_]) -> Self:
        """Fit on (n, k) columns and (n,) labels of both kinds."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVC

        machine = make_pipeline(StandardScaler(), SVC(kernel="rbf", C=self.softness, gamma=self.width))
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
        """Return (n, 2) probabilities; 0 or 1 by the side with too few rows to calibrate."""
        if self.platt_ is None:
            broken = self.predict(columns).astype(np.float64)
            return np.column_stack((1.0 - broken, broken))
        return np.asarray(self.platt_.predict_proba(self.machine_.decision_function(columns)[:, None]))


class CompletionBaseline(Estimator):
    """A regressor of plain columns onto log seconds.

    Parameters
    ----------
    method : a key of `COMPLETION_BASELINES`.
    random_state : seed.
    """

    def __init__(self, *, method: str, random_state: int = 0) -> None:
        self.method = method
        self.random_state = random_state

    def fit(self, jobs: JobBatch, seconds: Floats) -> Self:
        """Learn from (n,) run times > 0."""
        self.types_ = tuple(sorted(set(jobs.types)))
        self.estimator_ = COMPLETION_BASELINES[self.method](self.random_state).fit(self._columns(jobs), np.log(seconds))
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


def _logistic(settings: Settings, random_state: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    plain = dict(settings)
    degree = plain.pop("degree", 1)
    terms = [PolynomialFeatures(degree, include_bias=False), StandardScaler()] if degree > 1 else []
    estimator = LogisticRegression(max_iter=1000, random_state=random_state, **plain)
    return make_pipeline(StandardScaler(), *terms, estimator)


def _boosting(settings: Settings, random_state: int) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_jobs=1, random_state=random_state, **settings)


def _vectors(settings: Settings, random_state: int) -> Any:
    return PlattSvm(random_state=random_state, **settings)


def _linear(random_state: int) -> Any:
    from sklearn.linear_model import LinearRegression

    del random_state
    return LinearRegression()


def _support_vectors(random_state: int) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    del random_state
    # C and epsilon for log seconds (chosen: the best of a few on the measured grid, so that the baseline is strong).
    return make_pipeline(StandardScaler(), SVR(C=10.0, epsilon=0.02))


def _forest(random_state: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(n_estimators=100, random_state=random_state)


PAPER_TREES: Final = "xgboost, plain (paper)"
RATE_ONLY: Final = "xgboost, rate only"
LOGISTIC: Final = "logistic regression"
REFUSE_ALL: Final = "refuses all"
ACCEPT_ALL: Final = "accepts all"
PAPER_FOREST: Final = "forest without rate (paper)"
_BOOSTINGS: Final[tuple[Settings, ...]] = (
    {"n_estimators": 100},
    {"n_estimators": 100, "max_depth": 3},
    {"n_estimators": 200, "max_depth": 5, "learning_rate": 0.1},
    {"n_estimators": 200, "max_depth": 3, "learning_rate": 0.1},
    {"n_estimators": 200, "max_depth": 5, "learning_rate": 0.1, "reg_lambda": 0.3, "min_child_weight": 0.3},
    {"n_estimators": 50, "max_depth": 4, "learning_rate": 0.1},
)
_LOGISTICS: Final[tuple[Settings, ...]] = (
    {"C": 1.0},
    {"C": 0.1},
    {"C": 10.0},
    {"C": 1000.0},
    {"C": 0.1, "degree": 2},
    {"C": 10.0, "degree": 2},
)
"""A degree of 2 adds the squares and the products of all columns."""
_VECTORS: Final[tuple[Settings, ...]] = (
    {"softness": 1.0},
    {"softness": 10.0},
    {"softness": 100.0},
    {"softness": 1.0, "width": 0.01},
    {"softness": 10.0, "width": 0.01},
    {"softness": 100.0, "width": 0.01},
)
QOS_BASELINES: Final[dict[str, QosMethod]] = {
    PAPER_TREES: QosMethod(_boosting, _BOOSTINGS),
    LOGISTIC: QosMethod(_logistic, _LOGISTICS),
    "svm, rbf": QosMethod(_vectors, _VECTORS),
    RATE_ONLY: QosMethod(_boosting, _BOOSTINGS),
    REFUSE_ALL: QosMethod(None, constant=1.0),
    ACCEPT_ALL: QosMethod(None, constant=0.0),
}
COMPLETION_BASELINES: Final[dict[str, Callable[[int], Any]]] = {
    "svr, rbf": _support_vectors,
    "linear regression": _linear,
    "forest with rate": _forest,
    PAPER_FOREST: _forest,
}
