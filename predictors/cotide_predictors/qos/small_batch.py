"""The QoS model's margin of a few mixes in machine code. The sums are those of numpy, without its cost for each call.

Used by `qos.QosModel` for the questions of a scheduler, most of them about some ten mixes. There forty calls of numpy
take 100 microseconds; this module takes 20. Logarithms stay numpy's, one call for all columns. Invariant: the same bits
as `mix_features`, `type_contention` and `monotone_ensemble` give together; those answer without numba, and for many
mixes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats, Narrow
from cotide_core.kernels.compiled import compiled, compiles
from cotide_predictors.persistence.boosted_trees import sum_of_leaves
from cotide_predictors.qos.mix_features import FEATURES, SMOOTH_FEATURES
from cotide_predictors.qos.monotone_ensemble import MonotoneEnsemble
from cotide_predictors.qos.type_contention import TypeContention

FEW_ROWS: Final = 2048
"""Largest number of mixes (chosen: above a scheduler's usual question; from there on numpy is as fast)."""
MOST_TYPES: Final = 128
"""numpy sums longer rows in halves, which this module does not repeat."""
WIDTH: Final = len(FEATURES)
SMOOTH_WIDTH: Final = len(SMOOTH_FEATURES)


class SmallBatch:
    """Margins of a few mixes by one model; what depends only on the model and on the types is computed beforehand."""

    def __init__(self, contention: TypeContention, ensemble: MonotoneEnsemble) -> None:
        self._contention = contention
        self._ensemble = ensemble
        self._corners = np.ascontiguousarray([ensemble.low_, ensemble.high_])
        self._coefficients = np.ascontiguousarray(ensemble.base_.coefficients_)
        self._known: tuple[str, ...] | None = None
        self._weights: Floats = np.zeros((2, 0))

    def takes(self, mixes: MixBatch) -> bool:
        """Whether these mixes can be answered here."""
        return compiles() and len(mixes) <= FEW_ROWS and len(mixes.types) <= MOST_TYPES

    def margin(self, mixes: MixBatch) -> Floats | None:
        """Return (n,) log odds before calibration; None where a value is not finite."""
        if mixes.types != self._known:
            self._weights = np.array(self._contention.weights_of(mixes.types))
            self._known = mixes.types
        ensemble = self._ensemble
        features, logs = features_of(
            np.ascontiguousarray(mixes.requests_per_second, np.float64),
            np.ascontiguousarray(mixes.other_requests_per_second, np.float64),
            np.ascontiguousarray(mixes.limit_milliseconds, np.float64),
            np.ascontiguousarray(mixes.cpu_pressure, np.float64),
            np.ascontiguousarray(mixes.counts, np.float64),
            np.ascontiguousarray(mixes.input_bytes, np.float64),
            self._weights,
            self._corners,
        )
        np.log1p(logs[:7], out=logs[:7])
        np.log(logs[7:], out=logs[7:])
        trees = ensemble.trees_
        start, narrow, finite = starts_of(
            features,
            logs,
            self._corners,
            self._coefficients,
            ensemble.base_.intercept_,
            ensemble.share,
        )
        if not finite:
            return None
        sums = sum_of_leaves(trees.roots, trees.depths, trees.feature, trees.threshold, trees.child, trees.leaf, narrow)
        return start + sums


@compiled
def features_of(
    rates: Floats,
    others: Floats,
    limits: Floats,
    pressures: Floats,
    counts: Floats,
    input_bytes: Floats,
    weights: Floats,
    corners: Floats,
) -> tuple[Floats, Floats]:
    """Return (n, 8) features, the first without its logarithm, and (9, n) numbers to take logarithms of.

    Rows of the latter: the first feature; rate, weighted input and other rate, then the same within the corners of the
    training features (these seven for log1p). Then follow the limit, and the same within the corners (for log).
    """
    features = np.empty((rates.shape[0], WIDTH))
    logs = np.empty((9, rates.shape[0]))
    for row in range(rates.shape[0]):
        features[row, 0] = weighted_sum(counts[row], weights[0])
        features[row, 1] = weighted_sum(input_bytes[row], weights[1])
        features[row, 2] = rates[row]
        features[row, 3] = others[row]
        features[row, 4] = limits[row]
        jobs = size = 0.0
        for column in range(counts.shape[1]):
            jobs += counts[row, column]
            size += input_bytes[row, column]
        features[row, 5] = jobs
        features[row, 6] = size
        features[row, 7] = pressures[row]
        logs[0, row] = features[row, 0]
        logs[1, row] = rates[row]
        logs[2, row] = features[row, 1]
        logs[3, row] = others[row]
        logs[4, row] = min(max(rates[row], corners[0, 2]), corners[1, 2])
        logs[5, row] = min(max(features[row, 1], corners[0, 1]), corners[1, 1])
        logs[6, row] = min(max(others[row], corners[0, 3]), corners[1, 3])
        logs[7, row] = limits[row]
        logs[8, row] = min(max(limits[row], corners[0, 4]), corners[1, 4])
    return features, logs


@compiled
def starts_of(
    features: Floats, logs: Floats, corners: Floats, coefficients: Floats, intercept: float, share: float
) -> tuple[Floats, Narrow, bool]:
    """Return (n,) start margins of the trees, the (n, 8) features for the trees, and whether all are finite."""
    rows = features.shape[0]
    start = np.empty(rows)
    narrow = np.empty((rows, WIDTH), np.float32)
    smooth = np.empty(SMOOTH_WIDTH)
    finite = True
    for row in range(rows):
        stretch = features[row, 0] = logs[0, row]
        rate, pressure = features[row, 2], min(max(features[row, 7], corners[0, 7]), corners[1, 7])
        score = smooth_score(
            smooth,
            coefficients,
            intercept,
            stretch,
            rate,
            pressure,
            logs[1, row],
            logs[2, row],
            logs[3, row],
            logs[7, row],
        )
        if share < 1.0:
            stretch = min(max(stretch, corners[0, 0]), corners[1, 0])
            rate = min(max(rate, corners[0, 2]), corners[1, 2])
            inside = smooth_score(
                smooth,
                coefficients,
                intercept,
                stretch,
                rate,
                pressure,
                logs[4, row],
                logs[5, row],
                logs[6, row],
                logs[8, row],
            )
            score = score - (1.0 - share) * inside
        start[row] = score
        for column in range(WIDTH):
            value = np.float32(features[row, column])
            narrow[row, column] = value
            finite = finite and np.isfinite(value)
    return start, narrow, finite


@compiled
def smooth_score(
    smooth: Floats,
    coefficients: Floats,
    intercept: float,
    stretch: float,
    rate: float,
    pressure: float,
    log_rate: float,
    log_input: float,
    log_other: float,
    log_limit: float,
) -> float:
    """Return the logistic base's score of one row, columns as in `mix_features.SMOOTH_FEATURES`.

    It takes many arguments, because they are the row: `starts_of` has them as numbers, and a row made for the call
    alone would be written and read again for each mix.
    """
    smooth[0] = log_rate
    smooth[1] = rate
    smooth[2] = log_other
    smooth[3] = -log_limit
    smooth[4] = pressure
    smooth[5] = stretch
    smooth[6] = log_input
    smooth[7] = stretch * log_rate
    smooth[8] = stretch * rate
    smooth[9] = log_input * log_rate
    return weighted_sum(smooth, coefficients) + intercept


@compiled
def weighted_sum(values: Floats, weights: Floats) -> float:
    """Return the sum of products in numpy's order for up to 128 numbers: eight interleaved sums."""
    length = values.shape[0]
    if length < 8:
        total = 0.0
        for index in range(length):
            total += values[index] * weights[index]
        return total
    one, two = values[0] * weights[0], values[1] * weights[1]
    three, four = values[2] * weights[2], values[3] * weights[3]
    five, six = values[4] * weights[4], values[5] * weights[5]
    seven, eight = values[6] * weights[6], values[7] * weights[7]
    full = length - length % 8
    for index in range(8, full, 8):
        one += values[index] * weights[index]
        two += values[index + 1] * weights[index + 1]
        three += values[index + 2] * weights[index + 2]
        four += values[index + 3] * weights[index + 3]
        five += values[index + 4] * weights[index + 4]
        six += values[index + 5] * weights[index + 5]
        seven += values[index + 6] * weights[index + 6]
        eight += values[index + 7] * weights[index + 7]
    joint: float = ((one + two) + (three + four)) + ((five + six) + (seven + eight))
    for index in range(full, length):
        joint += values[index] * weights[index]
    return joint
