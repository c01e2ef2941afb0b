"""Fixtures of the predictors' tests: small trained models, and the real tables where they are present."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_predictors.completion.completion_model import CompletionModel, train_completion
from cotide_predictors.qos.qos_model import QosModel, train_qos


@pytest.fixture(scope="session")
def qos_samples() -> QosSamples:
    """A service whose latency doubles at half its capacity; ``heavy`` stretches it by 4, ``light`` hardly."""
    generator = np.random.default_rng(7)
    rows = 240
    rate = generator.uniform(0, 100_000, rows)
    kind = generator.integers(0, 3, rows)
    counts = np.zeros((rows, 2))
    counts[kind == 1, 0] = generator.integers(1, 3, (kind == 1).sum())
    counts[kind == 2, 1] = 1
    sizes = counts * generator.uniform(1e7, 5e8, rows)[:, None]
    latency = 0.5 * (1 + rate / 50_000) * (1 + counts @ np.array([3.0, 0.1]))
    latency = latency * np.exp(generator.normal(0, 0.05, rows))
    mixes = MixBatch(
        requests_per_second=rate,
        other_requests_per_second=np.where(generator.random(rows) < 0.2, 5_000.0, 0.0),
        limit_milliseconds=np.full(rows, 2.0),
        cpu_pressure=0.2 * counts.sum(axis=1),
        types=("heavy", "light"),
        counts=counts,
        input_bytes=sizes,
    )
    return QosSamples(mixes, latency)


@pytest.fixture(scope="session")
def qos_model(qos_samples: QosSamples) -> QosModel:
    """A model of `qos_samples` for limits of 1, 2 and 4 ms."""
    return train_qos(qos_samples, limits_milliseconds=(1.0, 2.0, 4.0), random_state=3)


@pytest.fixture(scope="session")
def completion_samples() -> CompletionSamples:
    """``slow`` takes 2 s + 4 s for 100 MB, ``quick`` a tenth; both are stretched by up to e at 100,000 requests/s."""
    generator = np.random.default_rng(11)
    rows = 200
    types = tuple(generator.choice(["slow", "quick"], rows).tolist())
    size = generator.choice([2e7, 1e8, 4e8], rows)
    rate = generator.choice([0.0, 20_000.0, 60_000.0, 100_000.0], rows)
    lone = (2 + 4 * size / 1e8) * np.where(np.asarray(types) == "slow", 1.0, 0.1)
    seconds = lone * np.exp(rate / 100_000) * np.exp(generator.normal(0, 0.05, rows))
    return CompletionSamples(types, size, rate, np.full(rows, 0.25), seconds)


@pytest.fixture(scope="session")
def completion_model(completion_samples: CompletionSamples) -> CompletionModel:
    """A model of `completion_samples`."""
    return train_completion(completion_samples, random_state=3)
