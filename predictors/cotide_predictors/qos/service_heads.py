"""The part of a single service: a small monotone logistic regression on top of the pooled model, shrunk towards it.

Called by `services_model`. The log odds of a mix of service s are::

    pooled = a + b x log odds of the trees + c x log(latency by the common law / limit)
    a_s + b_s x pooled + w_s . (smooth columns) + v_s . (jobs by type) + u_s . (input by type)

with b, c, w, v, u >= 0. A ridge shrinks each service's numbers towards a_s = 0, b_s = 1 and 0 for the others. Its
strength measures the similarity of the services and is learned from held-out rows of all of them. A service without
samples has the pool's answer, one with ten is close to it, one with a thousand and its own law may leave it. Invariant:
the log odds never fall where those of the trees, the law and the columns do not.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_predictors.qos.mix_features import SMOOTH_FEATURES
from cotide_predictors.qos.service_scales import LAW_BYTES, LAW_RATE

RIDGES: Final = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Candidate strengths (chosen: from an independent service to the pool's copy)."""
RIDGE_OF_LEVEL: Final = 0.1
"""Share of the ridge on the level a: it differs most between services, and is learned from the fewest samples."""
RIDGE_OF_SLOPE: Final = 4.0
"""Multiple of the ridge on the slope b; its unit is a whole pooled model (chosen)."""
MOST_ROWS: Final = 2000
"""Latest samples of a service in the fit of its own part (chosen: some fifty numbers)."""
COMMON: Final = 2 + len(SMOOTH_FEATURES)
"""Columns before those by type: level, slope, smooth columns."""
NORMAL_AS_LOGISTIC: Final = 1.702
"""A normal distribution's probabilities are a logistic one's of 1.702 times the argument, to .01 (Haley
1952)."""
STACK_RIDGE: Final = 0.01
"""Ridge of the three numbers that join trees and law (chosen: negligible, since they rest on all samples)."""


def join_pooled(trees: Floats, law: Floats, violated: Floats, noise: float) -> Floats:
    """Return (3,) level and weights >= 0 of the two pooled forecasts.

    Where latencies scatter around the law as its noise predicts, their scatter is known from every sample, and a
    limit's few violations add nothing. The law then answers alone, unless three fitted numbers pay for themselves
    (Akaike 1974).

    Parameters
    ----------
    trees : (n,) log odds by trees that did not see the row.
    law : (n,) log of the latency by the common law over the limit.
    violated : (n,) 0 or 1.
    noise : standard deviation of the log of a latency around the law, > 0.
    """
    columns = np.column_stack((np.ones(len(trees)), trees, law))
    scale = np.array([1.0, 1.0, max(float(law.std()), 1e-6)])
    fitted = fit_head(columns, violated, scale, STACK_RIDGE)
    alone = np.array([0.0, 0.0, NORMAL_AS_LOGISTIC / noise])
    losses = [
        float((np.logaddexp(0.0, score) - violated * score).sum()) for score in (columns @ fitted, columns @ alone)
    ]
    return fitted if losses[0] + len(fitted) < losses[1] else alone


def head_columns(log_odds: Floats, smooth: Floats, mixes: MixBatch, types: tuple[str, ...]) -> Floats:
    """Return (n, k) columns of the regression; ``types`` are the model's, columns of others are left out."""
    index = {name: column for column, name in enumerate(mixes.types)}
    known = [index[name] for name in types]
    ones = np.ones(len(mixes))
    return np.column_stack((ones, log_odds, smooth, mixes.counts[:, known], mixes.input_bytes[:, known]))


def neutral(width: int) -> Floats:
    """Return the (k,) head of an unknown service: the pooled answer."""
    head = np.zeros(width)
    head[1] = 1.0
    return head


def fit_head(columns: Floats, violated: Floats, scale: Floats, ridge: float) -> Floats:
    """Return the (k,) weights of one service.

    Parameters
    ----------
    columns, violated : (n, k) and (n,) of its samples, labelled by its own limit.
    scale : (k,) deviation of each column over all services; 1 for level and slope.
    ridge : strength.
    """
    from scipy.optimize import minimize  # heavy, and only training needs it
    from scipy.special import expit

    width = columns.shape[1]
    centre = neutral(width)
    if not len(violated):
        return centre
    # Columns are centred, so that a weight does not move the level; the offset goes into it at the end.
    mean = columns.mean(axis=0)
    mean[:2] = 0.0
    standard = (columns - mean) / scale
    strength = np.full(width, ridge)
    strength[0] *= RIDGE_OF_LEVEL
    strength[1] *= RIDGE_OF_SLOPE

    def loss(unknowns: Floats) -> tuple[float, Floats]:
        score = standard @ unknowns
        away = unknowns - centre
        value = float((np.logaddexp(0.0, score) - violated * score).sum() + 0.5 * (strength * away**2).sum())
        return value, standard.T @ (expit(score) - violated) + strength * away

    bounds: list[tuple[float | None, float | None]] = [(None, None), *[(0.0, None)] * (width - 1)]
    found: Floats = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds).x / scale
    found[0] -= float(found @ mean)
    return found


