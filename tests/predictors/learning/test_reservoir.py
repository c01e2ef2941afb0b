"""What is kept of many samples: the latest as they came, and of older ones a balance that drops nothing rare."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.recording.samples import MeasuredMix
from cotide_predictors.learning.reservoir import SampleReservoir, cell_of


def mix(rate: float = 100.0, *, jobs: int = 0, latency: float = 1.0, service: str = "d/web") -> MeasuredMix:
    beside = (("sort", jobs, jobs * 1000),) if jobs else ()
    return MeasuredMix(service, rate, 0.0, 10.0, 0.1 * jobs, beside, latency)


def reservoir(capacity: int, recent: int = 2) -> SampleReservoir:
    return SampleReservoir(capacity, recent=recent, generator=np.random.default_rng(0))


def test_the_latest_of_each_service_are_kept_as_they_came() -> None:
    kept = reservoir(10)
    kept.add(mix(rate) for rate in (1.0, 2.0, 3.0))
    assert [one.rate for one in kept.latest()["d/web"]] == [2.0, 3.0]
    assert [one.rate for one in kept.older()] == [1.0]


def test_a_rare_mix_outlives_any_number_of_usual_ones() -> None:
    kept = reservoir(20)
    kept.add([mix(jobs=7)])
    kept.add(mix() for _ in range(500))
    assert sum(one.jobs != () for one in kept.older()) == 1


def test_the_last_violation_of_a_cell_stays() -> None:
    kept = reservoir(5)
    kept.add([mix(latency=99.0)])
    kept.add(mix() for _ in range(500))
    assert sum(one.broken for one in kept.older()) == 1


def test_within_a_cell_labels_stay_in_proportion() -> None:
    """Of 4,000 samples 25 % broke; of the 400 that are kept 25 % +- 4 standard errors of 2.2 %."""
    kept = reservoir(400)
    kept.add(mix(latency=99.0 if number % 4 == 0 else 1.0) for number in range(4000))
    share = sum(one.broken for one in kept.older()) / len(kept.older())
    assert abs(share - 0.25) < 4 * 0.022


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 20), st.sampled_from("abc")), max_size=200))
def test_no_more_than_its_capacity_is_ever_kept(drawn: list[tuple[float, int, str]]) -> None:
    kept = reservoir(17, recent=3)
    for rate, jobs, service in drawn:
        kept.add([mix(rate, jobs=jobs, service=service)])
        assert len(kept.older()) <= 17
        assert all(len(samples) <= 3 for samples in kept.latest().values())
    assert len(kept) == len(kept.older()) + sum(map(len, kept.latest().values()))


def test_a_digest_holds_every_cell_before_it_holds_one_twice() -> None:
    kept = reservoir(1000)
    kept.add(mix(jobs=jobs) for jobs in (1, 2, 4, 8))
    kept.add(mix() for _ in range(300))
    digest = kept.digest(10)
    assert len(digest) == 10
    assert len({cell_of(one) for one in digest}) == 5


def test_a_service_that_is_gone_takes_its_samples_along() -> None:
    kept = reservoir(10)
    kept.add([*(mix() for _ in range(5)), *(mix(service="d/db") for _ in range(5))])
    kept.forget(["d/web"])
    assert kept.services == ("d/db",)
    assert {one.service for one in kept.older()} == {"d/db"}


def test_what_is_remembered_to_find_the_largest_cell_does_not_grow_with_what_was_ever_seen() -> None:
    kept = reservoir(capacity=100, recent=1)
    for number in range(5_000):
        kept.add([mix(rate=float(10 ** (number % 5)))])
    assert len(kept.older()) == 100
    assert len(kept._largest) < 200
    sizes = sorted(len(cell) for cell in kept._cells.values())
    assert sizes == [20] * 5, "the largest cell is the one that gives, as ever"
