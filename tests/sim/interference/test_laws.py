"""Laws of the interference models: what must hold whatever the constants are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_core.forecasts import MixBatch
from cotide_sim.interference.model import GeneratedInterference, MeasuredInterference, interference_from_json

TYPES = ("grep", "join", "llc", "never-seen")
GENERATED = GeneratedInterference()


def small_measured() -> MeasuredInterference:
    """Three knots, four latencies: alone always 0.1 ms, beside a job a tail of 10 ms that grows with the rate."""
    return MeasuredInterference(
        utilisations=np.array([0.0, 0.5, 1.0]),
        latencies=np.array([0.1, 1.0, 10.0, 100.0]),
        alone=np.array([[0.01, 0.0, 0.0, 0.0], [0.02, 0.0, 0.0, 0.0], [0.5, 0.2, 0.1, 0.0]]),
        beside=np.array([[0.01, 0.0, 0.0, 0.0], [0.3, 0.2, 0.1, 0.0], [0.9, 0.8, 0.7, 0.2]]),
        contention={"grep": 0.0, "join": 0.1, "llc": 0.3},
        slowdowns={"grep": (1.0, 2.0, 5.0), "join": (1.0, 3.0, 4.0)},
        neighbour=0.2,
        lone={"grep": (0.5, 4e-9)},
    )


MODELS = [GENERATED, small_measured()]


def mix(rate=0.0, other=0.0, pressure=0.0, counts=(0, 0, 0, 0), gigabytes=(0, 0, 0, 0)) -> MixBatch:
    return MixBatch(
        np.array([float(rate)]), np.array([float(other)]), np.array([10.0]), np.array([float(pressure)]),
        TYPES, np.array([counts], dtype=float), np.array([gigabytes], dtype=float) * 1e9,
    )  # fmt: skip


def joined(*mixes: MixBatch) -> MixBatch:
    return MixBatch(
        *(np.concatenate([getattr(m, name) for m in mixes]) for name in
          ("requests_per_second", "other_requests_per_second", "limit_milliseconds", "cpu_pressure")),
        TYPES,
        np.concatenate([m.counts for m in mixes]),
        np.concatenate([m.input_bytes for m in mixes]),
    )  # fmt: skip


rates = st.floats(0, 250_000)
quads = st.tuples(*[st.integers(0, 6)] * 4)
sizes = st.tuples(*[st.floats(0, 100)] * 4)


@pytest.mark.parametrize("model", MODELS, ids=["generated", "measured"])
@settings(max_examples=150, deadline=None)
@given(rates, rates, st.floats(0, 1.5), quads, sizes, rates, rates, st.floats(0, 1), quads, sizes)
def test_latency_never_falls_when_anything_grows(model, rate, other, pressure, counts, size, a, b, c, d, e):
    counts = tuple(max(n, 1) if g else n for n, g in zip(counts, size, strict=True))
    before = mix(rate, other, pressure, counts, size)
    grown = [
        replace(before, requests_per_second=before.requests_per_second + a),
        replace(before, other_requests_per_second=before.other_requests_per_second + b),
        replace(before, cpu_pressure=before.cpu_pressure + c),
        replace(before, counts=before.counts + np.array(d)),
        replace(before, input_bytes=before.input_bytes + np.where(before.counts > 0, np.array(e) * 1e9, 0.0)),
    ]
    first, *after = model.p95_milliseconds(joined(before, *grown))
    assert all(value >= first * (1 - 1e-12) for value in after)


@pytest.mark.parametrize("model", MODELS, ids=["generated", "measured"])
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(rates, st.floats(0, 1), quads), min_size=1, max_size=5))
def test_a_batch_of_rows_answers_like_each_row_alone(model, rows):
    mixes = [mix(rate, 0.0, pressure, counts, counts) for rate, pressure, counts in rows]
    together = model.p95_milliseconds(joined(*mixes))
    # Vector units may round the last bit otherwise for another number of rows.
    assert together.tolist() == pytest.approx([float(model.p95_milliseconds(one)[0]) for one in mixes], rel=1e-12)


@pytest.mark.parametrize("model", MODELS, ids=["generated", "measured"])
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(TYPES), rates, st.floats(0, 1.2), rates, st.floats(0, 1))
def test_slowdown_is_at_least_one_and_never_falls(model, name, rate, pressure, more_rate, more_pressure):
    low, faster, fuller = model.slowdown(
        [name] * 3,
        np.array([rate, rate + more_rate, rate]),
        np.array([pressure, pressure, pressure + more_pressure]),
    )
    assert 1.0 <= low <= faster * (1 + 1e-12)
    assert low <= fuller * (1 + 1e-12)


@pytest.mark.parametrize("model", MODELS, ids=["generated", "measured"])
def test_an_unknown_type_counts_as_the_worst_known(model):
    worst = {"generated": 1, "measured": 2}["generated" if model is GENERATED else "measured"]
    counts = [0, 0, 0, 0]
    counts[worst] = 1
    known, unknown = model.p95_milliseconds(joined(mix(60e3, 0, 0.5, tuple(counts)), mix(60e3, 0, 0.5, (0, 0, 0, 1))))
    assert unknown == known
    assert np.isnan(model.isolated_seconds(("never-seen",), np.array([1e9]))[0])


def test_the_mixture_is_the_weighted_sum_of_both_distributions():
    # At u = 0.5 and pressure 0.25: P(> 0.1 ms) = .75 x .02 + .25 x .3 = .09, P(> 1 ms) = .25 x .2 = .05.
    # So the 95th percentile is 1 ms. At pressure 0: P(> 0.1 ms) = .02 is below .05 at once: 0.1 ms.
    model = small_measured()
    half = 183_000 / 2
    quarter, empty = model.p95_milliseconds(joined(mix(half, 0, 0.25), mix(half, 0, 0.0)))
    assert quarter == pytest.approx(1.0)
    assert empty == pytest.approx(0.1)


def test_between_kept_latencies_the_percentile_is_linear_in_the_log():
    # Pressure 0.5 at u = 0.5: P(> 1) = .1 and P(> 10) = .05, so 10 ms; pressure 0.4: .08 and .04, where .05 lies
    # 3/4 of the way: 10^(3/4) ms.
    value = small_measured().p95_milliseconds(mix(183_000 / 2, 0, 0.4))[0]
    assert value == pytest.approx(10**0.75)


def test_contention_raises_the_utilisation():
    # join: k = 0.1, so one join at u = 0.5 is a service at u = 0.55: a tenth of the way to the knot at 1.
    model = small_measured()
    with_join = model.p95_milliseconds(mix(183_000 / 2, 0, 0.25, (0, 1, 0, 0)))[0]
    without = model.p95_milliseconds(mix(183_000 * 0.55, 0, 0.25))[0]
    assert with_join == pytest.approx(without)


def test_measured_slowdown_multiplies_the_service_s_part_and_the_neighbours_part():
    # grep at u = 0.75 lies half way from 2 to 5: 3.5; half a node of neighbours adds 0.2 x 0.5.
    assert small_measured().slowdown(("grep",), np.array([183_000 * 0.75]), np.array([0.5]))[0] == pytest.approx(3.85)


def test_generated_formula_by_hand():
    # 91,500 requests/s are u = .5; one sort of 0 bytes: K = .14, u = .5 x 1.035 = .5175, pressure .25 -> .125.
    # .045 / .4825 + 5.5 x .125 x 1.14 x .5175^1.3 / sqrt(.4825) = .0933 + .4793
    sort = MixBatch(
        np.array([91_500.0]), np.zeros(1), np.array([10.0]), np.array([0.25]),
        ("sort",), np.ones((1, 1)), np.zeros((1, 1)),
    )  # fmt: skip
    assert GENERATED.p95_milliseconds(sort)[0] == pytest.approx(0.0933 + 0.4793, abs=1e-3)


@pytest.mark.parametrize("model", MODELS, ids=["generated", "measured"])
def test_json_gives_back_the_same_model_to_the_last_bit(model):
    again = interference_from_json(model.to_json())
    assert again.to_json() == model.to_json()
    probe = joined(mix(50e3, 10e3, 0.3, (1, 0, 2, 0), (3, 0, 1, 0)), mix(120e3, 0, 0.7))
    assert again.p95_milliseconds(probe).tolist() == model.p95_milliseconds(probe).tolist()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not json", "is not JSON"),
        ("[]", "no interference model"),
        ('{"kind": "cotide-interference-measured-v1"}', "not a complete"),
    ],
)
def test_a_broken_model_file_gets_one_clear_line(text, says):
    with pytest.raises(InputError, match=says) as caught:
        interference_from_json(text, file="model.json")
    assert str(caught.value).startswith("model.json: ")


def test_a_directory_without_tables_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"memcached_batch_grid\.csv"):
        MeasuredInterference.from_directory(tmp_path)
