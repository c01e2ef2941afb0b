"""Experiment qpsm-waiting: the paper's jobs and rates, one set of jobs for all strategies, bars that can be missed."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.forecasts import CompletionForecast, QosAnswers
from cotide_lab.experiments.qpsm.misled import Misjudged
from cotide_lab.experiments.qpsm.waiting import (
    ALONE,
    INACTIVE,
    JOB_MILLICORES,
    PAPER,
    POLICIES,
    RATES,
    Row,
    misses_of,
    plan_of,
    run,
)  # fmt: skip
from cotide_sim.cluster.comparison import TrainedModels
from cotide_sim.interference.model import GeneratedInterference

PHYSICS = GeneratedInterference()


class Knowing:
    """Models that know the physics, so that no training stands between a test and its answer."""

    model_id = "known"

    def violation_probability(self, mixes):
        return (PHYSICS.p95_milliseconds(mixes) > mixes.limit_milliseconds).astype(np.float64)

    def answer(self, mixes):
        return QosAnswers.within(self.violation_probability(mixes))

    def knows(self, job_type):
        return True

    def isolated_seconds(self, types, input_bytes, requested_seconds):
        seconds = PHYSICS.isolated_seconds(types, input_bytes)
        return CompletionForecast(seconds, seconds)

    def slowdown(self, types, requests_per_second, cpu_pressure):
        return PHYSICS.slowdown(types, requests_per_second, cpu_pressure)


def test_the_plan_is_the_papers_64_jobs_in_an_order_of_the_seed():
    one, two = plan_of(100_000, 1, PHYSICS), plan_of(100_000, 2, PHYSICS)
    kinds = sorted((job.type, job.input_bytes) for job in one.jobs)
    assert len(set(kinds)) == 64
    assert {size // 10**9 for _, size in kinds} == {2, 4, 6, 8, 10, 12, 14, 16}
    assert [job.type for job in one.jobs] != [job.type for job in two.jobs]
    assert plan_of(100_000, 1, PHYSICS) == one
    (service,) = one.services
    # 100k of the 290k that the paper's service bears, of the 183k that fill ours.
    assert service.rates == (pytest.approx(100 / 290 * 183_000),)
    assert 2 * JOB_MILLICORES + service.millicores == 8000


def test_shortest_first_waits_less_and_all_strategies_deploy_the_same_jobs_within_the_limit():
    models = TrainedModels(Knowing(), Knowing())
    report = run(PHYSICS, models, repeats=1, rates=(200_000,))
    rows = {row.strategy: row for row in report.rows}
    assert rows["qpsm"].waiting_seconds < min(rows["fifo"].waiting_seconds, rows["random"].waiting_seconds)
    assert 0 < rows["qpsm"].deployed == rows["fifo"].deployed == rows["random"].deployed < 64
    assert {row.violations for row in report.rows if row.strategy in (*POLICIES, ALONE)} == {0.0}
    unguarded = [rows["fifo, no guard"], rows["random, no guard"]]
    assert all(row.violations > 0.2 and row.deployed == 64 for row in unguarded), "what the guard is for"
    assert rows[ALONE].utilisation < rows["qpsm"].utilisation
    assert set(report.inactive) == set(INACTIVE)
    assert min(report.inactive.values()) > 0


def test_a_misled_model_breaks_the_limit_or_deploys_nothing_and_its_verdicts_are_counted():
    """At 200k the shifted model answers for 100k, where every job may run; the opposite refuses just those that may."""
    report = run(PHYSICS, TrainedModels(Knowing(), Knowing()), repeats=1, rates=(200_000,))
    rows = {row.strategy: row for row in report.rows}
    shifted, opposite = rows["qpsm, shifted model"], rows["qpsm, opposite model"]
    assert shifted.violations > 0.05
    assert opposite.violations > 0.05
    assert shifted.deployed > rows["qpsm"].deployed
    wrong = {one.model: one for one in report.misjudged}
    assert wrong["qpsm"] == Misjudged("qpsm", 64, 0, 0)
    breaking = wrong["qpsm, shifted model"].broke_though_accepted
    assert 0 < breaking < 64
    assert wrong["qpsm, opposite model"] == Misjudged("qpsm, opposite model", 64, breaking, 64 - breaking)


def rows_of(qpsm, fifo, random, *, deployed=64.0, violations=0.0):
    """Return the three at one rate, and the contenders that do nothing for the service or for the jobs."""
    found = (
        ("qpsm", qpsm, deployed, violations),
        ("fifo", fifo, 64.0, 0.0),
        ("random", random, 64.0, 0.0),
        ("fifo, no guard", 1.0, 64.0, 0.3),
        (ALONE, 0.0, 0.0, 0.0),
    )
    return [Row(1_000, name, waits, 0.0, jobs, over, PAPER.get(name, (None,))[0]) for name, waits, jobs, over in found]


def test_the_papers_mean_shares_are_those_of_its_table():
    shares = [1 - q / f for q, f in zip(PAPER["qpsm"], PAPER["fifo"], strict=True)]
    assert np.mean(shares) == pytest.approx(0.229, abs=0.0005)
    assert len(RATES) == len(PAPER["random"]) == 7


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (rows_of(90, 80, 200), "at 1,000 requests/s qpsm waits 90 s, fifo 80 s"),
        (rows_of(10, 80, 200, deployed=63.0), "at 1,000 requests/s qpsm deploys 63 jobs, fifo 64"),
        (
            rows_of(10, 80, 200, violations=0.1),
            "at 1,000 requests/s qpsm is over the limit 10.0% of the time, fifo 0.0%",
        ),
        # The paper's share at this rate: 1 - 164,616 / 273,878.
        (rows_of(70, 100, 100), "qpsm is below random by 30.0% on average, the paper by 39.9%"),
    ],
)
def test_each_bar_can_be_missed(rows, words):
    assert any(words in said for said in misses_of(rows, "qpsm"))
    assert misses_of(rows_of(10, 80, 200), "qpsm") == []


@pytest.mark.parametrize("contender", INACTIVE)
def test_who_changes_nothing_accepts_all_or_refuses_all_misses_a_bar(contender):
    """The last waits for nothing, since no job that it refuses counts: it leaves out jobs that the baselines deploy."""
    assert misses_of(rows_of(10, 80, 200), contender)
