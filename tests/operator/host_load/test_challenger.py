"""A challenger forecasts in shadow and takes over by merit; metrics and each node's words say who does what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from host_load_scene import MILLICORES, one_node, online, play

from cotide_operator.host_load.contenders import Predictor, sentence_of
from cotide_operator.host_load.forecasters import Forecasters
from cotide_predictors.learning.peak_challenge import SLOTS, PeakVerdict

NODES = 8


def drifting(slots: int = 700) -> np.ndarray:
    """Loads (t, 4, n) that wander slowly: whoever knows the last slot is better than any window of a day."""
    generator = np.random.default_rng(6)
    walk = np.cumsum(generator.normal(0.0, 0.004, (slots, 4, NODES)), axis=0)
    return np.clip(0.45 + walk + generator.normal(0.0, 0.002, walk.shape), 0.02, 0.98)


def after(load: np.ndarray, predictor: Predictor, challenger: Predictor | None) -> Forecasters:
    forecasters = Forecasters(NODES, predictor=predictor, challenger=challenger)
    for values in load:
        forecasters.record(values)
    return forecasters


def test_a_challenger_that_is_better_for_a_day_takes_over_with_what_it_learnt_and_the_scores_it_earned() -> None:
    load = drifting(SLOTS + 1)  # the first slot is nobody's to forecast
    found = after(load, "sigma-percentile", "mixture")
    contest = found.contest()
    assert (contest.champion, contest.challenger, contest.slots) == ("mixture", "sigma-percentile", 0)
    ((name, verdict),) = found.take_verdicts()
    assert (name, verdict.promoted, verdict.worse) == ("mixture", True, ())
    assert found.take_verdicts() == []
    alone = after(load, "mixture", None)
    for one, other in zip(found.forecasts()[0], alone.forecasts()[0], strict=True):
        np.testing.assert_array_equal(one.p90, other.p90)
    for ours, theirs in zip(found.scores(), alone.scores(), strict=True):
        np.testing.assert_array_equal(ours.coverage, theirs.coverage)


def test_a_day_less_one_slot_changes_nothing() -> None:
    load = drifting(SLOTS)
    found = after(load, "sigma-percentile", "mixture")
    assert (found.contest().champion, found.contest().slots) == ("sigma-percentile", SLOTS - 1)
    alone = after(load, "sigma-percentile", None)
    for one, other in zip(found.forecasts()[0], alone.forecasts()[0], strict=True):
        np.testing.assert_array_equal(one.p90, other.p90)


def test_a_worse_challenger_stays_in_shadow_for_ever() -> None:
    found = after(drifting(2 * SLOTS + 1), "mixture", "sigma-percentile")
    assert found.contest().champion == "mixture"
    assert [verdict.promoted for _, verdict in found.take_verdicts()] == [False, False]


def test_a_challenger_follows_nodes_that_come_and_go() -> None:
    found = after(drifting(60), "mixture", "sigma-percentile")
    found.reset([2])
    found.grow(NODES + 4)
    found.record(np.full((4, NODES + 4), 0.3))
    found.record(np.full((4, NODES + 4), 0.3))
    assert found.contest().slots == 61  # each but the first


def test_without_a_challenger_nothing_is_scored_for_one() -> None:
    contest = after(drifting(20), "mixture", None).contest()
    assert (contest.challenger, contest.slots, contest.sentence()) == (None, 0, "")
    assert np.isnan(contest.losses).all()
    assert after(drifting(5), "sigma-percentile", None).contest().sentence() == " Forecast by sigma-percentile."


async def test_a_node_and_the_metrics_say_who_forecasts_and_who_runs_in_shadow() -> None:
    scene = await one_node(online("web"))
    scene.knobs = replace(scene.knobs, predictor="sigma-percentile", challenger="mixture")
    scene.live = scene.make()
    generator = np.random.default_rng(7)
    await play(scene, (400 + np.cumsum(generator.normal(0, 3, 12))).tolist())
    message = scene.outlook().message
    assert " Forecast by sigma-percentile; mixture runs in shadow, with a loss " in message
    assert message.endswith(" slots.")
    assert scene.metric("host_load_predictor_info", predictor="sigma-percentile", role="champion") == 1
    assert scene.metric("host_load_predictor_info", predictor="mixture", role="challenger") == 1
    assert scene.metric("host_load_predictor_loss", predictor="mixture", resource="cpu") < 20 / MILLICORES


def test_what_became_of_a_challenge_is_said_in_a_sentence() -> None:
    assert sentence_of("mixture", PeakVerdict(True, 0.123, ())) == (
        "mixture takes over, its loss over the last 288 slots was 12.3 % lower"
    )
    assert sentence_of("mixture", PeakVerdict(False, 0.05, ("memory",))) == (
        "mixture stays in shadow, it was worse for memory; its loss over the last 288 slots was 5.0 % lower"
    )
    assert sentence_of("mixture", PeakVerdict(False, -0.01, ())) == (
        "mixture stays in shadow, it was not better beyond noise; its loss over the last 288 slots was 1.0 % higher"
    )


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_a_challenge_is_judged_by_the_quantile_that_is_planned_with(quantile: float) -> None:
    """By hand over the same slots: pinball losses of the forecasts that a predictor alone gives."""
    load = drifting(40)
    found = Forecasters(NODES, predictor="sigma-percentile", challenger="mixture", quantile=quantile)
    alone = Forecasters(NODES, predictor="mixture")
    name = {0.5: "p50", 0.9: "p90", 0.99: "p99"}[quantile]
    expected = []
    for slot, values in enumerate(load):
        away = values[0] - getattr(alone.forecasts()[0][0], name)
        if slot:
            expected.append(np.maximum(quantile * away, (quantile - 1) * away).mean())
        found.record(values)
        alone.record(values)
    assert found.contest().losses[1, 0] == pytest.approx(np.mean(expected))
