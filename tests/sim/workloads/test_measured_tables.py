"""The measured interference model and the traces on the real data, where it is."""

from __future__ import annotations

import numpy as np
import pytest
from repository import DATA

from cotide_core.forecasts import MixBatch
from cotide_sim.cluster import profiling
from cotide_sim.interference.model import MeasuredInterference
from cotide_sim.traces.jobs import alibaba2017, google2011
from cotide_sim.traces.load import worldcup98
from cotide_sim.workloads import sizing
from cotide_sim.workloads.traced import from_traces

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no trace directory at {DATA}; name one in COTIDE_DATA"),
]


@pytest.fixture(scope="module")
def model() -> MeasuredInterference:
    return MeasuredInterference.from_directory(DATA / "colocation")


def p95(model: MeasuredInterference, rates: list[float], pressure: float) -> list[float]:
    n = len(rates)
    counts = np.full((n, 1), float(pressure > 0))
    mixes = MixBatch(
        np.array(rates), np.zeros(n), np.full(n, 10.0), np.full(n, pressure), ("sort",), counts, counts * 1e9
    )
    return model.p95_milliseconds(mixes).tolist()


def test_alone_the_service_answers_as_measured(model):
    # The grid's README: 40-100 us up to 100k requests/s, about 0.2 ms at 140k, 1.4 ms at 170k.
    quiet = p95(model, [1e3, 10e3, 25e3, 45e3, 70e3, 100e3], 0.0)
    assert all(0.03 < value < 0.12 for value in quiet)
    near = p95(model, [140e3, 170e3], 0.0)
    assert near == [pytest.approx(0.2, rel=0.25), pytest.approx(1.4, rel=0.25)]


def test_beside_a_job_on_its_core_it_answers_as_measured(model):
    # Medians of the grid over types: 0.4, 1.0, 2.0 and 3.0 ms at 25k, 45k, 70k and 100k.
    assert p95(model, [25e3, 45e3, 70e3, 100e3], 1.0) == pytest.approx([0.4, 1.05, 2.0, 3.2], rel=0.25)


def test_jobs_are_slowed_from_once_to_five_times(model):
    factors = model.slowdown(["sort", "md5"] * 2, np.array([1e3, 1e3, 140e3, 140e3]), np.zeros(4))
    assert factors[:2] == pytest.approx([1.1, 1.0], abs=0.1)
    assert factors[2:] == pytest.approx([5.9, 4.9], abs=0.4)


def test_antagonists_contend_as_their_table_says(model):
    # Caches of the core itself cost nothing; last-level cache and memory bandwidth move the knee; cpu halves capacity.
    assert model.contention["l1d"] < 0.05
    assert model.contention["l2"] < 0.05
    assert 0.1 < model.contention["membw"] < model.contention["llc"] < 0.5 < model.contention["cpu"]
    assert all(model.contention[name] == 0.0 for name in sizing.JOB_TYPES)


def test_lone_run_times_fit_the_measured_ones(model):
    # wordcount took 8.04 s for 640 MB alone, select 0.53 s for 145 MB.
    assert model.isolated_seconds(("wordcount", "select"), np.array([640e6, 145e6])) == pytest.approx(
        [8.04, 0.527], rel=0.15
    )


def test_the_traces_read_whole():
    web = worldcup98.read_worldcup98(DATA)
    assert (len(web.requests), web.requests.max()) == (125_310, 229_426.0)
    assert sum(1 for _ in alibaba2017.read_batch_tasks(DATA)) == 80_553
    seconds = np.array([job.seconds for job in google2011.read_google_jobs(DATA)])
    # The reading as five-minute slots to the second: every value is a whole number of seconds.
    assert len(seconds) == 226_214
    assert np.abs(seconds - np.round(seconds)).max() < 1e-6


def test_the_real_plan_is_reproducible_and_meets_its_load():
    plan = from_traces(DATA, 1, 40, 900.0)
    assert plan == from_traces(DATA, 1, 40, 900.0)
    assert plan.offered_core_seconds == pytest.approx(sizing.LOAD * 40 * 8 * 900.0, rel=0.05)
    assert len({job.type for job in plan.jobs}) == 8


def test_measured_rows_join_a_campaign(model):
    (qos, runs) = profiling.with_measured_rows(
        profiling.profile(model, 1, qos_trials=50, completion_trials=20), DATA / "colocation"
    )
    assert (len(qos.mixes), len(runs.types)) == (50 + 546, 20 + 64)
    assert set(qos.mixes.cpu_pressure[50:]) == {0.0, 1.0}
