"""The least energy of a stretch: it is what machines need by hand, and no controller comes below it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotide_core.provisioning.capacity_model import MachineType
from cotide_core.provisioning.power import PowerCurve
from cotide_lab.experiments.capacity.controllers import Packing, Provisioning, Unchanging
from cotide_lab.experiments.capacity.energy_floor import energy_floor, line_below, mean_needs
from cotide_lab.experiments.capacity.learned import learn
from cotide_lab.experiments.capacity.run import run_controller
from cotide_lab.experiments.capacity.scenarios import scenario
from cotide_lab.provisioning.task_stream import TaskStream


@pytest.fixture(scope="module")
def scene():
    return scenario("generated", None, 1, score_hours=1)


def one_hour(scene, arrival, seconds, need):
    """Return an hour without a warm-up, on small machines of 50 to 100 W and wide ones of 300 to 500 W."""
    small = MachineType("small", (0.5, 0.5), 4, PowerCurve((50.0, 100.0)))
    wide = MachineType("wide", (1.0, 1.0), 4, PowerCurve((300.0, 500.0)))
    count = len(arrival)
    run = TaskStream("by hand", ("cpu", "memory"), *map(np.array, (arrival, seconds, need)), np.zeros(count))
    return replace(scene, run=run, machines=(small, wide), warm_up_seconds=0.0, score_seconds=3600.0)


def test_half_an_hour_of_a_full_machine_needs_half_of_its_hour(scene):
    assert energy_floor(one_hour(scene, [600.0], [1800.0], [[0.5, 0.1]])) == pytest.approx(0.05)


def test_what_only_the_wide_type_holds_is_paid_at_its_price_and_a_part_of_it_is_enough(scene):
    """0.6 of the wide machine: 0.6 of its 300 W idle, and 0.6 of the 200 W that its load adds."""
    assert energy_floor(one_hour(scene, [0.0], [3600.0], [[0.6, 0.6]])) == pytest.approx(0.3)


def test_each_type_is_given_the_tasks_whose_mix_suits_it(scene):
    """Two tasks fill the type that has more cpu, two the other: 200 W. In equal mixes it would be three machines."""
    more_cpu = MachineType("more cpu", (1.0, 0.5), 4, PowerCurve((100.0, 100.0)))
    more_memory = MachineType("more memory", (0.5, 1.0), 4, PowerCurve((100.0, 100.0)))
    needs = [[0.5, 0.25], [0.25, 0.5], [0.5, 0.25], [0.25, 0.5]]
    hour = replace(one_hour(scene, [0.0] * 4, [3600.0] * 4, needs), machines=(more_cpu, more_memory))
    assert energy_floor(hour) == pytest.approx(0.2)


def test_needs_are_those_within_each_step(scene):
    _, need = mean_needs(one_hour(scene, [150.0, 3500.0], [300.0, 9000.0], [[0.5, 0.1], [0.2, 0.2]]))
    total = need.sum(axis=1)
    assert total[:2, 0] == pytest.approx([0.25, 0.25])
    assert total[-1].tolist() == pytest.approx([0.2 / 3, 0.2 / 3])
    assert need[2:-1].max() == pytest.approx(0.0)


def test_the_line_of_a_bent_curve_lies_below_it_and_meets_it_at_full_load():
    idle, slope = line_below(PowerCurve((100.0, 120.0, 200.0)))
    assert (idle, slope) == (40.0, 160.0)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_controller_comes_below_it(seed):
    scene = scenario("generated", None, seed, score_hours=1)
    known, floor = learn(scene, seed), energy_floor(scene)
    makes = (Provisioning(scene, known, source="oracle"), Packing(scene, known), Unchanging(scene))
    needed = [run_controller(scene, known, make, "any", 1.0).energy_kwh for make in makes]
    assert 0 < floor <= min(needed)
