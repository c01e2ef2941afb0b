"""Generated jobs that arrive over time: the same again for a seed, and with the shares that the models name."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.errors import InputError
from cotide_lab.job_logs.generated_log import GENERATORS, described, generated_log
from cotide_lab.job_logs.lublin import BATCH, INTERACTIVE, day_weights, lublin_jobs

COUNT = 40_000


def fields(jobs):
    return [getattr(jobs, name).tolist() for name in ("submit", "run", "demand", "request", "user")]


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_seed_makes_the_same_log_again_and_another_seed_another(kind):
    log = generated_log("x", kind, 500, None, 3)
    assert fields(generated_log("x", kind, 500, None, 3)) == fields(log)
    assert fields(generated_log("x", kind, 500, None, 4)) != fields(log)
    assert (np.diff(log.submit) >= 0).all()
    assert ((log.demand >= 1) & (log.demand <= log.processors) & (log.run >= 1) & (log.run <= log.request)).all()


@pytest.fixture(scope="module")
def lublin():
    return lublin_jobs(COUNT, 128, 1)


def test_lublin_sizes_have_the_papers_shares(lublin):
    batch, few = lublin.demand[~lublin.interactive], lublin.demand[lublin.interactive]
    assert np.mean(batch == 1) == pytest.approx(BATCH.serial, abs=0.01)
    assert np.mean(few == 1) == pytest.approx(INTERACTIVE.serial, abs=0.01)
    # Parallel jobs of the power-of-two share, and those of the rest that happen to round to one.
    powers = np.isin(batch, 2 ** np.arange(1, 8))
    assert BATCH.power_of_two < np.mean(powers) < 1 - BATCH.serial
    assert few.max() <= round(2**5.5)
    assert batch.max() == 128


def test_lublin_run_times_are_a_hyper_gamma_whose_mixture_depends_on_the_size(lublin):
    # Serial batch jobs: p = 0.6956 of gamma(6.57, 0.823), mean 5.407; the rest gamma(639.1, 0.0156), mean 9.970.
    logs = np.log(lublin.run[~lublin.interactive & (lublin.demand == 1)] + 0.5)
    assert logs.mean() == pytest.approx(0.6956 * 5.407 + 0.3044 * 9.970, abs=0.1)
    wide = np.log(lublin.run[~lublin.interactive & (lublin.demand == 128)] + 0.5)
    assert wide.mean() > logs.mean() + 1.0, "p falls to 0.31 at 128 processors"
    assert lublin.run.max() <= np.exp(12)


def test_lublin_arrivals_follow_the_day_and_each_class_its_own(lublin):
    for kind, rows in ((BATCH, ~lublin.interactive), (INTERACTIVE, lublin.interactive)):
        weights = day_weights(kind)
        assert weights.mean() == pytest.approx(1.0)
        half_hours = np.bincount(lublin.submit[rows] % 86_400 // 1800, minlength=48)
        share = half_hours / half_hours.mean()
        # Gaps are heavy-tailed (e to a gamma variable), so a half hour's count is far noisier than a Poisson one.
        assert np.corrcoef(share, weights)[0, 1] > 0.85
        # The quietest half hour is in the small hours, the busiest in working hours.
        assert 0 <= weights.argmin() / 2 < 9
        assert 9 <= weights.argmax() / 2 < 18


@pytest.mark.parametrize("load", [0.5, 1.2])
def test_a_load_moves_lublins_arrivals_and_keeps_jobs_and_day(lublin, load):
    jobs = lublin_jobs(COUNT, 128, 1, load)
    assert sorted(jobs.run.tolist()) == sorted(lublin.run.tolist())
    offered = (jobs.run * jobs.demand).sum() / (128 * float(jobs.submit[-1]))
    assert offered == pytest.approx(load, rel=0.05)
    half_hours = np.bincount(jobs.submit[~jobs.interactive] % 86_400 // 1800, minlength=48)
    assert np.corrcoef(half_hours, day_weights(BATCH))[0, 1] > 0.85


def test_lublins_largest_jobs_are_those_of_the_machine():
    assert generated_log("x", "lublin", 5000, None, 1, processors=300).demand.max() <= 300
    assert generated_log("x", "lublin", 5000, None, 1, processors=1024).demand.max() == 1024
    small = generated_log("x", "lublin", 2000, None, 1, processors=2)
    assert set(small.demand.tolist()) == {1, 2}
    for kind, processors in (("lublin", 1), ("synth1", 100)):
        with pytest.raises(InputError, match="--processors"):
            generated_log("x", kind, 10, None, 1, processors=processors)


@pytest.mark.parametrize("kind", GENERATORS)
def test_more_jobs_than_fit_into_memory_are_refused_before_any_is_made(kind):
    with pytest.raises(InputError, match=r"--jobs: 99,999,999,999,999 are more than 10,000,000 jobs"):
        generated_log("x", kind, 99_999_999_999_999, None, 1)


def test_a_generator_says_what_it_did():
    assert (
        described("lublin", 128, None) == "lublin on 128 processors, arrivals of the model, requests to 5 x, 20 users"
    )
    assert "Poisson arrivals at a load of 0.9" in described("synth2", 200, None)
