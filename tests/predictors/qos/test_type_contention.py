"""What is learned about each batch type."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.forecasts import MixBatch
from cotide_predictors.qos.type_contention import learn_contention


def mixes(rate: np.ndarray, counts: np.ndarray, sizes: np.ndarray, types: tuple[str, ...]) -> MixBatch:
    nothing = np.zeros(len(rate))
    return MixBatch(rate, nothing, nothing + 10, nothing, types, counts, sizes)


def test_factor_of_each_type_is_recovered_and_increments_add_up() -> None:
    """Latency 1 ms x (1 + rate / 10,000) x (1 + 3 a + 1 b): a's excess is 3, b's is 1."""
    generator = np.random.default_rng(1)
    rate = generator.uniform(0, 20_000, 600)
    counts = generator.integers(0, 3, (600, 2)).astype(float)
    latency = (1 + rate / 10_000) * (1 + counts @ np.array([3.0, 1.0]))
    found = learn_contention(mixes(rate, counts, np.zeros((600, 2)), ("b3", "a1")), latency)
    # Columns come back sorted by name, whatever their order was.
    assert found.types == ("a1", "b3")
    assert found.excess == pytest.approx([1.0, 3.0], rel=0.1)
    assert found.worst_type == "b3"
    stretch, weighted = found.columns(mixes(rate[:1], np.array([[2.0, 1.0]]), np.zeros((1, 2)), ("b3", "a1")))
    assert stretch[0] == pytest.approx(np.log(1 + 2 * 3 + 1), rel=0.1)
    assert weighted[0] == 0


def test_type_that_works_longer_on_each_byte_gets_heavier_bytes() -> None:
    """Latency grows with the square root of the work; ``b`` works four times as long on each byte."""
    generator = np.random.default_rng(2)
    kind = generator.integers(0, 2, 800)
    counts = np.eye(2)[kind]
    size = np.exp(generator.uniform(np.log(1e7), np.log(1e9), 800))
    latency = np.sqrt(size * np.array([1.0, 4.0])[kind]) / 1e4 * np.exp(generator.normal(0, 0.05, 800))
    found = learn_contention(mixes(np.full(800, 1e4), counts, counts * size[:, None], ("a", "b")), latency)
    assert found.byte_weight[1] / found.byte_weight[0] == pytest.approx(4.0, rel=0.25)


def test_types_that_differ_by_noise_only_are_drawn_together() -> None:
    generator = np.random.default_rng(3)
    kind = generator.integers(0, 5, 200)
    latency = np.exp(generator.normal(1.0, 0.5, 200))
    latency[kind == 0] /= 2.7  # no job
    found = learn_contention(
        mixes(np.full(200, 1e4), np.eye(5)[kind][:, 1:], np.zeros((200, 4)), ("a", "b", "c", "d")), latency
    )
    raw = [np.log(latency[kind == number]).mean() for number in range(1, 5)]
    assert np.ptp(np.log1p(found.excess)) < 0.5 * np.ptp(raw)


def test_latencies_far_beyond_the_limits_do_not_drown_the_types() -> None:
    rate = np.tile([1e3, 1e5], 50)
    counts = np.eye(2)[np.repeat([0, 1], 50)]
    latency = np.where(rate > 1e4, 1e6, 1.0) * np.repeat([1.0, 1.5], 50)
    # In the saturated half one type is hit by chance a thousand times as hard.
    latency[(rate > 1e4) & (counts[:, 0] > 0)] *= 1e3
    batch = mixes(rate, counts, np.zeros((100, 2)), ("a", "b"))
    assert learn_contention(batch, latency).worst_type == "a"
    assert learn_contention(batch, latency, span_milliseconds=(0.5, 8.0)).worst_type == "b"


def test_without_any_job_there_is_nothing_to_learn() -> None:
    found = learn_contention(mixes(np.arange(5.0), np.zeros((5, 0)), np.zeros((5, 0)), ()), np.arange(1.0, 6.0))
    assert found.types == ()
    stretch, weighted = found.columns(mixes(np.ones(1), np.ones((1, 1)), np.ones((1, 1)), ("x",)))
    assert stretch[0] == 0
    assert weighted[0] == 1
