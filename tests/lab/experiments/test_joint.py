"""Experiment joint: every contender plays the same seed, and a bar that was missed is said."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_lab.experiments.joint.contest import CONTENDERS, FIGURES, OURS, Contender, Row, missed, run
from cotide_sim.cluster.slot_forecasts import PeakRule


def row(name: str, *, over: float, overloads: float = 0.0, jobs: float = 100.0) -> Row:
    means = dict.fromkeys(FIGURES, 0.0) | {
        "qos_violation_ratio": over,
        "overload_slots": overloads,
        "jobs_finished": jobs,
    }
    return Row(name, "", means, dict.fromkeys(FIGURES, 0.0), ())


QPSM, HIERARCHICAL = row("qpsm", over=0.02, overloads=9), row("hierarchical", over=0.3, overloads=2, jobs=90.0)


def test_who_reaches_every_bar_misses_nothing() -> None:
    assert missed([row(OURS, over=0.01, overloads=2), QPSM, HIERARCHICAL, row("reserve 10%", over=0.3)]) == []


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        (row(OURS, over=0.011), "more than half of qpsm's"),
        (row(OURS, over=0.01, overloads=2.5), "overload slots"),
        (row(OURS, over=0.01, jobs=99.0), "jobs finished"),
    ],
)
def test_each_bar_is_judged(ours: Row, word: str) -> None:
    (sentence,) = missed([ours, QPSM, HIERARCHICAL])
    assert word in sentence


def test_a_reserve_that_does_as_much_at_no_more_violations_is_named() -> None:
    ours = row(OURS, over=0.01)
    assert missed([ours, QPSM, HIERARCHICAL, row("guarded reserve 10%", over=0.009, jobs=99.0)]) == []
    (sentence,) = missed([ours, QPSM, HIERARCHICAL, row("guarded reserve 10%", over=0.009)])
    assert sentence.startswith("guarded reserve 10% finishes 100 jobs")


def test_the_rows_that_could_embarrass_us_are_there() -> None:
    wanted = {OURS, "qpsm", "hierarchical", "fifo-guarded", "random-guarded", "fifo"}
    assert wanted | {f"reserve {share}%" for share in (5, 10, 15, 20)} <= set(CONTENDERS)


def test_intervals_of_eleven_seeds_are_students_as_those_of_fewer() -> None:
    """Values of deviation 1 with n seeds: t / sqrt(n); 2.228 for 10 degrees of freedom, 2.262 for 9."""
    for seeds, student in ((10, 2.26), (11, 2.228)):
        values = np.arange(seeds, dtype=np.float64)
        values = (values - values.mean()) / values.std(ddof=1)
        contenders = {"reserve 10%": Contender("hierarchical", PeakRule(reserve_share=0.1))}
        kept = {(seed, "reserve 10%"): dict.fromkeys(FIGURES, value) for seed, value in enumerate(values.tolist())}
        (found,) = run(None, seeds=range(seeds), contenders=contenders, kept=kept).rows
        assert found.intervals["jobs_finished"] == pytest.approx(student / np.sqrt(seeds), rel=1e-3)


def test_a_small_run_has_all_figures_of_each_seed_and_is_the_same_again() -> None:
    contenders = {
        OURS: Contender("predictive", PeakRule(), 0.5),
        "reserve 10%": Contender("hierarchical", PeakRule(reserve_share=0.1)),
    }
    reports = [run(None, seeds=(0, 1), nodes=4, seconds=120.0, contenders=contenders) for _ in range(2)]
    assert reports[0] == reports[1]
    for found in reports[0].rows:
        assert len(found.by_seed) == 2
        for figure in FIGURES:
            assert found.means[figure] == pytest.approx(sum(one[figure] for one in found.by_seed) / 2)
