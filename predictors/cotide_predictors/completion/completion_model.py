"""How long will a job run, alone and next to others? A random forest on a physical trend (Ou 2024, section 3.2).

Called by the engine through `forecasts.CompletionForecaster`, by training and by evaluation. The paper's forest maps
(type, input size) to seconds. Here::

    seconds = lone(type, size) x correction by the forest(type, size) x slowdown(type, rate, pressure)

fitted in logs, so that an error of a tenth weighs the same for a short job and a long one. The quantiles come from
the forest's out-of-bag residuals.

Invariant: ``p90 >= p50 > 0``. An unknown type is forecast as the worst known one (of many, the worst of those with the
longest trend), unless the user gave an estimate for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import ModelError
from cotide_core.forecasts import CompletionForecast, CompletionSamples
from cotide_core.kernels.array_types import Floats, Indices
from cotide_predictors.completion.forest import NumericForest
from cotide_predictors.completion.isolated_run_time import IsolatedRunTime, learn_lone_time, usual_sizes
from cotide_predictors.completion.slowdown import Curve, Slowdown, flat_slowdown, refine_slowdown
from cotide_predictors.estimator import Estimator
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.persistence import model_files

KIND: Final = "completion"
FOREST_FILE: Final = "forest.npz"
FEATURES: Final = (
    {"name": "log_input_bytes", "unit": "natural log of bytes"},
    {"name": "type_rank", "unit": "rank of the type by lone seconds at its usual size"},
)
MAX_TYPES: Final = 256
"""Known types, those with the most samples (chosen: as many as the engine distinguishes at once). A type is the free
choice of a pod's author, and each pod may have another.
"""
SLOWEST_ASKED: Final = 16
"""Known types for the forecast of an unknown one, those with the longest trend. Chosen: all of them took ten seconds
for 1,000 pods of unknown types next to 256 known ones, and no pod was placed meanwhile.
"""
ROUNDS: Final = 15
"""Rounds between isolated times and slowdown (chosen: changes are below 1e-3 after ten on the measured grid)."""


@dataclass(frozen=True, slots=True)
class JobBatch:
    """n jobs on their nodes, columnar; fields as in `CompletionSamples`."""

    types: tuple[str, ...]
    input_bytes: Floats
    requests_per_second: Floats
    cpu_pressure: Floats

    def __len__(self) -> int:
        return len(self.types)


def jobs_of(samples: CompletionSamples) -> JobBatch:
    """Return what was known of each sample's job before it ran."""
    return JobBatch(samples.types, samples.input_bytes, samples.requests_per_second, samples.cpu_pressure)


