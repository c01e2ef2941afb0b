"""Histograms that find a bucket by bisection show what the client library's own would."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from cotide_operator.observability.histograms import BisectingHistogram
from cotide_operator.observability.metrics import ATTEMPT_BUCKETS, SLI_BUCKETS

AMOUNTS = st.floats(-1.0, 1e5) | st.sampled_from((*ATTEMPT_BUCKETS, *SLI_BUCKETS, 0.0, math.inf))


def shown(kind: type[Histogram], buckets: tuple[float, ...], amounts: list[float]) -> list[bytes]:
    registry = CollectorRegistry()
    plain = kind("plain", "p", buckets=buckets, registry=registry)
    labelled = kind("labelled", "l", ("of",), buckets=buckets, registry=registry).labels("it")
    for amount in amounts:
        plain.observe(amount)
        labelled.observe(amount)
    lines = generate_latest(registry).splitlines()
    return [line for line in lines if b"_created" not in line]


@given(st.lists(AMOUNTS, max_size=20), st.sampled_from((ATTEMPT_BUCKETS, SLI_BUCKETS)))
def test_the_page_is_the_same_as_that_of_the_librarys_own(amounts: list[float], buckets: tuple[float, ...]) -> None:
    assert shown(BisectingHistogram, buckets, amounts) == shown(Histogram, buckets, amounts)


def test_an_amount_that_is_counted_so_many_times_is_as_many_observations() -> None:
    registry = CollectorRegistry()
    histogram = BisectingHistogram("h", "h", buckets=(1.0, 2.0), registry=registry)
    histogram.observe_equal(1.5, 4)
    found = [registry.get_sample_value("h_bucket", {"le": le}) for le in ("1.0", "2.0", "+Inf")]
    assert (found, registry.get_sample_value("h_sum"), registry.get_sample_value("h_count")) == (
        [0.0, 4.0, 4.0],
        6.0,
        4.0,
    )
