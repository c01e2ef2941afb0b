"""Will an online pod's p95 latency break its limit beside a mix? Boosted trees on a smooth base (seed 003, 3.1).

Called by the engine through `forecasts.QosForecaster` (all candidate nodes in one call), by training and by
evaluation. The paper trains XGBoost on (type, input size, rate) for one limit of 10 ms; here the rows of several
limits are stacked with the limit as a feature, so that one model answers for any limit, the types enter through
their learned contention, and a bounded logistic regression gives the trees their starting margin.

Invariant: the probability never falls when a rate, a count, a size or the pressure grows or the limit shrinks, and
an unknown type is at least as bad as any known one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
import xgboost
from numpy.typing import NDArray

from cotide_core.errors import ModelError
from cotide_core.forecasts import MixBatch, QosSamples
from cotide_predictors import model_files
from cotide_predictors.calibration import learn_sharpness
from cotide_predictors.estimator import Estimator
from cotide_predictors.mix_features import FEATURES, MONOTONE, SMOOTH_FEATURES, feature_matrix, smooth_matrix
from cotide_predictors.mixes import Indices, cells_of, take_mixes, with_limit
from cotide_predictors.monotone_logistic import MonotoneLogistic
from cotide_predictors.type_contention import TypeContention, learn_contention

Floats = NDArray[np.float64]

KIND: Final = "qos"
BOOSTER_FILE: Final = "model.ubj"
SPAN: Final = 4.0
"""Latencies beyond the limits by more than this factor teach a type no more than the factor itself (chosen)."""
FOLDS: Final = 4
"""Folds of cells from which the sharpness of the probabilities is learned (chosen: the 3:1 of the paper)."""


class QosModel(Estimator):
    """Probability that p95 latency exceeds a limit, for whole mixes; one model for any limit.

    Parameters
    ----------
    limits_milliseconds : limits to label the samples for; empty takes the samples' own.
    trees, depth, learning_rate, ridge, least_weight
        Of the boosting. Few rows and monotone constraints: the constraints regularise, so that leaves may be
        small (``least_weight`` 0.3 of a sample's hessian). Chosen on the public tables; scores are flat around.
    inverse_ridge : of the logistic base, see `MonotoneLogistic`.
    most_samples : a random subset of this size is used when there are more samples (bounds retraining time).
    random_state : seed of that subset, of the folds and of xgboost.

    Attributes
    ----------
    contention_ : what was learned about each type.
    base_ : the logistic base.
    sharpness_ : factor on the log odds that calibrates them; never changes a decision at one half.
    metrics_ : held-out scores from the folds.
    """

    def __init__(
        self,
        *,
        limits_milliseconds: Sequence[float] = (),
        trees: int = 300,
        depth: int = 5,
        learning_rate: float = 0.08,
        ridge: float = 0.3,
        least_weight: float = 0.3,
        inverse_ridge: float = 0.1,
        most_samples: int = 20_000,
        random_state: int = 0,
    ) -> None:
        self.limits_milliseconds = limits_milliseconds
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.ridge = ridge
        self.least_weight = least_weight
        self.inverse_ridge = inverse_ridge
        self.most_samples = most_samples
        self.random_state = random_state

    def fit(self, mixes: MixBatch, latency_milliseconds: Floats) -> Self:
        """Learn from (n,) measured p95 latencies > 0 of n mixes."""
        latency = np.asarray(latency_milliseconds, dtype=np.float64)
        if len(latency) != len(mixes) or not len(latency):
            raise ValueError(f"{len(latency)} latencies for {len(mixes)} mixes; at least one of each is needed")
        if not (np.isfinite(latency) & (latency > 0)).all():
            raise ValueError("every latency must be a finite number of milliseconds > 0")
        generator = np.random.default_rng(self.random_state)
        if len(latency) > self.most_samples:
            rows = np.sort(generator.choice(len(latency), self.most_samples, replace=False))
            mixes, latency = take_mixes(mixes, rows), latency[rows]
        limits = tuple(sorted(set(map(float, self.limits_milliseconds)) or set(mixes.limit_milliseconds.tolist())))
        if not all(np.isfinite(limit) and limit > 0 for limit in limits):
            raise ValueError("every limit must be a finite number of milliseconds > 0")
        self.limits_ = limits
        self._learn(mixes, latency)
        self._calibrate(mixes, latency, generator)
        return self

    @property
    def model_id(self) -> str:
        """The sha256 of the model's manifest."""
        if not hasattr(self, "_model_id"):
            self._model_id = model_files.fingerprint(self.to_files())
        return self._model_id

    def knows(self, job_type: str) -> bool:
        """Whether the type was seen in training; an unknown one is treated as the worst known."""
        return job_type in self.contention_.types

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities in [0, 1] that each mix breaks its limit; one call for all rows."""
        if not len(mixes):
            return np.zeros(0)
        probability: Floats = 1.0 / (1.0 + np.exp(-self.sharpness_ * self._margin(mixes)))
        return probability

    def predict_proba(self, mixes: MixBatch) -> Floats:
        """Return (n, 2) probabilities: the limit holds, the limit is broken."""
        broken = self.violation_probability(mixes)
        return np.column_stack((1.0 - broken, broken))

    def predict(self, mixes: MixBatch) -> NDArray[np.bool_]:
        """Return (n,) whether the limit is broken, at even odds."""
        broken: NDArray[np.bool_] = self.violation_probability(mixes) > 0.5
        return broken

    def to_files(self) -> dict[str, bytes]:
        """Return the model as manifest and UBJ bytes."""
        body: dict[str, object] = {
            "features": [{"name": f.name, "unit": f.unit, "monotone": f.direction} for f in FEATURES],
            "types": list(self.contention_.types),
            "worst_type": self.contention_.worst_type,
            "contention": {
                "excess": self.contention_.excess.tolist(),
                "byte_weight": self.contention_.byte_weight.tolist(),
            },
            "base": {
                "columns": list(SMOOTH_FEATURES),
                "coefficients": self.base_.coefficients_.tolist(),
                "intercept": self.base_.intercept_,
            },
            "sharpness": self.sharpness_,
            "training": {
                "samples": self.samples_,
                "limits_milliseconds": list(self.limits_),
                "range": {f.name: list(r) for f, r in zip(FEATURES, self.range_, strict=True)},
                "parameters": {k: v for k, v in self.get_params().items() if k != "limits_milliseconds"},
            },
            "metrics": self.metrics_,
        }
        return model_files.pack(KIND, body, {BOOSTER_FILE: self.booster_bytes_})

    @classmethod
    def from_document(cls, document: model_files.Document, files: dict[str, bytes]) -> Self:
        """Return the model of a checked manifest (see `serialisation.from_files`)."""
        if [feature["name"] for feature in document["features"]] != [feature.name for feature in FEATURES]:
            raise ModelError("the model has features that this program does not build")
        if document["base"]["columns"] != list(SMOOTH_FEATURES):
            raise ModelError("the model's base has columns that this program does not build")
        training = document["training"]
        model = cls(limits_milliseconds=tuple(training["limits_milliseconds"]), **training["parameters"])
        model.limits_ = tuple(training["limits_milliseconds"])
        model.contention_ = TypeContention(
            tuple(document["types"]),
            np.asarray(document["contention"]["excess"], dtype=np.float64),
            np.asarray(document["contention"]["byte_weight"], dtype=np.float64),
        )
        model.base_ = MonotoneLogistic(inverse_ridge=model.inverse_ridge)
        model.base_.coefficients_ = np.asarray(document["base"]["coefficients"], dtype=np.float64)
        model.base_.intercept_ = float(document["base"]["intercept"])
        model.sharpness_ = float(document["sharpness"])
        model.samples_ = int(training["samples"])
        model.range_ = [tuple(training["range"][feature.name]) for feature in FEATURES]
        model.metrics_ = dict(document["metrics"])
        model._load_booster(files[BOOSTER_FILE])
        model._model_id = model_files.fingerprint(files)
        return model

    def _learn(self, mixes: MixBatch, latency: Floats) -> None:
        """Fit contention, base and trees on the rows of every limit; each sample weighs one over all its limits."""
        span = (min(self.limits_) / SPAN, max(self.limits_) * SPAN)
        self.contention_ = learn_contention(mixes, latency, span_milliseconds=span)
        repeats = len(self.limits_)
        rows = np.repeat(np.arange(len(mixes)), repeats)
        features = feature_matrix(take_mixes(mixes, rows), self.contention_)
        features[:, 4] = np.tile(self.limits_, len(mixes))
        violated = (latency[rows] > features[:, 4]).astype(np.float64)
        weights = np.full(len(rows), 1.0 / repeats)
        self.samples_ = len(mixes)
        self.range_ = [(float(column.min()), float(column.max())) for column in features.T]
        smooth = smooth_matrix(features, self.range_[7])
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
        data = xgboost.DMatrix(
            features, violated, weight=weights, base_margin=self.base_.decision_function(smooth), nthread=1
        )
        booster = xgboost.train(parameters, data, self.trees)
        self._load_booster(bytes(booster.save_raw("ubj")))

    def _load_booster(self, payload: bytes) -> None:
        """Keep the bytes as the truth and predict from what they load to, so that a stored model is the same."""
        try:
            self.booster_ = xgboost.Booster({"nthread": 1}, model_file=bytearray(payload))
        except xgboost.core.XGBoostError as error:
            raise ModelError(f"{BOOSTER_FILE} is no xgboost model: {str(error).splitlines()[0]}") from error
        self.booster_.set_param({"nthread": 1})
        self.booster_bytes_ = payload

    def _margin(self, mixes: MixBatch) -> Floats:
        """Return (n,) log odds before calibration: base plus trees, in one call of xgboost."""
        features = feature_matrix(mixes, self.contention_)
        base = self.base_.decision_function(smooth_matrix(features, self.range_[7]))
        margin = self.booster_.inplace_predict(
            features, predict_type="margin", base_margin=base, validate_features=False
        )
        return np.asarray(margin, dtype=np.float64)

    def _calibrate(self, mixes: MixBatch, latency: Floats, generator: np.random.Generator) -> None:
        """Learn the sharpness from margins on held-out cells, then keep their scores as metrics."""
        cells = cells_of(mixes)
        names = np.unique(cells)
        self.sharpness_ = 1.0
        self.metrics_: dict[str, float] = {}
        if len(names) < 2 * FOLDS:
            return
        fold_of = generator.permutation(len(names)) % FOLDS
        margins, labels = [], []
        for fold in range(FOLDS):
            held: Indices = np.flatnonzero(fold_of[np.searchsorted(names, cells)] == fold)
            kept: Indices = np.flatnonzero(fold_of[np.searchsorted(names, cells)] != fold)
            part = QosModel(**{**self.get_params(), "limits_milliseconds": self.limits_})  # type: ignore[arg-type]  # its own parameters
            part.limits_ = self.limits_
            part._learn(take_mixes(mixes, kept), latency[kept])
            for limit in self.limits_:
                margins.append(part._margin(with_limit(take_mixes(mixes, held), limit)))
                labels.append((latency[held] > limit).astype(np.float64))
        self.sharpness_, self.metrics_ = learn_sharpness(np.concatenate(margins), np.concatenate(labels))


def train_qos(samples: QosSamples, *, limits_milliseconds: Sequence[float] = (), random_state: int = 0) -> QosModel:
    """Return a model fitted on the samples with a latency > 0; no limits means those noted with the samples.

    Raises
    ------
    ModelError
        When no sample has a usable latency.
    """
    latency = samples.latency_milliseconds
    usable = np.flatnonzero(np.isfinite(latency) & (latency > 0))
    if not len(usable):
        raise ModelError("there is nothing to learn from: no sample has a latency > 0")
    model = QosModel(limits_milliseconds=tuple(limits_milliseconds), random_state=random_state)
    return model.fit(take_mixes(samples.mixes, usable), latency[usable])
