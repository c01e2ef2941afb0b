"""Held-out scores over random 3:1 splits, of our models and their baselines (Ou 2024, sections 3 and 5).

Called by `cotide evaluate`. Splits go by cell by default: repetitions of one measured cell never lie on both sides.
Each contender, ours too, chooses its settings on held-out cells of the training rows of the split, from equally many
trials (`trial_choice`). Ours has one more entry as it ships, with settings that were chosen on the public tables.
Invariant: all contenders see the same training rows and answer for the same test rows. Only the shipped settings were
tuned on the test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_core.kernels.array_types import Floats, Indices
from cotide_lab.predictors.evaluation.baselines import (
    COMPLETION_BASELINES,
    QOS_BASELINES,
    CompletionBaseline,
    QosBaseline,
)
from cotide_lab.predictors.evaluation.trial_choice import choose, log_loss
from cotide_predictors.completion.completion_model import CompletionModel, jobs_of, take_jobs
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.qos.mixes import cells_of, cells_of_jobs, take_mixes, with_limit
from cotide_predictors.qos.qos_model import QosModel

SplitBy = Literal["cell", "row"]
Watch = Callable[[str, float, Floats, NDArray[np.bool_]], object]
"""Receives, for each contender and limit, (n,) probabilities of test rows and whether each was violated."""
OURS: Final = "cotide"
SHIPPED: Final = "cotide, as it ships"
OUR_TRIALS: Final[tuple[dict[str, float | int], ...]] = (
    {},
    {"trees": 100},
    {"depth": 3},
    {"inverse_ridge": 1.0},
    {"inverse_ridge": 0.02},
    {"trees": 100, "depth": 3, "inverse_ridge": 1.0},
)
"""Changes to the shipped settings among which ours chooses (chosen to bracket the default of each setting)."""
TEST_SHARE: Final = 0.25
"""One part of four is held out (Ou 2024, section 3.1: 3:1)."""


class QosContender(Protocol):
    """The interface of a classifier for evaluation; it decides at even odds, or by a rule of its own."""

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities."""
        ...

    def predict(self, mixes: MixBatch) -> NDArray[np.bool_]:
        """Return (n,) decisions."""
        ...


@dataclass(frozen=True, slots=True)
class Score:
    """One contender's scores, one entry a split; nan where a score is undefined (F1 without any violation).

    Attributes
    ----------
    contender : name.
    limit_milliseconds : the limit; nan for completion.
    metrics : name to (splits,) values.
    """

    contender: str
    limit_milliseconds: float
    metrics: dict[str, Floats]

    def mean(self, metric: str) -> float:
        """Return the mean over the splits with a defined metric; nan without any."""
        return float(np.mean(self._defined(metric))) if len(self._defined(metric)) else float("nan")

    def deviation(self, metric: str) -> float:
        """Return the standard deviation over the splits with a defined metric."""
        return float(np.std(self._defined(metric))) if len(self._defined(metric)) else float("nan")

    def _defined(self, metric: str) -> Floats:
        values = self.metrics[metric]
        return values[np.isfinite(values)]


