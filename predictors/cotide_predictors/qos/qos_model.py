"""Will an online pod's p95 latency break its limit next to a mix? Boosted trees on a smooth base (Ou 2024, 3.1).

Called by the engine through `forecasts.QosForecaster` (all candidate nodes in one call), by training and by evaluation.
The paper trains XGBoost on (type, input size, rate) for one limit of 10 ms. Here the rows of several limits are stacked
with the limit as a feature, so that one model answers for any limit. The types enter through their learned contention,
and a bounded logistic regression gives the trees their starting margin.

Invariant: the probability never falls when a rate, a count, a size or the pressure grows or the limit shrinks. An
unknown type is at least as bad as any known one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasting.heuristics import larger_outside
from cotide_core.forecasts import MixBatch, QosAnswers, QosSamples
from cotide_core.kernels.array_types import Floats, Indices
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.persistence import model_files
from cotide_predictors.qos import manifest_form
from cotide_predictors.qos.calibration import learn_sharpness
from cotide_predictors.qos.envelope import FEATURES as RANGE
from cotide_predictors.qos.envelope import Envelope, EnvelopeCheck
from cotide_predictors.qos.latency_model import LatencyModel, measured_latencies
from cotide_predictors.qos.mix_features import FEATURES, LIMIT_COLUMN, feature_matrix
from cotide_predictors.qos.mixes import cells_of, take_mixes, with_limit
from cotide_predictors.qos.monotone_ensemble import MonotoneEnsemble
from cotide_predictors.qos.services_model import ServicesQosModel
from cotide_predictors.qos.small_batch import SmallBatch
from cotide_predictors.qos.training_gate import check_samples, check_scores
from cotide_predictors.qos.type_contention import learn_contention

KIND: Final = "qos"
BOOSTER_FILE: Final = "model.ubj"
SPAN: Final = 4.0
"""Largest factor of a latency over the limits in what it teaches about a type (chosen)."""
FOLDS: Final = 4
"""Folds of cells for learning sharpness and base share (chosen: the 3:1 of the paper)."""
CHOICE_SAMPLES: Final = 3000
"""Most samples for learning sharpness and base share: they are two numbers (chosen)."""
WORTH_A_SWITCH: Final = 0.95
"""The base lies under the trees unless leaving it out lowers the held-out log loss to this share (chosen)."""


class QosModel(LatencyModel):
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
    contention_ : learned about each type.
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
        self._check: EnvelopeCheck

    @on_one_thread
    def fit(self, mixes: MixBatch, latency_milliseconds: Floats) -> Self:
        """Learn from (n,) measured p95 latencies > 0 of n mixes."""
        latency = measured_latencies(mixes, latency_milliseconds)
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

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return the probabilities, with whether each mix lies inside the training range, and the evidence."""
        if not len(mixes):
            return QosAnswers.within(np.zeros(0))
        service_index = self._check.service_index(mixes)
        outside = self._check.outside(mixes, service_index)
        probability: Floats = 1.0 / (1.0 + np.exp(-self.sharpness_ * self._margin(mixes)))
        return QosAnswers(larger_outside(probability, outside, mixes), outside, self._check.samples[service_index])

    def unbounded_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) forecasts of the trees and their base everywhere, seen or unseen: for comparisons only."""
        return np.asarray(1.0 / (1.0 + np.exp(-self.sharpness_ * self._margin(mixes))))

    def predict_proba(self, mixes: MixBatch) -> Floats:
        """Return (n, 2) probabilities: the limit holds, the limit is broken."""
        broken = self.violation_probability(mixes)
        return np.column_stack((1.0 - broken, broken))

    def to_files(self) -> dict[str, bytes]:
        """Return the model as manifest and UBJ bytes."""
        body: dict[str, object] = {
            **manifest_form.ensemble_body(self.contention_, self.ensemble_),
            "sharpness": self.sharpness_,
            "training": {
                "samples": self.samples_,
                "limits_milliseconds": list(self.limits_),
                "range": manifest_form.range_body(self.ensemble_),
                "parameters": {k: v for k, v in self.get_params().items() if k != "limits_milliseconds"},
            },
            "metrics": self.metrics_,
        }
        return model_files.pack(KIND, body, {BOOSTER_FILE: self.ensemble_.booster_bytes_})

    @classmethod
    def from_document(cls, document: model_files.Document, files: dict[str, bytes]) -> Self:
        """Return the model of a checked manifest (see `serialisation.from_files`)."""
        training = document["training"]
        model = cls(limits_milliseconds=tuple(training["limits_milliseconds"]), **training["parameters"])
        model.limits_ = tuple(training["limits_milliseconds"])
        share = manifest_form.check_features(document)
        model.contention_, model.ensemble_ = manifest_form.read_ensemble(
            document, model._ensemble(share), files[BOOSTER_FILE]
        )
        model.sharpness_ = float(document["sharpness"])
        model.samples_ = int(training["samples"])
        model.metrics_ = dict(document["metrics"])
        model._model_id = model_files.fingerprint(files)
        model._bound()
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
        self._bound()

    def _bound(self) -> None:
        """Note the range of the samples: they name no service, so the model answers for any, inside that range."""
        low, high = self.ensemble_.low_, self.ensemble_.high_
        features = [feature.name for feature in FEATURES]
        corners = [(low if name == "limit_milliseconds" else high)[features.index(name)] for name in RANGE]
        samples = np.array([self.samples_], np.int64)
        self._check = EnvelopeCheck(Envelope(("",), np.array([corners]), samples, self.contention_.types))

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
    """Return all rows in order, or an ordered random subset of them when there are too many."""
    if samples <= most:
        return np.arange(samples)
    return np.sort(generator.choice(samples, max(1, most), replace=False))


def train_qos(
    samples: QosSamples, *, limits_milliseconds: Sequence[float] = (), random_state: int = 0
) -> QosModel | ServicesQosModel:
    """Return a model fitted on the samples with a latency > 0, once it passed the training gate.

    Samples that name their services give a `ServicesQosModel`, which labels each by its own limit. Samples without
    services give a `QosModel`, for the given limits or else those noted with them.

    Raises
    ------
    ModelError
        When there are too few samples, too few that broke a limit or kept it, or the held-out score is no better than a
        constant.
    """
    latency = samples.latency_milliseconds
    usable = np.flatnonzero(np.isfinite(latency) & (latency > 0))
    mixes, latency = take_mixes(samples.mixes, usable), latency[usable]
    named = any(mixes.services)
    limits = tuple(sorted(set(map(float, limits_milliseconds)))) if not named else ()
    check_samples(mixes, latency, limits)
    if named:
        services = ServicesQosModel(random_state=random_state).fit(mixes, latency)
        check_scores(services.metrics_)
        return services
    model = QosModel(limits_milliseconds=limits, random_state=random_state).fit(mixes, latency)
    check_scores(model.metrics_)
    return model
