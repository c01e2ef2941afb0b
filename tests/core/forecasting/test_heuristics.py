"""The heuristics are conservative, monotone and say who they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.errors import ModelError
from cotide_core.forecasting.heuristics import HeuristicCatalogue, HeuristicCompletion, HeuristicQos
from cotide_core.forecasts import CompletionForecaster, MixBatch, QosForecaster


def mix(
    rate: float = 0.0, other: float = 0.0, limit: float = 10.0, pressure: float = 0.0, jobs: float = 0.0
) -> MixBatch:
    one = [np.array([value]) for value in (rate, other, limit, pressure)]
    return MixBatch(*one, types=("sort",), counts=np.array([[jobs]]), input_bytes=np.array([[0.0]]))


def risk(of: MixBatch) -> float:
    return float(HeuristicQos().violation_probability(of)[0])


def test_they_fulfil_the_protocols() -> None:
    assert isinstance(HeuristicQos(), QosForecaster)
    assert isinstance(HeuristicCompletion(), CompletionForecaster)
    assert HeuristicQos().model_id == HeuristicCompletion().model_id == "heuristic"


def test_a_service_alone_is_at_no_risk_from_us() -> None:
    assert risk(mix(rate=1e6)) == 0.0


def test_the_probability_is_one_half_at_the_documented_load() -> None:
    # (0.55 + 0.05 x 1 job) x (1 + 0 / 50k) x 1 = 0.6
    assert risk(mix(pressure=0.55, jobs=1)) == pytest.approx(0.5)
    # The same at 50k requests/s with half of it: (0.25 + 0.05) x 2 = 0.6
    assert risk(mix(rate=50_000, pressure=0.25, jobs=1)) == pytest.approx(0.5)


amounts = st.tuples(st.floats(0, 3e5), st.floats(0, 3e5), st.floats(0, 4), st.floats(0, 50))


@given(amounts, amounts, st.floats(0.1, 100))
def test_the_risk_never_falls_when_the_mix_grows(
    some: tuple[float, ...], more: tuple[float, ...], limit: float
) -> None:
    small = mix(some[0], some[1], limit, some[2], some[3])
    large = mix(some[0] + more[0], some[1] + more[1], limit, some[2] + more[2], some[3] + more[3])
    assert 0.0 <= risk(small) <= risk(large) <= 1.0
    assert risk(replace(small, limit_milliseconds=np.array([limit / 2]))) >= risk(small)


def test_the_users_estimate_comes_before_the_size() -> None:
    sizes, asked = np.array([1e9, 1e9]), np.array([np.nan, 42.0])
    forecast = HeuristicCompletion().isolated_seconds(["a", "b"], sizes, asked)
    assert forecast.p50.tolist() == [10.0 + 1e9 / 50e6, 42.0]
    assert (forecast.p90 >= forecast.p50).all()


def test_contention_stretches_a_job_and_idleness_does_not() -> None:
    factors = HeuristicCompletion().slowdown(["a"] * 3, np.array([0.0, 140_000.0, 0.0]), np.array([0.5, 1.0, 2.0]))
    assert factors.tolist() == [1.0, 5.0, 2.0]


def test_the_catalogue_of_heuristics_knows_no_model_file() -> None:
    catalogue = HeuristicCatalogue()
    assert catalogue.qos("").model_id == catalogue.completion("heuristic").model_id == "heuristic"
    with pytest.raises(ModelError, match="holds the heuristics only"):
        catalogue.qos("abc")
