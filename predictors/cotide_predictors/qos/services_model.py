"""Will an online pod's p95 latency break its limit next to a mix? One model for any number of different services.

Called by the engine through `forecasts.QosForecaster`, like `qos_model.QosModel`, which learns from samples without a
service. Here each sample names its Workload, and::

    mix -> units of its service (`service_scales`) -> trees on a smooth base, common to all (`monotone_ensemble`)
        -> the service's own part (`service_heads`) -> probability -> at least the heuristic's outside (`envelope`)

A sample is labelled by its own service's limit only. Invariant: the probability never falls when a rate, a count, a
size or the pressure grows or the limit shrinks. An unseen service has the pool's answer, and never less than the
heuristic's.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import ModelError
from cotide_core.forecasting.heuristics import larger_outside
from cotide_core.forecasts import MixBatch, QosAnswers
from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.qos.applicability import OTHER_RATE_UNKNOWN, RATE_UNKNOWN
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.persistence import model_files
from cotide_predictors.qos import manifest_form
from cotide_predictors.qos.envelope import Envelope, EnvelopeCheck, learn_envelope
from cotide_predictors.qos.held_out_scores import scores_by_service, scores_of
from cotide_predictors.qos.latency_model import LatencyModel, measured_latencies
from cotide_predictors.qos.mix_features import feature_matrix, smooth_matrix
from cotide_predictors.qos.mixes import cells_of, take_mixes
from cotide_predictors.qos.monotone_ensemble import MonotoneEnsemble
from cotide_predictors.qos.service_heads import (
    COMMON,
    MOST_ROWS,
    choose_ridge,
    fit_head,
    head_columns,
    head_log_odds,
    join_pooled,
    neutral,
)
from cotide_predictors.qos.service_scales import ServiceScales, common_law, law_columns, learn_scales, relative_mixes
from cotide_predictors.qos.small_batch import SmallBatch
from cotide_predictors.qos.type_contention import TypeContention, learn_contention

KIND: Final = "qos"
BOOSTER_FILE: Final = "model.ubj"
SERVICES_FILE: Final = "services.npz"
SPAN: Final = 4.0
"""As in `qos_model`: the largest factor of a latency over the limits."""
FOLDS: Final = 4
"""Folds of cells for learning from held-out rows (chosen: the 3:1 of Ou 2024)."""
WEIGHED: Final = ("lone_milliseconds", "capacity")
LAW_WIDTH: Final = 10


class ServicesQosModel(LatencyModel):
    """Probability that p95 latency exceeds the limit, for whole mixes next to many different services.

    Parameters
    ----------
    trees, depth, learning_rate, ridge, least_weight, inverse_ridge : of the common part, see `qos_model.QosModel`;
    fewer and heavier trees, since each service corrects them (chosen on the measured tables scaled, flat around).
    most_rows : with more samples than this a random subset is used (bounds retraining time).
    random_state : seed of that subset, of the folds and of xgboost.

    Attributes
    ----------
    services_ : the S services, sorted.
    scales_ : their units.
    contention_, ensemble_ : the trees that are common to all, in those units.
    law_, joint_ : (10,) weights of the law of latencies that services share, and (3,) weights that join it to the
        trees.
    heads_ : (S + 1, k) the part of each service; the last is the pool's.
    ridge_ : learned strength of their shrinkage to the pool.
    envelope_ : where the model is trusted.
    metrics_ : held-out scores; ``by_service_`` the same for each.
    """

    def __init__(
        self,
        *,
        trees: int = 100,
        depth: int = 5,
        learning_rate: float = 0.1,
        ridge: float = 0.3,
        least_weight: float = 4.0,
        inverse_ridge: float = 0.1,
        most_rows: int = 30_000,
        random_state: int = 0,
    ) -> None:
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.ridge = ridge
        self.least_weight = least_weight
        self.inverse_ridge = inverse_ridge
        self.most_rows = most_rows
        self.random_state = random_state
        self._check: EnvelopeCheck
        self._few: SmallBatch
        self._types: tuple[str, ...] | None = None
        self._model_id = ""

    @on_one_thread
    def fit(self, mixes: MixBatch, latency_milliseconds: Floats) -> Self:
        """Learn from (n,) measured p95 latencies > 0 of n mixes, each labelled by the limit noted with it."""
        latency = measured_latencies(mixes, latency_milliseconds)
        if not (np.isfinite(mixes.limit_milliseconds) & (mixes.limit_milliseconds > 0)).all():
            raise ValueError("every limit must be a finite number of milliseconds > 0")
        generator = np.random.default_rng(self.random_state)
        if len(latency) > self.most_rows:
            rows = np.sort(generator.choice(len(latency), self.most_rows, replace=False))
            mixes, latency = take_mixes(mixes, rows), latency[rows]
        self._model_id = ""
        numbers = np.zeros(len(mixes), np.int64) if mixes.service is None else mixes.service
        present, service_index = np.unique(numbers, return_inverse=True)
        service_index = service_index.ravel().astype(np.int64)
        self.services_ = tuple(mixes.services[number] for number in present.tolist())
        self.samples_ = len(mixes)
        self.scales_ = learn_scales(mixes, service_index, latency, len(self.services_))
        relative = relative_mixes(mixes, service_index, self.scales_)
        lone = self.scales_.lone_milliseconds[service_index]
        violated = (latency > mixes.limit_milliseconds).astype(np.float64)
        fold = self._folds(mixes, service_index, generator)
        held_out = np.zeros(len(mixes))
        for part in np.unique(fold):
            rest, held = np.flatnonzero(fold != part), np.flatnonzero(fold == part)
            if len(rest):
                common = self._common(take_mixes(relative, rest), (latency / lone)[rest], violated[rest])
                held_out[held] = common[1].decision_function(feature_matrix(take_mixes(relative, held), common[0]))
        self.contention_, self.ensemble_ = self._common(relative, latency / lone, violated)
        seen = np.bincount(service_index).astype(np.float64)
        bounded = np.log(np.minimum(latency, SPAN * mixes.limit_milliseconds) / lone)
        self.law_, variance = common_law(law_columns(relative, self.contention_), bounded, service_index, seen)
        law = law_columns(relative, self.contention_) @ self.law_ - np.log(relative.limit_milliseconds)
        self.joint_ = join_pooled(held_out, law, violated, float(np.sqrt(variance)))
        pooled = self.joint_[0] + self.joint_[1] * held_out + self.joint_[2] * law
        self._learn_heads(relative, pooled, violated, service_index, fold)
        self.envelope_ = learn_envelope(mixes, service_index, self.services_, self.contention_.types)
        self._prepare()
        return self

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return the probabilities, with whether each mix lies inside its service's training range, and the
        evidence.
        """
        if not len(mixes):
            return QosAnswers.within(np.zeros(0))
        service_index = self._check.service_index(mixes)
        outside = self._check.outside(mixes, service_index)
        score = self._log_odds(self._assumed(mixes, service_index), service_index)
        probability: Floats = 1.0 / (1.0 + np.exp(-np.clip(score, -500.0, 500.0)))
        return QosAnswers(larger_outside(probability, outside, mixes), outside, self._check.samples[service_index])

    def to_files(self) -> dict[str, bytes]:
        """Return the model as manifest, UBJ and npz bytes."""
        body: dict[str, object] = {
            **manifest_form.ensemble_body(self.contention_, self.ensemble_),
            "services": list(self.services_),
            "by_service": self.by_service_,
            "head_ridge": self.ridge_,
            "typical": {"limit_ratio": self.scales_.typical_ratio, "capacity": self.scales_.typical_capacity},
            "training": {
                "samples": self.samples_,
                "range": manifest_form.range_body(self.ensemble_),
                "parameters": self.get_params(),
            },
            "metrics": self.metrics_,
        }
        arrays = {
            "lone_milliseconds": self.scales_.lone_milliseconds,
            "capacity": self.scales_.capacity,
            "law": self.law_,
            "joint": self.joint_,
            "heads": self.heads_,
            "corners": self.envelope_.corners,
            "samples": self.envelope_.samples,
        }
        payloads = {BOOSTER_FILE: self.ensemble_.booster_bytes_, SERVICES_FILE: model_files.write_arrays(arrays)}
        return model_files.pack(KIND, body, payloads)

    @classmethod
    def from_document(cls, document: model_files.Document, files: dict[str, bytes]) -> Self:
        """Return the model of a checked manifest (see `serialisation.from_files`)."""
        share = manifest_form.check_features(document)
        training = document["training"]
        model = cls(**training["parameters"])
        model.contention_, model.ensemble_ = manifest_form.read_ensemble(
            document, model._ensemble(share), files[BOOSTER_FILE]
        )
        arrays = model_files.read_arrays(files[SERVICES_FILE], SERVICES_FILE)
        services, typical = tuple(map(str, document["services"])), document["typical"]
        model._check_shapes(arrays, len(services), len(model.contention_.types))
        model.services_ = services
        model.scales_ = ServiceScales(
            arrays["lone_milliseconds"],
            arrays["capacity"],
            float(typical["limit_ratio"]),
            float(typical["capacity"]),
        )
        model.law_, model.joint_, model.heads_ = arrays["law"], arrays["joint"], arrays["heads"]
        model.ridge_ = float(document["head_ridge"])
        model.envelope_ = Envelope(services, arrays["corners"], arrays["samples"], model.contention_.types)
        model.samples_ = int(training["samples"])
        model.metrics_ = dict(document["metrics"])
        model.by_service_ = dict(document["by_service"])
        model._model_id = model_files.fingerprint(files)
        model._prepare()
        return model

    @staticmethod
    def _check_shapes(arrays: dict[str, NDArray[np.float64]], services: int, types: int) -> None:
        wanted = {
            "lone_milliseconds": (services,),
            "capacity": (services,),
            "law": (LAW_WIDTH,),
            "joint": (3,),
            "heads": (services + 1, COMMON + 2 * types),
            "corners": (services, 6),
            "samples": (services,),
        }
        for name, shape in wanted.items():
            if name not in arrays or arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise ModelError(f"{SERVICES_FILE} has no finite {name} of shape {shape}")
        weights = (arrays["heads"][:, 1:], arrays["joint"][1:], arrays["law"])
        if any((weight < 0).any() for weight in weights) or any((arrays[name] <= 0).any() for name in WEIGHED):
            raise ModelError(f"{SERVICES_FILE} holds a scale or a weight below 0: the model would not be monotone")

    def _common(self, relative: MixBatch, latency: Floats, violated: Floats) -> tuple[TypeContention, MonotoneEnsemble]:
        """Fit the common part to mixes and latencies in the units of their services."""
        limits = relative.limit_milliseconds
        span = (float(limits.min()) / SPAN, float(limits.max()) * SPAN)
        contention = learn_contention(relative, latency, span_milliseconds=span)
        features = feature_matrix(relative, contention)
        return contention, self._ensemble(1.0).fit(features, violated, np.ones(len(features)))

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

    @staticmethod
    def _folds(mixes: MixBatch, service_index: Integers, generator: np.random.Generator) -> Integers:
        """Return (n,) folds; repetitions of a cell of one service stay together."""
        cells = cells_of(mixes)
        cells = np.unique(np.column_stack((cells, service_index)), axis=0, return_inverse=True)[1].ravel()
        drawn: Integers = (generator.permutation(int(cells.max()) + 1) % FOLDS)[cells]
        return drawn

    def _learn_heads(
        self, relative: MixBatch, log_odds: Floats, violated: Floats, service_index: Integers, fold: Integers
    ) -> None:
        """Fit each service's own part on pooled log odds that did not see the row; score the held-out rows."""
        types = self.contention_.types
        smooth = smooth_matrix(feature_matrix(relative, self.contention_), self._pressure_range())
        columns = head_columns(log_odds, smooth, relative, types)
        scale = columns.std(axis=0)
        scale = np.where(scale > 1e-9 * (1.0 + np.abs(columns.mean(axis=0))), scale, np.inf)
        scale[:2] = 1.0
        self.ridge_, held_out = choose_ridge(columns, violated, service_index, fold, scale)
        self.metrics_ = scores_of(held_out, violated)
        self.by_service_ = scores_by_service(held_out, violated, service_index, self.services_)
        heads = []
        for index in range(len(self.services_)):
            rows = np.flatnonzero(service_index == index)[-MOST_ROWS:]
            heads.append(fit_head(columns[rows], violated[rows], scale, self.ridge_))
        self.heads_ = np.vstack((*heads, neutral(columns.shape[1])))

    def _pressure_range(self) -> tuple[float, float]:
        return float(self.ensemble_.low_[-1]), float(self.ensemble_.high_[-1])

    def _prepare(self) -> None:
        """Prepare the values that every answer needs."""
        self._check = EnvelopeCheck(self.envelope_)
        self._few = SmallBatch(self.contention_, self.ensemble_)
        self._types = None
        self._common_heads = np.ascontiguousarray(self.heads_[:, :COMMON])
        self._range = np.array(self._pressure_range())

    def _assumed(self, mixes: MixBatch, service_index: Integers) -> MixBatch:
        """Return the mixes with the highest learned rate in the place of unmeasured ones."""
        if mixes.unmeasured is None or not mixes.unmeasured.any():
            return mixes
        highest = np.where(
            np.isfinite(self._check.corners[service_index, :2]), self._check.corners[service_index, :2], 0.0
        )
        rates, others = mixes.requests_per_second, mixes.other_requests_per_second
        return MixBatch(
            np.where(mixes.unmeasured & RATE_UNKNOWN, np.maximum(rates, highest[:, 0]), rates),
            np.where(mixes.unmeasured & OTHER_RATE_UNKNOWN, np.maximum(others, highest[:, 1]), others),
            mixes.limit_milliseconds,
            mixes.cpu_pressure,
            mixes.types,
            mixes.counts,
            mixes.input_bytes,
        )

    def _log_odds(self, mixes: MixBatch, service_index: Integers) -> Floats:
        relative = relative_mixes(mixes, service_index, self.scales_)
        margin = self._few.margin(relative) if self._few.takes(relative) else None
        if margin is None:
            margin = self.ensemble_.decision_function(feature_matrix(relative, self.contention_))
        if mixes.types is not self._types:
            self._weights, self._by_type = self._weights_of(mixes.types)
            self._types = mixes.types
        return head_log_odds(
            margin,
            service_index,
            np.ascontiguousarray(relative.requests_per_second),
            np.ascontiguousarray(relative.other_requests_per_second),
            np.ascontiguousarray(relative.limit_milliseconds),
            np.ascontiguousarray(relative.cpu_pressure, np.float64),
            np.ascontiguousarray(relative.counts, np.float64),
            np.ascontiguousarray(relative.input_bytes, np.float64),
            self._weights,
            self._range,
            self.law_,
            self.joint_,
            self._common_heads,
            self._by_type,
        )

    def _weights_of(self, types: tuple[str, ...]) -> tuple[Floats, Floats]:
        """Return (2, T) contention and (S + 1, 2, T) own weights of types in any order; unknown ones are the worst."""
        weights = np.array(self.contention_.weights_of(types)).reshape(2, len(types))
        known = len(self.contention_.types)
        own = self.heads_[:, COMMON:].reshape(len(self.heads_), 2, known)
        worst = own.max(axis=2, initial=0.0)[:, :, None]
        index = {name: column for column, name in enumerate(self.contention_.types)}
        by_type = np.concatenate((own, worst), axis=2)[:, :, [index.get(name, known) for name in types]]
        return np.ascontiguousarray(weights), np.ascontiguousarray(by_type)
