"""Each service in its own units: its p95 alone and its busiest rate, learned with partial pooling.

Called by `services_model` before features are built. It divides rates by the service's capacity, and limits and
latencies by its isolated p95. A database of 80 ms and a cache of 2 ms then teach one model. The model (random
intercepts, Gelman and Hill 2007, chapter 12)::

    log latency = level(service) + g(relative rate, mix) + noise,     level ~ N(log limit - typical, spread^2)

``g`` >= 0 is common to all, a sum of non-negative multiples of columns that are 0 for an idle pod without jobs.
Therefore ``exp(level)`` is the service's isolated p95. With n samples a level is ``n / (n + noise^2 / spread^2)`` its
own, and its limit determines the rest: ten samples all but settle it, and a service without any starts from the pool.
The capacity is the rate that a twentieth of its samples exceed, stretched by ``1 + 1/n`` since few samples miss the
busiest hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats, Integers
from cotide_predictors.qos.mixes import take_mixes
from cotide_predictors.qos.type_contention import TypeContention, learn_contention

BUSIEST: Final = 0.95
"""Quantile of a service's rates that serves as its capacity (chosen: the highest would be a single odd sample's)."""
SPAN: Final = 4.0
"""Largest factor of a latency over a limit (as in `qos_model`): the excess of a saturated service carries no
information on its level.
"""
ROWS_EACH: Final = 300
"""Most samples of each service in the fit of the common law (chosen: it has ten numbers)."""
ROUNDS: Final = 3
"""Rounds between the law and the levels (chosen; levels move by less than 1 % in a fourth)."""
LAW_RATE: Final = 10.0
LAW_BYTES: Final = 1e8
"""Bends of the law's logarithms: a tenth of the capacity, and 100 MB (chosen)."""
LEAST_SPREAD: Final = 0.05
"""Least variance of levels around the limits' prediction (chosen; it keeps the prior from being certain)."""
LONE_SPREAD: Final = 1.0
"""The same where there is only one service, so that it cannot be learned (chosen: a factor of e)."""
TYPICAL_RATIO: Final = 5.0
"""Limit over isolated p95 of an unknown service, where the pool is one service (chosen, the middle of 1.2 to 20)."""


@dataclass(frozen=True, slots=True)
class ServiceScales:
    """Units of S services, and of an unseen one.

    Attributes
    ----------
    lone_milliseconds : (S,) p95 of each in isolation at a low rate, > 0.
    capacity : (S,) requests/s that count as 1, > 0.
    typical_ratio : limit over isolated p95 of an unseen service: the geometric mean of the others.
    typical_capacity : its capacity: the geometric mean of the others.
    """

    lone_milliseconds: Floats
    capacity: Floats
    typical_ratio: float
    typical_capacity: float


def relative_mixes(mixes: MixBatch, service_index: Integers, scales: ServiceScales) -> MixBatch:
    """Return the same mixes in the units of their services; ``service_index`` is S for an unseen service."""
    capacity = np.append(scales.capacity, scales.typical_capacity)[service_index]
    lone = np.append(scales.lone_milliseconds, np.nan)[service_index]
    limit = np.where(np.isnan(lone), scales.typical_ratio, mixes.limit_milliseconds / lone)
    return MixBatch(
        mixes.requests_per_second / capacity,
        mixes.other_requests_per_second / capacity,
        limit,
        mixes.cpu_pressure,
        mixes.types,
        mixes.counts,
        mixes.input_bytes,
    )


