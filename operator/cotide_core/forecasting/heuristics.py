"""Forecasts without a model: conservative, monotone, from requests alone.

Used through `HeuristicCatalogue` when no model was trained yet or none could be loaded; decisions name the model
``heuristic`` then. All constants are chosen, with the measured co-location grid as a guide (docs/guide/predictions.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cotide_core.errors import ModelError
from cotide_core.forecasts import CompletionForecast, CompletionForecaster, MixBatch, QosAnswers, QosForecaster
from cotide_core.kernels.array_types import Floats, Integers

HEURISTIC: Final = "heuristic"
"""The model id of both heuristics."""
BUSY_RATE: Final = 50_000.0
"""Requests per second at which a service counts as busy: where the paper's waiting times fall off (Ou 2024, Table
4)."""
USUAL_LIMIT_MILLISECONDS: Final = 10.0
"""The paper's limit; tighter ones raise the risk."""
PRESSURE_PER_JOB: Final = 0.05
"""Minimum cpu pressure of each job, so that jobs without requests still count."""
EVEN_LOAD: Final = 0.6
"""Load at a probability of one half: jobs request 60 % of a quiet node's cpu, 30 % of a busy one's."""
HIGHEST_LOAD: Final = 100.0
"""Upper bound of the load: beyond it p is 1 to nine digits."""
START_SECONDS: Final = 10.0
BYTES_PER_SECOND: Final = 50e6
"""Assumed reading rate of a job of unknown type: 50 MB/s after `START_SECONDS`."""
SPREAD: Final = 2.0
"""p90 over p50 without better knowledge."""
SLOWDOWN_AT_RATE: Final = 140_000.0
SLOWDOWN_EXTRA: Final = 4.0
"""Measured on one core: 1x at 1k requests/s to 5x at 140k; linear between."""


class HeuristicQos:
    """Risk of a violation from request rate and cpu pressure.

    ``load = (pressure + 0.05 x jobs + other rate / 200k) x (1 + rate / 50k) x max(1, 10 ms / limit)`` and
    ``p = load^4 / (load^4 + 0.6^4)``: .1 at a load of .35, .5 at .6, .9 at 1.04; 0 on a node without any job or other
    service. Sums, products and quotients only, so that a ledger replays to the same bits on any machine.
    """

    @property
    def model_id(self) -> str:
        """``heuristic``."""
        return HEURISTIC

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities; rising in rate, counts and pressure, level in input bytes."""
        jobs = mixes.counts.sum(axis=1)
        rate = mixes.requests_per_second + mixes.other_requests_per_second
        tightness = np.maximum(1.0, USUAL_LIMIT_MILLISECONDS / mixes.limit_milliseconds)
        contention = mixes.cpu_pressure + PRESSURE_PER_JOB * jobs + mixes.other_requests_per_second / (4 * BUSY_RATE)
        load = np.minimum(contention * (1.0 + rate / BUSY_RATE) * tightness, HIGHEST_LOAD)
        fourth = load * load * load * load
        return np.asarray(fourth / (fourth + EVEN_LOAD**4))

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return the same; it learned nothing, so only unmeasured rates are marked."""
        rows = len(mixes)
        unmeasured = np.zeros(rows, np.int64) if mixes.unmeasured is None else mixes.unmeasured
        return QosAnswers(self.violation_probability(mixes), unmeasured, np.full(rows, -1, np.int64))


def larger_outside(probability: Floats, outside: Integers, mixes: MixBatch) -> Floats:
    """Return (n,) a model's probabilities, raised to the heuristic's outside the training region.

    Monotone if ``outside`` is closed upwards: a point outside stays there when the load grows.
    """
    if not np.count_nonzero(outside):
        return probability
    heuristic = HeuristicQos().violation_probability(mixes)
    return np.where(outside != 0, np.maximum(probability, heuristic), probability)


class HeuristicCompletion:
    """Run time from the user's own estimate, otherwise from the input size."""

    @property
    def model_id(self) -> str:
        """``heuristic``."""
        return HEURISTIC

    def knows(self, job_type: str) -> bool:
        """Return True: it treats all types alike, so all are equally known."""
        del job_type
        return True

    def isolated_seconds(
        self, types: Sequence[str], input_bytes: Floats, requested_seconds: Floats
    ) -> CompletionForecast:
        """Return the estimate if there is one, otherwise ``10 s + bytes / 50 MB/s``; p90 is twice p50."""
        del types
        by_size = START_SECONDS + input_bytes / BYTES_PER_SECOND
        p50 = np.where(np.isnan(requested_seconds), by_size, np.maximum(1e-3, np.nan_to_num(requested_seconds)))
        return CompletionForecast(p50, SPREAD * p50)

    def slowdown(self, types: Sequence[str], requests_per_second: Floats, cpu_pressure: Floats) -> Floats:
        """Return ``max(1, pressure) x (1 + 4 rate / 140k)``."""
        del types
        stretch: Floats = 1.0 + SLOWDOWN_EXTRA * requests_per_second / SLOWDOWN_AT_RATE
        return np.asarray(np.maximum(1.0, cpu_pressure) * stretch)


class HeuristicCatalogue:
    """A catalogue without model files."""

    def qos(self, model_id: str) -> QosForecaster:
        """Return the heuristic; raises ModelError for any other id."""
        _only_heuristic(model_id)
        return HeuristicQos()

    def completion(self, model_id: str) -> CompletionForecaster:
        """Return the heuristic; raises ModelError for any other id."""
        _only_heuristic(model_id)
        return HeuristicCompletion()


def _only_heuristic(model_id: str) -> None:
    if model_id not in ("", HEURISTIC):
        raise ModelError(f"model {model_id} is not here: this catalogue holds the heuristics only")
