"""Will an online pod's p95 latency break its limit beside a mix? Boosted trees on a smooth base (Ou 2024, 3.1).

Called by the engine through `forecasts.QosForecaster` (all candidate nodes in one call), by training and by
evaluation. The paper trains XGBoost on (type, input size, rate) for one limit of 10 ms; here the rows of several
limits are stacked with the limit as a feature, so that one model answers for any limit, the types enter through
their learned contention, and a bounded logistic regression gives the trees their starting margin.

Invariant: the probability never falls when a rate, a count, a size or the pressure grows or the limit shrinks, and
an unknown type is at least as bad as any known one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import ModelError
from cotide_core.forecasts import MixBatch, QosSamples
from cotide_core.kernels.array_types import Floats, Indices
from cotide_predictors.estimator import Estimator
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.persistence import model_files
from cotide_predictors.qos.calibration import learn_sharpness
from cotide_predictors.qos.mix_features import FEATURES, LIMIT_COLUMN, SMOOTH_FEATURES, feature_matrix
from cotide_predictors.qos.mixes import cells_of, take_mixes, with_limit
from cotide_predictors.qos.monotone_ensemble import MonotoneEnsemble
from cotide_predictors.qos.monotone_logistic import MonotoneLogistic
from cotide_predictors.qos.small_batch import SmallBatch
from cotide_predictors.qos.type_contention import TypeContention, learn_contention

KIND: Final = "qos"
BOOSTER_FILE: Final = "model.ubj"
SPAN: Final = 4.0
"""Latencies beyond the limits by more than this factor teach a type no more than the factor itself (chosen)."""
FOLDS: Final = 4
"""Folds of cells from which sharpness and base share are learned (chosen: the 3:1 of the paper)."""
CHOICE_SAMPLES: Final = 3000
"""Samples that sharpness and base share are learned from, at most: they are two numbers (chosen)."""
WORTH_A_SWITCH: Final = 0.95
"""The base lies under the trees unless leaving it out lowers the held-out log loss to this share of it (chosen)."""


class QosModel(Estimator):
    """Probability that p95 latency exceeds a limit, for whole mixes; one model for any limit.

    Parameters
    ----------
    limits_milliseconds : limits to label the samples for; empty takes the samples' own.
    trees, depth, learning_rate, ridge, least_weight
        Of the boosting. Few rows and monotone constraints: the constraints regularise, so that leaves may be
        small (``least_weight`` 0.3 of a sample's hessian). Chosen on the public tables; scores are flat around.
    inverse_ridge : of the logistic base, see `MonotoneLogistic`.
    most_rows : with more samples x limits than this a random subset is used (bounds retraining time).
    random_state : seed of that subset, of the folds and of xgboost.

    Attributes
    ----------
    contention_ : what was learned about each type.
    ensemble_ : the logistic base and the trees on it.
    sharpness_ : factor on the log odds that calibrates them; never changes a decision at one half.
    metrics_ : held-out scores from the folds.
    """

    def __init__(
        self,
        *,
        limits_milliseconds: Sequence[float] = (),
        trees: int = 200,
        depth: int = 5,
        learning_rate: float = 0.1,
        ridge: float = 0.3,
        least_weight: float = 0.3,
        inverse_ridge: float = 0.1,
        most_rows: int = 60_000,
        random_state: int = 0,
    ) -> None:
        self.limits_milliseconds = limits_milliseconds
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.ridge = ridge
        self.least_weight = least_weight
        self.inverse_ridge = inverse_ridge
        self.most_rows = most_rows
        self.random_state = random_state
        self._few: SmallBatch | None = None

    @on_one_thread
    def fit(self, mixes: MixBatch, latency_milliseconds: Floats) -> Self:
        """Learn from (n,) measured p95 latencies > 0 of n mixes."""
        latency = np.asarray(latency_milliseconds, dtype=np.float64)
        if len(latency) != len(mixes) or not len(latency):
            raise ValueError(f"{len(latency)} latencies for {len(mixes)} mixes; at least one of each is needed")
        if not (np.isfinite(latency) & (latency > 0)).all():
            raise ValueError("every latency must be a finite number of milliseconds > 0")
        limits = tuple(sorted(set(map(float, self.limits_milliseconds)) or set(mixes.limit_milliseconds.tolist())))
        if not all(np.isfinite(limit) and limit > 0 for limit in limits):
            raise ValueError("every limit must be a finite number of milliseconds > 0")
        generator = np.random.default_rng(self.random_state)
        rows = _some(len(latency), self.most_rows // len(limits), generator)
        mixes, latency = take_mixes(mixes, rows), latency[rows]
        self._model_id = ""
        self.limits_ = limits
        few = _some(len(latency), CHOICE_SAMPLES, generator)
        self._learn(mixes, latency, self._choose(take_mixes(mixes, few), latency[few], generator))
        return self

    @property
    def model_id(self) -> str:
        """The sha256 of the model's manifest."""
        if not self._model_id:
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
        low, high = self.ensemble_.low_, self.ensemble_.high_
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
                "coefficients": self.ensemble_.base_.coefficients_.tolist(),
                "intercept": self.ensemble_.base_.intercept_,
                "share": self.ensemble_.share,
            },
            "sharpness": self.sharpness_,
            "training": {
                "samples": self.samples_,
                "limits_milliseconds": list(self.limits_),
                "range": {f.name: [float(low[i]), float(high[i])] for i, f in enumerate(FEATURES)},
                "parameters": {k: v for k, v in self.get_params().items() if k != "limits_milliseconds"},
            },
            "metrics": self.metrics_,
        }
        return model_files.pack(KIND, body, {BOOSTER_FILE: self.ensemble_.booster_bytes_})

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
        base = document["base"]
        ensemble = model._ensemble(float(base["share"]))
        ensemble.base_ = MonotoneLogistic(inverse_ridge=model.inverse_ridge)
        ensemble.base_.coefficients_ = np.asarray(base["coefficients"], dtype=np.float64)
        ensemble.base_.intercept_ = float(base["intercept"])
        corners = np.asarray([training["range"][feature.name] for feature in FEATURES], dtype=np.float64)
        ensemble.low_, ensemble.high_ = corners[:, 0], corners[:, 1]
        ensemble.load_booster(files[BOOSTER_FILE])
        model.ensemble_ = ensemble
        model.sharpness_ = float(document["sharpness"])
        model.samples_ = int(training["samples"])
        model.metrics_ = dict(document["metrics"])
        model._model_id = model_files.fingerprint(files)
        return model

    def _learn(self, mixes: MixBatch, latency: Floats, share: float) -> None:
        """Fit contention and ensemble on the rows of every limit; each sample weighs one over all its limits."""
        span = (min(self.limits_) / SPAN, max(self.limits_) * SPAN)
        self._few = None
        self.contention_ = learn_contention(mixes, latency, span_milliseconds=span)
        repeats = len(self.limits_)
        rows = np.repeat(np.arange(len(mixes)), repeats)
        features = feature_matrix(take_mixes(mixes, rows), self.contention_)
        features[:, LIMIT_COLUMN] = np.tile(self.limits_, len(mixes))
        violated = (latency[rows] > features[:, LIMIT_COLUMN]).astype(np.float64)
        self.samples_ = len(mixes)
        self.ensemble_ = self._ensemble(share).fit(features, violated, np.full(len(rows), 1.0 / repeats))

    def _ensemble(self, share: float) -> MonotoneEnsemble:
        return MonotoneEnsemble(
            trees=self.trees,
            depth=self.depth,
            learning_rate=self.learning_rate,
            ridge=self.ridge,
            least_weight=self.least_weight,
            inverse_ridge=self.inverse_ridge,
            share=share,
            random_state=self.random_state,
        )

    def _margin(self, mixes: MixBatch) -> Floats:
        """Return (n,) log odds before calibration."""
        if self._few is None:
            self._few = SmallBatch(self.contention_, self.ensemble_)
        if self._few.takes(mixes):
            margin = self._few.margin(mixes)
            if margin is not None:
                return margin
        return self.ensemble_.decision_function(feature_matrix(mixes, self.contention_))

    def _choose(self, mixes: MixBatch, latency: Floats, generator: np.random.Generator) -> float:
        """Return the base's share that does best on held-out cells of the training rows; learn the sharpness there."""
        self.sharpness_ = 1.0
        self.metrics_: dict[str, float] = {}
        cells = np.unique(cells_of(mixes), return_inverse=True)[1].ravel()
        if cells.max() + 1 < 2 * FOLDS:
            return 1.0
        fold_of = (generator.permutation(int(cells.max()) + 1) % FOLDS)[cells]
        labels = np.concatenate([latency[fold_of == fold] > limit for fold in range(FOLDS) for limit in self.limits_])
        chosen = 1.0
        for share in (1.0, 0.0):
            margins = [
                margin for fold in range(FOLDS) for margin in self._held_out(mixes, latency, fold_of == fold, share)
            ]
            sharpness, metrics = learn_sharpness(np.concatenate(margins), labels.astype(np.float64))
            before = self.metrics_.get("held_out_log_loss", float("inf"))
            if metrics["held_out_log_loss"] < WORTH_A_SWITCH * before:
                chosen, self.sharpness_, self.metrics_ = share, sharpness, metrics
        return chosen

    def _held_out(self, mixes: MixBatch, latency: Floats, held: NDArray[np.bool_], share: float) -> list[Floats]:
        """Return margins of held-out rows, one array a limit, from a model of the other rows."""
        part = QosModel()
        part.set_params(**self.get_params())
        part.limits_ = self.limits_
        part._learn(take_mixes(mixes, np.flatnonzero(~held)), latency[~held], share)
        asked = take_mixes(mixes, np.flatnonzero(held))
        return [part._margin(with_limit(asked, limit)) for limit in self.limits_]


def _some(samples: int, most: int, generator: np.random.Generator) -> Indices:
    """Return all rows, in order, or a random subset of them in order when there are more than asked for."""
    if samples <= most:
        return np.arange(samples)
    return np.sort(generator.choice(samples, max(1, most), replace=False))


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
