"""The harm of each batch type to an online service, learned from measured latencies.

Called by `qos.QosModel.fit` before the features are built; evaluated on every batch of mixes. It turns the columns of a
mix, one for each type, into two numbers that mean the same for any set of types. The trees then need not learn eight
columns from a hundred rows.

The model (ours; the paper passes the type directly to the trees)::

    log latency = base(rate) + log(1 + sum over types of count x (exp(s) - 1)) + b x log(input bytes)

``base`` never falls; ``s >= 0`` is the log of the latency factor of one job of the type. The increments of several jobs
add up. Types are shrunk to their mean, the more their differences look like noise (the ratio of variances within and
between types). ``b >= 0``. Where the input size matters (``b`` > 0.1), a type that hurts more at the same size is
assumed to work longer on each byte: its bytes weigh ``exp((s - mean s) / b)``.

Invariant: both outputs never fall when a count or a size grows, and no type is worse than an unknown one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats

RIDGE_RANGE: Final = (1.0, 100.0)
"""Least and most pseudo-samples that shrink a type towards the mean of all types (chosen)."""
SEVERITY_MAX: Final = 7.0
"""A factor of 1,100: no single job does worse, and the exponential stays finite (chosen)."""
SIZE_SLOPE_MIN: Final = 0.1
"""Below this exponent the size explains nothing, and bytes of every type weigh the same (chosen)."""
WEIGHT_LOG_MAX: Final = 2.0
"""Bytes of one type weigh at most e^2 = 7.4 times the mean (chosen)."""
_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class TypeContention:
    """Learned contention by type.

    Attributes
    ----------
    types : the T types seen in training, sorted.
    excess : (T,) ``exp(s) - 1`` >= 0: relative increase of the latency by one job.
    byte_weight : (T,) > 0, dimensionless weight of a byte.
    """

    types: tuple[str, ...]
    excess: Floats
    byte_weight: Floats

    @property
    def worst_excess(self) -> float:
        """The excess of an unknown type: the largest known one."""
        return float(self.excess.max(initial=0.0))

    @property
    def worst_byte_weight(self) -> float:
        """The weight of a byte of an unknown type: the largest known one."""
        return float(self.byte_weight.max(initial=1.0 if len(self.types) == 0 else 0.0))

    @property
    def worst_type(self) -> str:
        """Name of the type with the largest excess; empty when none is known."""
        return self.types[int(np.argmax(self.excess))] if self.types else ""

    def weights_of(self, types: tuple[str, ...]) -> tuple[Floats, Floats]:
        """Return (T,) excess and (T,) byte weight of types in any order, known or not."""
        at = {name: index for index, name in enumerate(self.types)}
        known = [at.get(name, -1) for name in types]
        return np.append(self.excess, self.worst_excess)[known], np.append(self.byte_weight, self.worst_byte_weight)[
            known
        ]

    def columns(self, mixes: MixBatch) -> tuple[Floats, Floats]:
        """Return (n,) contention (natural log of a latency factor) and (n,) weighted bytes of each mix.

        The columns of ``mixes`` may come in any order and name unknown types.
        """
        excess, weight = self.weights_of(mixes.types)
        # Multiply and add row by row, without BLAS: a row's answer must not depend on the number of rows.
        stretch = (np.ascontiguousarray(mixes.counts) * excess).sum(axis=1)
        weighted = (np.ascontiguousarray(mixes.input_bytes) * weight).sum(axis=1)
        return np.log1p(stretch), weighted


def learn_contention(
    mixes: MixBatch, latency_milliseconds: Floats, *, span_milliseconds: tuple[float, float] = (0.0, np.inf)
) -> TypeContention:
    """Fit the model of this module in rounds: base curve, severities, size exponent (12 rounds, chosen).

    Parameters
    ----------
    mixes : n measured mixes.
    latency_milliseconds : (n,) > 0.
    span_milliseconds : latencies are clipped to it. The excess of a latency over every limit is mostly the state of the
        host (a saturated service), and would drown the effect of the type.
    """
    present = mixes.counts.sum(axis=0) > 0
    types = tuple(name for name, seen in zip(mixes.types, present, strict=True) if seen)
    order = np.argsort(np.asarray(types, dtype=str)) if types else np.zeros(0, dtype=np.intp)
    counts = mixes.counts[:, present][:, order]
    total_bytes = mixes.input_bytes.sum(axis=1)
    log_latency = np.log(np.clip(latency_milliseconds, *span_milliseconds))
    log_rate = np.log1p(mixes.requests_per_second + mixes.other_requests_per_second)
    sized = total_bytes > 0
    log_bytes = np.zeros_like(total_bytes)
    if sized.any():
        log_bytes[sized] = np.log(total_bytes[sized]) - np.log(total_bytes[sized]).mean()
    spread = float((log_bytes**2).sum())
    severity, slope, ridge = np.zeros(counts.shape[1]), 0.0, RIDGE_RANGE[0]
    for _ in range(_ROUNDS):
        base = _rising(log_rate, log_latency - np.log1p(counts @ np.expm1(severity)) - slope * log_bytes)
        severity = _severities(counts, log_latency - base - slope * log_bytes, severity, ridge)
        rest = log_latency - base - np.log1p(counts @ np.expm1(severity))
        if spread > 0:
            slope = max(0.0, float((rest * log_bytes).sum()) / spread)
        ridge = _ridge(severity, counts.sum(axis=0), float(np.var(rest - slope * log_bytes)))
    weight = np.ones_like(severity)
    if slope > SIZE_SLOPE_MIN and len(severity):
        weight = np.exp(np.clip((severity - severity.mean()) / slope, -WEIGHT_LOG_MAX, WEIGHT_LOG_MAX))
    return TypeContention(tuple(types[index] for index in order), np.expm1(severity), weight)


def _rising(x: Floats, y: Floats) -> Floats:
    """Return the best never-falling fit of y on x, at x."""
    from sklearn.isotonic import IsotonicRegression

    fitted: Floats = IsotonicRegression(out_of_bounds="clip").fit(x, y).predict(x)
    return fitted


def _severities(counts: Floats, rest: Floats, start: Floats, ridge: float) -> Floats:
    """Return s >= 0 that minimises sum (rest - level - log(1 + counts (exp(s) - 1)))^2 + ridge x sum (s - mean)^2.

    The level is free: the base curve was fitted to the last severities and holds some of theirs. Without a free level
    the rounds between the two creep.
    """
    from scipy.optimize import minimize  # heavy, and only training needs it

    if not len(start):
        return start
    centre, width = float(start.mean()), len(start)

    def loss(unknowns: Floats) -> tuple[float, Floats]:
        severity, level = unknowns[:width], unknowns[width]
        stretch = 1.0 + counts @ np.expm1(severity)
        error = rest - level - np.log(stretch)
        apart = severity - centre
        gradient = -2.0 * (counts.T @ (error / stretch)) * np.exp(severity) + 2.0 * ridge * apart
        value = float((error**2).sum() + ridge * (apart**2).sum())
        return value, np.append(gradient, -2.0 * error.sum())

    bounds: list[tuple[float | None, float | None]] = [(0.0, SEVERITY_MAX)] * width
    found = minimize(loss, np.append(start, 0.0), jac=True, method="L-BFGS-B", bounds=[*bounds, (None, None)]).x
    severity: Floats = found[:width]
    return severity


def _ridge(severity: Floats, seen: Floats, noise: float) -> float:
    """Return the pseudo-samples that the differences between types are worth: variance within over between."""
    if len(severity) < 2:
        return RIDGE_RANGE[0]
    between = float(np.var(severity, ddof=1)) - noise * float(np.mean(1.0 / np.maximum(seen, 1.0)))
    return float(np.clip(noise / max(between, 1e-9), *RIDGE_RANGE))