def learn_scales(
    mixes: MixBatch, service_index: Integers, latency_milliseconds: Floats, services: int
) -> ServiceScales:
    """Fit the model of this module's docstring.

    Parameters
    ----------
    mixes : n measured mixes; each service has at least one.
    service_index : (n,) index of each row's service.
    latency_milliseconds : (n,) > 0.
    services : their number.
    """
    capacity = _capacities(mixes, service_index, services)
    typical_capacity = float(np.exp(np.log(capacity).mean()))
    rows = _at_most(service_index, ROWS_EACH)
    some, kept_index = take_mixes(mixes, rows), service_index[rows]
    log_limit = np.log(some.limit_milliseconds)
    log_latency = np.minimum(np.log(latency_milliseconds[rows]), log_limit + np.log(SPAN))
    seen = np.bincount(kept_index, minlength=services).astype(np.float64)
    limits = np.bincount(kept_index, log_limit, services) / seen
    level = np.bincount(kept_index, log_latency, services) / seen
    for _ in range(ROUNDS):
        unit = ServiceScales(np.exp(level), capacity, 1.0, 1.0)
        relative = relative_mixes(some, kept_index, unit)
        contention = learn_contention(relative, np.exp(log_latency - level[kept_index]))
        columns = law_columns(relative, contention)
        weights, noise = common_law(columns, log_latency, kept_index, seen)
        own = np.bincount(kept_index, log_latency - columns @ weights, services) / seen
        level = _pooled(own, limits, seen, noise)
    ratio = float(np.exp((limits - level).mean())) if services > 1 else TYPICAL_RATIO
    return ServiceScales(np.exp(level), capacity, ratio, typical_capacity)


def _capacities(mixes: MixBatch, service_index: Integers, services: int) -> Floats:
    capacity = np.ones(services)
    for index in range(services):
        rates = mixes.requests_per_second[service_index == index]
        busiest = float(np.quantile(rates, BUSIEST)) * (1.0 + 1.0 / len(rates))
        capacity[index] = busiest if busiest > 0 else 1.0
    return capacity


def _at_most(service_index: Integers, most: int) -> NDArray[np.intp]:
    """Return the rows of each service, evenly thinned to the given maximum."""
    chosen = []
    for index in np.unique(service_index):
        rows = np.flatnonzero(service_index == index)
        step = np.linspace(0, len(rows) - 1, min(most, len(rows)))
        chosen.append(rows[np.unique(step.astype(np.intp))])
    return np.concatenate(chosen)


def law_columns(relative: MixBatch, contention: TypeContention) -> Floats:
    """Return (n, 10) columns of the common law: 0 for an idle pod alone, and never falling with load.

    `service_heads.law_of` is the same sum in machine code, for answers.
    """
    stretch, weighted = contention.columns(relative)
    rate, pressure = relative.requests_per_second, relative.cpu_pressure
    log_rate = np.log1p(LAW_RATE * rate)
    return np.column_stack(
        (
            log_rate,
            rate,
            np.log1p(relative.other_requests_per_second),
            pressure,
            stretch,
            stretch * log_rate,
            stretch * rate,
            pressure * log_rate,
            pressure * rate,
            np.log1p(weighted / LAW_BYTES),
        )
    )


def common_law(columns: Floats, log_latency: Floats, service_index: Integers, seen: Floats) -> tuple[Floats, float]:
    """Return weights >= 0 of the columns and the noise variance, from differences to each service's own mean.

    Parameters
    ----------
    columns, log_latency, service_index : (n, 10), (n,) and (n,) index of each row's service.
    seen : (S,) samples of each.
    """
    from scipy.optimize import nnls  # heavy, and only training needs it

    def within(values: Floats) -> Floats:
        means = np.column_stack([np.bincount(service_index, column, len(seen)) for column in values.T]) / seen[:, None]
        return np.asarray(values - means[service_index])

    centred, wanted = within(columns), within(log_latency[:, None])[:, 0]
    scale = centred.std(axis=0) + 1e-9
    # A ridge of one sample, so that redundant columns share the weight and nothing explodes.
    width = columns.shape[1]
    padded = np.vstack((centred / scale, np.eye(width)))
    weights = nnls(padded, np.append(wanted, np.zeros(width)))[0] / scale
    return weights, max(1e-4, float(np.var(wanted - centred @ weights)))


def _pooled(own: Floats, limits: Floats, seen: Floats, noise: float) -> Floats:
    """Return levels between those of each service's samples and of its limit, weighed by their variances."""
    apart = limits - own
    spread = LONE_SPREAD
    if len(own) > 1:
        spread = max(LEAST_SPREAD, float(np.var(apart)) - noise * float((1.0 / seen).mean()))
    typical = float(apart.mean()) if len(own) > 1 else float(np.log(TYPICAL_RATIO))
    share = seen / (seen + noise / spread)
    return np.asarray(share * own + (1.0 - share) * (limits - typical))