class CompletionModel(Estimator, model_files.FiledModel):
    """Run time of batch jobs from type, size and the contention on the node.

    Parameters
    ----------
    trees : of the forest. 60 (chosen: the scores of 100 at less than two thirds of the time).
    least_leaf : smallest number of samples in a leaf.
    most_samples : a random subset of this size is used when there are more.
    random_state : seed of the forest and of the subset.

    Attributes
    ----------
    types_ : the T known types, sorted; at most `MAX_TYPES`.
    lone_, slowdown_, forest_ : the three factors.
    residual_quantiles_ : (p50, p90) of the log residuals out of bag.
    """

    def __init__(
        self, *, trees: int = 60, least_leaf: int = 3, most_samples: int = 20_000, random_state: int = 0
    ) -> None:
        self.trees = trees
        self.least_leaf = least_leaf
        self.most_samples = most_samples
        self.random_state = random_state

    @on_one_thread
    def fit(self, jobs: JobBatch, seconds: Floats) -> Self:
        """Learn from (n,) measured run times > 0 of n jobs."""
        seconds = np.asarray(seconds, dtype=np.float64)
        if len(seconds) != len(jobs) or not len(seconds):
            raise ValueError(f"{len(seconds)} run times for {len(jobs)} jobs; at least one of each is needed")
        if not (np.isfinite(seconds) & (seconds > 0)).all():
            raise ValueError("every run time must be a finite number of seconds > 0")
        self._model_id = ""
        names = np.asarray(jobs.types)
        sizes, rates, pressure = jobs.input_bytes, jobs.requests_per_second, jobs.cpu_pressure
        if len(seconds) > self.most_samples:
            generator = np.random.default_rng(self.random_state)
            rows = np.sort(generator.choice(len(seconds), self.most_samples, replace=False))
            names, seconds, sizes, rates, pressure = (part[rows] for part in (names, seconds, sizes, rates, pressure))
        found, met = np.unique(names, return_counts=True)
        if len(found) > MAX_TYPES:
            usual_types = found[np.argsort(-met, kind="stable")[:MAX_TYPES]]
            rows = np.flatnonzero(np.isin(names, usual_types))
            names, seconds, sizes, rates, pressure = (part[rows] for part in (names, seconds, sizes, rates, pressure))
        self.types_ = tuple(sorted(set(names.tolist())))
        kinds = np.searchsorted(np.asarray(self.types_), names)
        usual = usual_sizes(kinds, sizes, len(self.types_))
        sizes = np.where(sizes > 0, sizes, usual[kinds])
        log_seconds = np.log(seconds)
        self.slowdown_ = flat_slowdown(len(self.types_))
        for _ in range(ROUNDS):
            stretch = self.slowdown_.log_factor(kinds, rates, pressure)
            self.lone_ = learn_lone_time(kinds, sizes, np.exp(log_seconds - stretch), usual)
            lone = np.log(self.lone_.seconds(kinds, sizes))
            self.slowdown_ = refine_slowdown(self.slowdown_, kinds, rates, pressure, log_seconds - lone)
        rest = log_seconds - lone - self.slowdown_.log_factor(kinds, rates, pressure)
        typical = self.lone_.seconds(np.arange(len(self.types_)), np.maximum(usual, 1.0))
        self.rank_ = np.argsort(np.argsort(typical, kind="stable"), kind="stable").astype(np.float64)
        self.forest_, out_of_bag = NumericForest.grow(
            self._features(kinds, sizes), rest,
            trees=self.trees, least_leaf=self.least_leaf, random_state=self.random_state,
        )  # fmt: skip
        residual = rest - np.where(np.isnan(out_of_bag), rest.mean(), out_of_bag)
        self.residual_quantiles_ = tuple(float(q) for q in np.quantile(residual, (0.5, 0.9)))
        self.samples_ = len(seconds)
        self.range_ = {
            "input_bytes": (float(sizes.min()), float(sizes.max())),
            "requests_per_second": (float(rates.min()), float(rates.max())),
            "cpu_pressure": (float(pressure.min()), float(pressure.max())),
            "seconds": (float(seconds.min()), float(seconds.max())),
        }
        self.metrics_ = {"out_of_bag_median_relative_error": float(np.median(np.abs(np.expm1(residual))))}
        return self

    def knows(self, job_type: str) -> bool:
        """Whether the type was seen in training."""
        return job_type in self.types_

    def isolated_seconds(
        self, types: Sequence[str], input_bytes: Floats, requested_seconds: Floats
    ) -> CompletionForecast:
        """Forecast n jobs on an idle node.

        A job of an unknown type takes the user's estimate (``requested_seconds``, nan for none) as its median. Without
        one it is forecast as the slowest known type at its size.
        """
        if not len(types):
            return CompletionForecast(np.zeros(0), np.zeros(0))
        kinds = self._kinds(types)
        log_lone = self._log_lone(kinds, input_bytes)
        estimate = np.asarray(requested_seconds, dtype=np.float64)
        trusted = (kinds < 0) & np.isfinite(estimate) & (estimate > 0)
        low, high = self.residual_quantiles_
        p50 = np.where(trusted, estimate, np.exp(log_lone + low))
        return CompletionForecast(p50, p50 * np.exp(high - low))

    def slowdown(self, types: Sequence[str], requests_per_second: Floats, cpu_pressure: Floats) -> Floats:
        """Return (n,) factors >= 1: the stretch of each job by contention on the node."""
        factor: Floats = np.exp(self.slowdown_.log_factor(self._kinds(types), requests_per_second, cpu_pressure))
        return factor

    def predict(self, jobs: JobBatch) -> Floats:
        """Return (n,) median run times in seconds of jobs on their nodes."""
        lone = self.isolated_seconds(jobs.types, jobs.input_bytes, np.full(len(jobs), np.nan))
        seconds: Floats = lone.p50 * self.slowdown(jobs.types, jobs.requests_per_second, jobs.cpu_pressure)
        return seconds

    def to_files(self) -> dict[str, bytes]:
        """Return the model as manifest and npz bytes."""
        body: dict[str, object] = {
            "features": list(FEATURES),
            "types": list(self.types_),
            "residual_quantiles": list(self.residual_quantiles_),
            "training": {
                "samples": self.samples_,
                "range": {name: list(ends) for name, ends in self.range_.items()},
                "parameters": self.get_params(),
            },
            "metrics": self.metrics_,
        }
        arrays: dict[str, NDArray[Any]] = {
            **{f"forest_{name}": array for name, array in self.forest_.arrays().items()},
            "startup_seconds": self.lone_.startup_seconds,
            "seconds_per_byte": self.lone_.seconds_per_byte,
            "usual_bytes": self.lone_.usual_bytes,
            "type_rank": self.rank_,
            "rate_at": self.slowdown_.rate.at,
            "rate_height": self.slowdown_.rate.height,
            "pressure_at": self.slowdown_.pressure.at,
            "pressure_height": self.slowdown_.pressure.height,
            "sensitivity": self.slowdown_.sensitivity,
        }
        return model_files.pack(KIND, body, {FOREST_FILE: model_files.write_arrays(arrays)})

    @classmethod
    def from_document(cls, document: model_files.Document, files: dict[str, bytes]) -> Self:
        """Return the model of a checked manifest (see `serialisation.from_files`)."""
        if [feature["name"] for feature in document["features"]] != [feature["name"] for feature in FEATURES]:
            raise ModelError("the model has features that this program does not build")
        arrays = model_files.read_arrays(files[FOREST_FILE], FOREST_FILE)
        training = document["training"]
        model = cls(**training["parameters"])
        model.types_ = tuple(document["types"])
        model.forest_ = NumericForest.from_arrays(
            {name.removeprefix("forest_"): array for name, array in arrays.items() if name.startswith("forest_")}
        )
        model.lone_ = IsolatedRunTime(arrays["startup_seconds"], arrays["seconds_per_byte"], arrays["usual_bytes"])
        model.rank_ = arrays["type_rank"]
        model.slowdown_ = Slowdown(
            Curve(arrays["rate_at"], arrays["rate_height"]),
            Curve(arrays["pressure_at"], arrays["pressure_height"]),
            arrays["sensitivity"],
        )
        low, high = document["residual_quantiles"]
        model.residual_quantiles_ = (float(low), float(high))
        model.samples_ = int(training["samples"])
        model.range_ = {name: (float(ends[0]), float(ends[1])) for name, ends in training["range"].items()}
        model.metrics_ = dict(document["metrics"])
        model._model_id = model_files.fingerprint(files)
        return model

    def _kinds(self, types: Sequence[str]) -> Indices:
        at = {name: index for index, name in enumerate(self.types_)}
        return np.fromiter((at.get(name, -1) for name in types), dtype=np.intp, count=len(types))

    def _features(self, kinds: Indices, sizes: Floats) -> Floats:
        return np.column_stack((np.log(np.maximum(sizes, 1.0)), self.rank_[kinds]))

    def _log_lone(self, kinds: Indices, input_bytes: Floats) -> Floats:
        """Return (n,) log isolated seconds; an unknown type takes the slowest of all known ones."""
        asked = np.asarray(input_bytes, dtype=np.float64)
        unknown = np.flatnonzero(kinds < 0)
        if len(unknown):
            worst = self._log_slowest(asked[unknown])
            if len(unknown) == len(kinds):
                return worst
        safe = np.maximum(kinds, 0)
        sizes = self.lone_.declared(safe, asked)
        lone = np.log(self.lone_.seconds(safe, sizes)) + self.forest_.predict(self._features(safe, sizes))
        if len(unknown):
            lone[unknown] = worst
        return lone

    def _log_slowest(self, input_bytes: Floats) -> Floats:
        """Return (n,) log isolated seconds of the slowest known type at each size."""
        sizes, index = np.unique(input_bytes, return_inverse=True)
        kinds = np.tile(np.arange(len(self.types_)), (len(sizes), 1))
        declared = self.lone_.declared(kinds, sizes[:, None])
        trend = np.log(self.lone_.seconds(kinds, declared))
        if len(self.types_) > SLOWEST_ASKED:
            kinds = np.argpartition(-trend, SLOWEST_ASKED, axis=1)[:, :SLOWEST_ASKED]
            declared, trend = (np.take_along_axis(part, kinds, axis=1) for part in (declared, trend))
        lone = trend + self.forest_.predict(self._features(kinds.ravel(), declared.ravel())).reshape(trend.shape)
        slowest: Floats = lone.max(axis=1)[index]
        return slowest


def take_jobs(jobs: JobBatch, rows: Indices) -> JobBatch:
    """Return the given rows of a batch of jobs."""
    return JobBatch(
        tuple(jobs.types[row] for row in rows),
        jobs.input_bytes[rows],
        jobs.requests_per_second[rows],
        jobs.cpu_pressure[rows],
    )


def train_completion(samples: CompletionSamples, *, random_state: int = 0) -> CompletionModel:
    """Return a model fitted on the samples with a run time > 0.

    Raises
    ------
    ModelError
        When no sample has a usable run time.
    """
    usable = np.flatnonzero(np.isfinite(samples.seconds) & (samples.seconds > 0))
    if not len(usable):
        raise ModelError("there is nothing to learn from: no sample has a run time > 0")
    model = CompletionModel(random_state=random_state)
    return model.fit(take_jobs(jobs_of(samples), usable), samples.seconds[usable])