def choose_ridge(
    columns: Floats, violated: Floats, service_index: Integers, fold: Integers, scale: Floats
) -> tuple[float, Floats]:
    """Return the ridge with the lowest held-out log loss over all services, and its (n,) held-out log odds."""
    best: tuple[float, float, Floats] | None = None
    for ridge in RIDGES:
        score = np.zeros(len(violated))
        for index in np.unique(service_index):
            mine = service_index == index
            for part in np.unique(fold[mine]):
                held = mine & (fold == part)
                rest = np.flatnonzero(mine & ~held)[-MOST_ROWS:]
                score[held] = columns[held] @ fit_head(columns[rest], violated[rest], scale, ridge)
        loss = float((np.logaddexp(0.0, score) - violated * score).mean())
        if best is None or loss < best[0]:
            best = (loss, ridge, score)
    if best is None:
        raise ValueError("there is no ridge to choose from")
    return best[1], best[2]


@compiled
def head_log_odds(
    margin: Floats,
    service_index: Integers,
    rates: Floats,
    others: Floats,
    limits: Floats,
    pressures: Floats,
    counts: Floats,
    input_bytes: Floats,
    weights: Floats,
    pressure_range: Floats,
    law: Floats,
    joint: Floats,
    heads: Floats,
    by_type: Floats,
) -> Floats:
    """Return (n,) log odds of mixes in the units of their services; columns as in `mix_features.SMOOTH_FEATURES`.

    It takes many arguments, because numba unpacks thirteen arrays in 2.2 us and a tuple of them in 4.7 us, for each
    batch of an attempt.

    Parameters
    ----------
    margin : (n,) log odds by the trees.
    service_index : (n,) row of ``heads`` of each mix.
    weights : (2, T) excess and byte weight of each type.
    pressure_range : (2,) the limits of the pressure.
    law : (10,) weights of the common law, see `service_scales.law_columns`.
    joint : (3,) see `join_pooled`.
    heads : (S + 1, 12) level, slope, smooth columns.
    by_type : (S + 1, 2, T) weights of jobs and of input bytes of each type.
    """
    scores = np.empty(margin.shape[0])
    for row in range(margin.shape[0]):
        head, index = heads[service_index[row]], service_index[row]
        stretch = weighted = own = 0.0
        for column in range(counts.shape[1]):
            stretch += counts[row, column] * weights[0, column]
            weighted += input_bytes[row, column] * weights[1, column]
            own += (
                counts[row, column] * by_type[index, 0, column] + input_bytes[row, column] * by_type[index, 1, column]
            )
        rate, contention = rates[row], np.log1p(stretch)
        log_rate, log_input = np.log1p(rate), np.log1p(weighted)
        pressure = min(max(pressures[row], pressure_range[0]), pressure_range[1])
        log_other, log_limit = np.log1p(others[row]), np.log(limits[row])
        latency = law_of(law, rate, log_other, pressures[row], contention, weighted)
        pooled = joint[0] + joint[1] * margin[row] + joint[2] * (latency - log_limit)
        score = head[0] + head[1] * pooled + head[2] * log_rate + head[3] * rate
        score += head[4] * log_other - head[5] * log_limit + head[6] * pressure
        score += head[7] * contention + head[8] * log_input + head[9] * (contention * log_rate)
        score += head[10] * (contention * rate) + head[11] * (log_input * log_rate)
        scores[row] = score + own
    return scores


@compiled
def law_of(law: Floats, rate: float, log_other: float, pressure: float, contention: float, weighted: float) -> float:
    """Return the log of a latency over the isolated p95 by the common law; columns as in
    `service_scales.law_columns`.
    """
    log_rate = np.log1p(LAW_RATE * rate)
    latency = law[0] * log_rate + law[1] * rate + law[2] * log_other + law[3] * pressure + law[4] * contention
    latency += law[5] * (contention * log_rate) + law[6] * (contention * rate) + law[7] * (pressure * log_rate)
    return float(latency + law[8] * (pressure * rate) + law[9] * np.log1p(weighted / LAW_BYTES))