def splits_of(cells: Indices, splits: int, random_state: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield (training rows, test rows) of random 3:1 splits; rows of one cell stay together.

    Each split depends on the seed and its own number only, so that more splits begin with the same ones.
    """
    names = np.unique(cells)
    held = max(1, round(TEST_SHARE * len(names)))
    for split in range(splits):
        chosen = np.random.default_rng((random_state, split)).permutation(names)[:held]
        inside = np.isin(cells, chosen)
        yield np.flatnonzero(~inside), np.flatnonzero(inside)


def part_of(train: Indices, cells: Indices, share: float, seed: tuple[int, ...]) -> Indices:
    """Return the training rows of a share of the training cells, at least one; smaller shares lie in larger ones.

    Parameters
    ----------
    cells : (n,) of all rows. share : in (0, 1].
    """
    names = np.random.default_rng(seed).permutation(np.unique(cells[train]))
    return train[np.isin(cells[train], names[: max(1, round(share * len(names)))])]


@on_one_thread
def evaluate_qos(
    samples: QosSamples,
    *,
    limits_milliseconds: Sequence[float],
    splits: int = 10,
    split_by: SplitBy = "cell",
    random_state: int = 0,
    training_share: float = 1.0,
    progress: Callable[[str], object] = str,
    watch: Watch | None = None,
) -> list[Score]:
    """Return scores of our model (trained once for all limits) and of each baseline (trained for each limit).

    Parameters
    ----------
    training_share : share of the training cells of each split that are used; the test rows stay the same.

    Rows of ours also have ``base_share``: 1 where the logistic base lies under the trees inside the box of training
    rows, 0 where it only counts outside (`qos.monotone_ensemble`). They also have ``rows``, the number of training
    rows.
    """
    mixes, latency = samples.mixes, samples.latency_milliseconds
    cells = cells_of(mixes) if split_by == "cell" else np.arange(len(mixes))
    found: dict[tuple[str, float], list[dict[str, float]]] = {}
    for number, (whole, test) in enumerate(splits_of(cells, splits, random_state), start=1):
        progress(f"split {number} of {splits}")
        train = part_of(whole, cells, training_share, (random_state, number))
        seen, asked = QosSamples(take_mixes(mixes, train), latency[train]), take_mixes(mixes, test)
        limits = tuple(limits_milliseconds)
        ours = {OURS: chosen_model(seen, limits, random_state), SHIPPED: _fitted(seen, limits, random_state, {})}
        for limit in limits:
            at_limit, violated = with_limit(asked, limit), latency[test] > limit
            for name, contender in (*ours.items(), *_baselines(seen, limit, random_state)):
                row = score_qos(contender, at_limit, violated) | {"rows": float(len(train))}
                if isinstance(contender, QosModel):
                    row["base_share"] = contender.ensemble_.share
                found.setdefault((name, limit), []).append(row)
                if watch is not None:
                    watch(name, limit, contender.violation_probability(at_limit), violated)
    return [Score(name, limit, _columns(rows)) for (name, limit), rows in found.items()]


def chosen_model(samples: QosSamples, limits_milliseconds: Sequence[float], random_state: int) -> QosModel:
    """Return our model with the settings of `OUR_TRIALS` that do best on held-out cells of the samples."""
    mixes, latency = samples.mixes, samples.latency_milliseconds

    def loss(settings: dict[str, float | int], learned: Indices, held: Indices) -> float:
        part = QosSamples(take_mixes(mixes, learned), latency[learned])
        model = _fitted(part, limits_milliseconds, random_state, settings)
        asked = take_mixes(mixes, held)
        return sum(
            log_loss(model.violation_probability(with_limit(asked, limit)), latency[held] > limit)
            for limit in limits_milliseconds
        )

    settings = choose(OUR_TRIALS, cells_of(mixes), random_state, loss)
    return _fitted(samples, limits_milliseconds, random_state, settings)


def _fitted(
    samples: QosSamples, limits: Sequence[float], random_state: int, settings: dict[str, float | int]
) -> QosModel:
    model = QosModel(limits_milliseconds=tuple(limits), random_state=random_state)
    model.set_params(**settings)
    return model.fit(samples.mixes, samples.latency_milliseconds)


def _baselines(samples: QosSamples, limit: float, random_state: int) -> Iterator[tuple[str, QosContender]]:
    """Yield each baseline by name, trained for one limit."""
    for method in QOS_BASELINES:
        rival = QosBaseline(method=method, limit_milliseconds=limit, random_state=random_state)
        yield method, rival.fit(samples.mixes, samples.latency_milliseconds)


def score_qos(contender: QosContender, mixes: MixBatch, violated: NDArray[np.bool_]) -> dict[str, float]:
    """Return accuracy, recall, F1 (nan without a violation among the rows) and Brier score."""
    decided, probability = contender.predict(mixes), contender.violation_probability(mixes)
    hits = int((decided & violated).sum())
    actual, called = int(violated.sum()), int(decided.sum())
    return {
        "accuracy": float((decided == violated).mean()),
        "recall": hits / actual if actual else float("nan"),
        "f1": 2.0 * hits / (actual + called) if actual else float("nan"),
        "brier": float(((probability - violated) ** 2).mean()),
    }


@on_one_thread
def evaluate_completion(
    samples: CompletionSamples,
    *,
    splits: int = 10,
    split_by: SplitBy = "cell",
    random_state: int = 0,
    training_share: float = 1.0,
    progress: Callable[[str], object] = str,
) -> list[Score]:
    """Return scores of our model and of each baseline on the same splits; parameters as in `evaluate_qos`.

    Test rows of a type that the training part lacks are not scored: the answer for an unknown type is a policy (the
    worst known), not a forecast. The metric ``scored`` is the number of scored rows.
    """
    jobs, seconds = jobs_of(samples), samples.seconds
    cells = cells_of_jobs(jobs.types, jobs.input_bytes, jobs.requests_per_second, jobs.cpu_pressure)
    found: dict[str, list[dict[str, float]]] = {}
    by = cells if split_by == "cell" else np.arange(len(jobs))
    names = np.asarray(jobs.types)
    for number, (whole, held) in enumerate(splits_of(by, splits, random_state), start=1):
        progress(f"split {number} of {splits}")
        train = part_of(whole, by, training_share, (random_state, number))
        test = held[np.isin(names[held], names[train])]
        if not len(test):
            continue
        seen, asked = take_jobs(jobs, train), take_jobs(jobs, test)
        contenders: dict[str, CompletionModel | CompletionBaseline] = {OURS: CompletionModel(random_state=random_state)}
        contenders |= {
            name: CompletionBaseline(method=name, random_state=random_state) for name in COMPLETION_BASELINES
        }
        for name, contender in contenders.items():
            predicted = contender.fit(seen, seconds[train]).predict(asked)
            row = {**score_completion(predicted, seconds[test]), "scored": float(len(test)), "rows": float(len(train))}
            if isinstance(contender, CompletionModel):
                nothing_asked = np.full(len(asked), np.nan)
                lone = contender.isolated_seconds(asked.types, asked.input_bytes, nothing_asked)
                factor = contender.slowdown(asked.types, asked.requests_per_second, asked.cpu_pressure)
                row["p90_coverage"] = float((seconds[test] <= lone.p90 * factor).mean())
            found.setdefault(name, []).append(row)
    if not found:
        raise ValueError("no test row of any split has a type that its training part knows")
    return [Score(name, float("nan"), _columns(rows)) for name, rows in found.items()]


def score_completion(predicted: Floats, measured: Floats) -> dict[str, float]:
    """Return mean absolute error in seconds, R2, and the median relative error."""
    error = predicted - measured
    spread = float(((measured - measured.mean()) ** 2).sum())
    return {
        "mae_seconds": float(np.abs(error).mean()),
        "r2": 1.0 - float((error**2).sum()) / spread if spread > 0 else float("nan"),
        "median_relative_error": float(np.median(np.abs(error) / measured)),
    }


def _columns(rows: list[dict[str, float]]) -> dict[str, Floats]:
    return {name: np.asarray([row[name] for row in rows]) for name in rows[0]}
