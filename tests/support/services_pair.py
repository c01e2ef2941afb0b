"""A quick cache and a slow database that share a law: the pair that broke each other under one pooled model.

p95 = base x (1 + .5 rate/1000) x (1 + .15 wordcounts + .1 sorts) x a log-normal factor of .05; rates even over 100 to
1,000 requests/s, 0 to 4 of each job; bases of 2 and 80 ms; limits of 10 and 200 ms. The cache never breaks its limit,
the database in some 8 % of the mixes.
"""

from __future__ import annotations

import math

import numpy as np

from cotide_core.forecasts import MixBatch, QosSamples

CACHE, DATABASE = "shop/cache", "shop/db"
BASES = (2.0, 80.0)
LIMITS = (10.0, 200.0)
NOISE = 0.05
TYPES = ("sort", "wordcount")


def medians(mixes: MixBatch, base: float) -> np.ndarray:
    """The law without its noise."""
    sorts, wordcounts = mixes.counts.T
    return base * (1 + 0.5 * mixes.requests_per_second / 1000) * (1 + 0.15 * wordcounts + 0.1 * sorts)


def true_probability(mixes: MixBatch, base: float) -> np.ndarray:
    """What a model that knows the law would say: the noise is log-normal."""
    away = np.log(mixes.limit_milliseconds / medians(mixes, base)) / NOISE
    return np.array([0.5 * math.erfc(one / math.sqrt(2)) for one in away.tolist()])


def measured(rows: int, seed: int) -> QosSamples:
    """So many samples of each service, the cache's first."""
    generator = np.random.default_rng(seed)
    jobs = generator.integers(0, 5, (2 * rows, 2)).astype(np.float64)
    service = np.repeat([0, 1], rows)
    mixes = MixBatch(
        requests_per_second=generator.uniform(100, 1000, 2 * rows),
        other_requests_per_second=np.zeros(2 * rows),
        limit_milliseconds=np.array(LIMITS)[service],
        cpu_pressure=0.1 * jobs.sum(axis=1),
        types=TYPES,
        counts=jobs,
        input_bytes=1e8 * jobs,
        services=(CACHE, DATABASE),
        service=service,
    )
    noise = np.exp(NOISE * generator.standard_normal(2 * rows))
    return QosSamples(mixes, medians(mixes, 1.0) * np.array(BASES)[service] * noise)


def f1(said: np.ndarray, truth: np.ndarray) -> float:
    return 2 * float((said & truth).sum()) / float(said.sum() + truth.sum())
