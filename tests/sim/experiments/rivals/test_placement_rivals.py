"""The placement experiment: rivals with the same knobs, and contenders that do nothing."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from cotide_core.errors import InputError
from cotide_sim.experiments.placement import experiment as placement_experiment
from cotide_sim.experiments.placement.contenders import CONTENDERS, GREEDY, INACTIVE, ORACLE, OWN
from cotide_sim.experiments.placement.controllers import Nearest, PredictiveControl, Unmoved
from cotide_sim.experiments.placement.experiment import run, run_week
from cotide_sim.experiments.placement.scenarios import PlacementScenario, placement_scenario

STEPS = 24


@cache
def flat() -> PlacementScenario:
    return placement_scenario("flat", None, 1)


def test_each_policy_chooses_from_as_many_settings_as_ours() -> None:
    sizes = {policy: len({knob.name for knob in knobs}) for policy, knobs in CONTENDERS.items()}
    assert sizes == {policy: 1 if policy in (ORACLE, *INACTIVE) else 6 for policy in CONTENDERS}
    bands = {policy: sorted(knob.name.rpartition(" ")[2] for knob in CONTENDERS[policy]) for policy in (OWN, GREEDY)}
    assert bands[OWN] == bands[GREEDY] == ["0", "0", "0.08", "0.08", "0.2", "0.2"]


def test_greedy_with_hysteresis_leaves_alone_what_greedy_without_changes() -> None:
    moved = [
        run_week(
            flat(), PredictiveControl(flat(), horizon=1, reconfiguring=False, band=band), GREEDY, STEPS
        ).reconfigurations
        for band in (0.0, 0.5)
    ]
    assert moved[1] < moved[0]


def test_thresholds_let_servers_go_when_more_than_the_idle_share_of_them_is() -> None:
    scene = flat()
    (needed,) = (Nearest(scene, reserve=1.0).decide(0, np.zeros(len(scene.model.centres)))[0],)
    # A tenth above what is needed: kept where a fifth may idle, let go where a hundredth may.
    more = np.ceil(1.1 * needed)
    assert Nearest(scene, reserve=1.0, idle=0.2).decide(0, more)[0].tolist() == more.tolist()
    assert Nearest(scene, reserve=1.0, idle=0.01).decide(0, more)[0].tolist() == needed.tolist()


def test_who_refuses_each_request_pays_for_each_and_moves_nothing() -> None:
    outcome = run_week(flat(), Unmoved(flat(), share=0.0), "refuse all", STEPS)
    # A hundred-thousandth of money a request (`scenarios.LEVEL`), and quarters of an hour.
    asked = 900.0 * flat().demand[:STEPS].sum()
    assert outcome.cost == pytest.approx(1e-5 * asked)
    assert (outcome.unserved, outcome.violations, outcome.reconfigurations) == (1.0, 1.0, 0.0)


def test_contenders_that_do_nothing_miss_bars_and_knobs_are_chosen_on_seeds_that_are_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement_experiment, "DAY_STEPS", 8)
    monkeypatch.setattr(placement_experiment, "TUNING_STEPS", 2)
    # Two thresholds to choose from, and of all others one setting: networks are slow to learn.
    few = {policy: knobs[: 2 if policy == "nearest" else 1] for policy, knobs in CONTENDERS.items()}
    monkeypatch.setattr(placement_experiment, "CONTENDERS", few)
    (week,) = run(["flat"], [1], data=None, days=1).weeks
    assert set(week.inactive) == set(INACTIVE)
    assert min(week.inactive.values()) > 0
    chosen = {row.policy: row.knob for row in week.policies}
    assert chosen["nearest"] in [knob.name for knob in few["nearest"]]
    assert chosen["greedy"] == few["greedy"][0].name
    with pytest.raises(InputError, match="chosen on seed 101"):
        run(["flat"], [101], data=None)
