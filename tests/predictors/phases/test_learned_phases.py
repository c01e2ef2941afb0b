"""Phases learned from earlier runs: scored on the next one beside simple rules, trusted, fallen back, kept."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from cotide_core.errors import ModelError
from cotide_predictors.phases.learned_phases import (
    LEAST_READINGS,
    PARTS,
    RULES,
    LearnedPhases,
    Need,
    Run,
    learned,
    run_of,
    score,
)

LARGEST = (2000, 4000)
SHUFFLE, REDUCE = (0.6, 300.0), (0.4, 1800.0)


def run(*stretches: tuple[float, float], seed: int = 0, seconds: float = 600.0, noise: float = 0.05) -> Run:
    """A run of stretches: their part of the time and their millicores; each a little longer, shorter, more or less."""
    generator = np.random.default_rng(seed)
    lengths = np.array([length for length, _ in stretches]) * generator.uniform(0.95, 1.05, len(stretches))
    ends = np.cumsum(lengths) / lengths.sum()
    indices = np.minimum(np.searchsorted(ends, (np.arange(PARTS) + 0.5) / PARTS), len(stretches) - 1)
    cpu = np.array([level for _, level in stretches])[indices] * generator.normal(1, noise, PARTS)
    return Run(seconds * generator.uniform(0.97, 1.03), LARGEST, np.column_stack([cpu, np.full(PARTS, 1000.0)]))


def taught(*runs: Run) -> LearnedPhases:
    found = LearnedPhases()
    for one in runs:
        found.add(one)
    return found


def mean(found: LearnedPhases, rule: str) -> tuple[float, float]:
    under, held = np.mean([list(one) for one in found.scores[rule]], axis=0)
    return float(under), float(held)


def test_two_phases_of_a_type_are_found_with_their_needs_and_lengths() -> None:
    first, second = learned([run(SHUFFLE, REDUCE, seed=seed) for seed in range(5)])
    assert first.seconds == pytest.approx(0.6 * 600, rel=0.1)
    assert second.seconds == pytest.approx(0.4 * 600, rel=0.1)
    # Nearly all of a stretch lies below .95 of it and a margin of .15: 300 and 1,800 with 5 % of noise.
    assert 320 < first.millicores < 420
    assert second.millicores == 2000  # never above the task's maximum


def test_learned_needs_are_trusted_when_they_hold_for_the_next_runs_and_the_simple_rules_do_worse() -> None:
    found = taught(*(run(SHUFFLE, REDUCE, seed=seed) for seed in range(8)))
    assert found.state == "trusted"
    assert len(found.needs()) == 2
    under, held = mean(found, "learned")
    assert under <= 0.05
    # .6 of the time a sixth, .4 of it everything: about half of the maximum.
    assert held == pytest.approx(0.6 * 350 / 2000 + 0.4, abs=0.08)
    assert mean(found, "maximum") == (0.0, 1.0)
    # The mean of .6 x 300 + .4 x 1800 = 900 is below what each reduce uses.
    assert mean(found, "mean")[0] == pytest.approx(0.4, abs=0.06)


def test_too_few_runs_are_not_trusted() -> None:
    found = taught(*(run(SHUFFLE, REDUCE, seed=seed) for seed in range(4)))
    assert (found.state, found.needs()) == ("learning", ())


def test_runs_that_are_never_alike_fall_back_to_the_maximum() -> None:
    generator = np.random.default_rng(1)
    parts = [tuple((0.25, level) for level in generator.permutation([200.0, 600, 1200, 1900])) for _ in range(10)]
    found = taught(*(run(*stretches, seed=seed) for seed, stretches in enumerate(parts)))
    assert (found.state, found.needs()) == ("fallen back", ())


def test_a_task_that_uses_its_maximum_all_the_time_is_left_alone() -> None:
    found = taught(*(run((1.0, 1900.0), seed=seed) for seed in range(8)))
    assert (found.state, found.needs()) == ("fallen back", ())


def test_a_changed_program_is_fallen_back_from_and_trusted_again_later() -> None:
    found = taught(*(run(SHUFFLE, REDUCE, seed=seed) for seed in range(8)))
    found.add(run(REDUCE, SHUFFLE, seed=8))
    assert found.state == "fallen back"
    for seed in range(9, 30):
        found.add(run(REDUCE, SHUFFLE, seed=seed))
    assert found.state == "trusted"


def test_another_maximum_is_another_task() -> None:
    found = taught(*(run(SHUFFLE, REDUCE, seed=seed) for seed in range(8)))
    one = run(SHUFFLE, REDUCE, seed=9)
    found.add(Run(one.seconds, (4000, 4000), one.usage))
    assert len(found.runs) == 1


def test_less_than_was_used_counts_as_under_and_beyond_the_maximum_nobody_keeps() -> None:
    usage = np.column_stack([np.full(PARTS, 3000.0), np.full(PARTS, 10.0)])
    beyond = Run(100.0, LARGEST, usage)
    assert score([Need(100, 2000, 4000)], beyond) == (0.0, 1.0)
    assert score([Need(50, 1000, 4000), Need(50, 2000, 4000)], beyond) == (0.5, 0.75)


def test_readings_become_a_run_and_too_few_do_not() -> None:
    readings = [(float(second), 100.0 if second < 60 else 900.0, float("nan")) for second in range(0, 120, 5)]
    found = run_of(readings, 120.0, LARGEST)
    assert found is not None
    assert found.usage[:20, 0].max() < 200
    assert found.usage[-20:, 0].min() > 800
    assert (found.usage[:, 1] == 4000).all()  # memory that nobody measured counts as all of it
    assert run_of(readings[: LEAST_READINGS - 1], 120.0, LARGEST) is None
    assert run_of([(one, float("inf"), 1.0) for one, _, _ in readings], 120.0, LARGEST) is None


def test_what_was_learned_is_kept_as_plain_json() -> None:
    found = taught(*(run(SHUFFLE, REDUCE, seed=seed) for seed in range(8)))
    again = LearnedPhases.from_json(json.loads(json.dumps(found.as_json())))
    assert again.state == "trusted"
    assert [need.millicores for need in again.needs()] == pytest.approx(
        [need.millicores for need in found.needs()], abs=2
    )
    assert {rule: list(again.scores[rule]) for rule in RULES} == {rule: list(found.scores[rule]) for rule in RULES}


def spoiled(what: str) -> Any:
    kept = taught(*(run(SHUFFLE, REDUCE, seed=seed) for seed in range(5))).as_json()
    match what:
        case "usage":
            kept["runs"][0]["usage"] = [[1, 2]]
        case "negative":
            kept["runs"][0]["usage"][3][0] = -1
        case "nan":
            kept["runs"][0]["usage"][3][0] = float("nan")
        case "largest":
            kept["runs"][0]["largest"] = [10**30, 1]
        case "score":
            kept["scores"]["learned"] = [[2, 0]]
        case "missing":
            del kept["scores"]
    return kept


@pytest.mark.parametrize("what", ["usage", "negative", "nan", "largest", "score", "missing"])
def test_what_a_store_spoiled_is_refused(what: str) -> None:
    with pytest.raises(ModelError):
        LearnedPhases.from_json(spoiled(what))


def test_nothing_is_refused_as_well() -> None:
    for nothing in (None, [], "text", {}):
        with pytest.raises(ModelError):
            LearnedPhases.from_json(nothing)
