"""Plans of the experiments are the same on a machine that is busy: no clock ends a solver's search."""

from __future__ import annotations

import math

from cotide_lab.experiments.capacity.controllers import Provisioning
from cotide_lab.experiments.capacity.learned import learn
from cotide_lab.experiments.capacity.scenarios import scenario
from cotide_lab.experiments.placement.controllers import PredictiveControl
from cotide_lab.experiments.placement.scenarios import placement_scenario
from cotide_solvers import clarabel, highs


def test_no_plan_of_an_experiment_ends_by_the_clock(monkeypatch):
    limits = []
    for module, name in ((highs, "HighsSolver"), (clarabel, "ClarabelSolver")):
        made = getattr(module, name).__init__

        def kept(self, *, time_limit_seconds=60.0, made=made, **rest):
            limits.append(time_limit_seconds)
            made(self, time_limit_seconds=time_limit_seconds, **rest)

        monkeypatch.setattr(getattr(module, name), "__init__", kept)
    scene = scenario("generated", None, 1, score_hours=1)
    Provisioning(scene, learn(scene, 1))
    PredictiveControl(placement_scenario("flat", None, 1))
    assert limits == [math.inf] * 3
