"""The capacity experiment: what contenders see, and what they may do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotide_lab.experiments.capacity.contenders import DEFAULT, contenders
from cotide_lab.experiments.capacity.controllers import Provisioning, Unchanging
from cotide_lab.experiments.capacity.learned import learn
from cotide_lab.experiments.capacity.run import run_controller
from cotide_lab.experiments.capacity.scenarios import scenario
from cotide_predictors.capacity.calibration import occupancy_peaks


@pytest.fixture(scope="module")
def scene():
    return scenario("generated", None, 1, score_hours=1)


def test_yesterday_is_a_day_of_steps_back_also_where_no_task_came_at_the_end(scene):
    early = scene.train.those(scene.train.arrival < scene.train_seconds - 700.0)
    known = learn(replace(scene, train=early), 1)
    label = known.classes.at_arrival(early.need, early.priority)
    sizes, steps = len(known.classes.sizes_), round(scene.train_seconds / 300.0)
    peaks = occupancy_peaks(label, early.arrival, early.seconds, sizes, 300.0, steps)
    assert steps == 288
    assert known.yesterday.tolist() == peaks[: len(known.yesterday)].tolist()


def test_the_default_is_ours_at_the_service_level_that_is_asked_for_and_rivals_keep_their_settings():
    low, high = contenders(0.1), contenders(0.95)
    assert (low.pop(DEFAULT).settings, high.pop(DEFAULT).settings) == ((0.1,), (0.95,))
    assert {name: one.settings for name, one in low.items()} == {name: one.settings for name, one in high.items()}


def test_a_higher_service_level_keeps_more_machines_on(scene):
    known = learn(scene, 1)
    outcomes = [
        run_controller(scene, known, Provisioning(scene, known, level=level), "", level) for level in (0.1, 0.95)
    ]
    assert sum(outcomes[0].machines) < sum(outcomes[1].machines)


def test_later_prices_are_not_known_before_they_come(scene):
    price = scene.price.copy()
    price[2:] = 99.0
    changed = replace(scene, price=price)
    assert changed.foreseen_price(3600.0, 24).tolist() == scene.foreseen_price(3600.0, 24).tolist()
    assert changed.foreseen_price(7200.0, 24)[0] == 99.0
    # A tenth of the way back to the mean of the week each quarter of an hour.
    history = np.concatenate((scene.price_before, scene.price[:1]))[-168:]
    expected = history.mean() + 0.9 * (history[-1] - history.mean())
    assert scene.foreseen_price(0.0, 4)[3] == pytest.approx(expected)


def test_plain_harmony_carries_out_its_plan_and_nothing_else(scene):
    known = learn(scene, 1)
    plain, ours = Provisioning(scene, known, level=0.5, plain=True), Provisioning(scene, known, level=0.5)
    outcomes = [run_controller(scene, known, one, "any", 0.5) for one in (plain, ours)]
    wanted = [plan.machines[0].sum() for plan in plain.plans]
    assert len(wanted) == len(ours.plans)
    assert outcomes[0].delay_p99 >= outcomes[1].delay_p99, "what waits has a machine at once in ours"


def test_a_class_that_the_plan_leaves_out_has_turns_on_the_machines_that_are_wanted(scene):
    known = learn(scene, 1)
    seen = run_controller(scene, known, Provisioning(scene, known, level=0.25), "any", 0.25)
    assert seen.without_turns < 0.02


def test_the_share_in_use_is_that_of_the_scarcest_resource(scene):
    known = learn(scene, 1)
    seen = run_controller(scene, known, Unchanging(scene), "any", 1.0)
    run, first = scene.run, scene.warm_up_seconds
    last = first + scene.score_seconds
    inside = np.clip(np.minimum(run.arrival + run.seconds, last) - np.maximum(run.arrival, first), 0.0, None)
    capacity = sum(kind.count * np.array(kind.capacity) for kind in scene.machines)
    mean = (run.need * inside[:, None]).sum(axis=0) / scene.score_seconds / capacity
    # The park is looked at once a step, the sum is over all of time.
    assert seen.in_use == pytest.approx(mean.max(), rel=0.15)
