"""A park of machines that go on and off under a stream of tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_core.provisioning.capacity_model import MachineType
from cotide_core.provisioning.power import PowerCurve
from cotide_lab.provisioning import park_kernel as kernel
from cotide_lab.provisioning.park import MachinePark
from cotide_lab.provisioning.task_stream import TaskStream
from cotide_predictors.capacity.calibration import occupancy_peaks

CURVE = PowerCurve((100.0, 200.0))


def stream(rows, devices=None):
    """Tasks of (arrival, seconds, cpu, memory)."""
    table = np.array(rows, dtype=float).reshape(-1, 4)
    columns = table[:, 0], table[:, 1], table[:, 2:], np.zeros(len(table))
    return TaskStream("test", ("cpu", "memory"), *columns, None if devices is None else np.array(devices, dtype=float))


def park(rows, *, counts=(2,), capacity=((1.0, 1.0),), boot=60.0, labels=None, asked=None, devices=()):
    types = tuple(
        MachineType(f"type-{number}", tuple(size), count, CURVE)
        for number, (size, count) in enumerate(zip(capacity, counts, strict=True))
    )
    tasks = stream(rows, asked)
    label = np.zeros(len(tasks), dtype=np.int64) if labels is None else np.array(labels)
    classes = int(label.max(initial=0)) + 1
    return MachinePark(
        types,
        tasks,
        label,
        boot_seconds=[boot] * len(types),
        sizes=np.full((classes, 2), 0.5),
        shares=np.full(classes, 1.0 / classes),
        devices=devices,
    )


@pytest.mark.parametrize("rule", [kernel.FIRST_FIT, kernel.ROUND_ROBIN, kernel.POWER_AND_FRAGMENTS])
def test_a_share_of_a_device_lies_on_one_device_and_several_are_whole_ones(rule):
    """One machine of two devices, up at 60 s. Two tasks hold 0.6 of one each until 160 and 260 s.

    The third's 0.6 is free on no single device before 160 s. The fourth waits for two whole ones, free at 260 s.
    """
    rows = [(0.0, 100.0, 0.1, 0.1), (0.0, 200.0, 0.1, 0.1), (1.0, 50.0, 0.1, 0.1), (2.0, 10.0, 0.1, 0.1)]
    one = park(rows, counts=(1,), asked=[(1, 0.6), (1, 0.6), (1, 0.6), (2, 1.0)], devices=(2,))
    one.use_rule(rule, np.ones((1, 1)))
    one.set_targets(np.array([1.0]))
    one.run_until(1000.0)
    assert (one.tasks.started / 1000.0).tolist() == [60.0, 60.0, 160.0, 260.0]
    assert one.tasks.held.tolist() == [1, 2, 1, 3]
    assert one.machines.devices.tolist() == [[1.0, 1.0]]


def test_a_task_waits_for_the_boot_and_energy_is_that_of_the_curve():
    one = park([(0.0, 100.0, 0.5, 0.1)])
    one.set_targets(np.array([1.0]))
    one.run_until(300.0)
    assert one.delays(0.0, 1.0).tolist() == [60.0]
    # 300 s at 100 W, and 100 s at half load, 50 W more.
    assert one.kilowatt_hours() * 3.6e6 == pytest.approx(300 * 100 + 100 * 50)


def test_a_machine_with_a_task_goes_off_only_when_the_task_has_ended():
    one = park([(61.0, 1000.0, 0.5, 0.1), (400.0, 10.0, 0.1, 0.1)])
    one.set_targets(np.array([1.0]))
    one.run_until(300.0)
    one.set_targets(np.array([0.0]))
    one.run_until(600.0)
    assert one.counts(kernel.DRAINING).tolist() == [1]
    assert one.queues.length.tolist() == [1], "a machine that drains takes no more"
    one.run_until(1200.0)
    assert one.counts(kernel.OFF).tolist() == [2]
    assert one.tasks.started.tolist() == [61_000, -1]


def test_a_draining_machine_is_taken_back_before_another_boots():
    one = park([(61.0, 1000.0, 0.5, 0.1)])
    one.set_targets(np.array([1.0]))
    one.run_until(300.0)
    one.set_targets(np.array([0.0]))
    one.set_targets(np.array([1.0]))
    assert one.counts(kernel.UP).tolist() == [1]
    assert one.switched_on.tolist() == [1], "it was never off"


def test_a_machine_that_was_switched_off_while_it_booted_never_comes_up():
    one = park([(0.0, 10.0, 0.5, 0.1)])
    one.set_targets(np.array([1.0]))
    one.run_until(30.0)
    one.set_targets(np.array([0.0]))
    one.run_until(300.0)
    assert one.counts(kernel.UP).tolist() == [0]
    assert one.queues.length.tolist() == [1]


def test_one_that_fits_nowhere_does_not_hold_up_those_behind_it():
    one = park([(100.0, 10.0, 5.0, 5.0), (101.0, 10.0, 0.5, 0.5)])
    one.set_targets(np.array([1.0]))
    one.run_until(300.0)
    assert one.tasks.started.tolist() == [-1, 101_000]


def test_a_task_that_ends_when_the_step_does_still_runs():
    one = park([(0.0, 240.0, 0.5, 0.1)])
    one.set_targets(np.array([1.0]))
    one.run_until(300.0)  # 60 s of booting and 240 s of work.
    labels, ages = one.running()
    assert (labels.tolist(), ages.tolist()) == ([0], [240.0])
    one.run_until(300.001)
    assert one.running()[0].tolist() == []


def test_turns_go_to_types_by_their_weights():
    one = park([(100.0 + n, 500.0, 0.01, 0.01) for n in range(9)], counts=(1, 1), capacity=((1.0, 1.0), (1.0, 1.0)))
    one.use_rule(kernel.ROUND_ROBIN, np.array([[2 / 3, 1 / 3]]))
    one.set_targets(np.array([1.0, 1.0]))
    one.run_until(300.0)
    assert np.bincount(one.tasks.machine).tolist() == [6, 3]


def test_packing_takes_the_machine_whose_power_rises_least():
    types = (MachineType("dear", (1.0, 1.0), 1, PowerCurve((10.0, 400.0, 410.0))),
             MachineType("even", (1.0, 1.0), 1, PowerCurve((10.0, 205.0, 410.0))))  # fmt: skip
    one = MachinePark(
        types,
        stream([(100.0, 10.0, 0.25, 0.25)]),
        np.zeros(1, dtype=np.int64),
        boot_seconds=(1.0, 1.0),
        sizes=np.array([[0.25, 0.25]]),
        shares=np.ones(1),
    )
    one.use_rule(kernel.POWER_AND_FRAGMENTS)
    one.set_targets(np.array([1.0, 1.0]))
    one.run_until(200.0)
    assert one.tasks.machine.tolist() == [1]


def test_peaks_are_the_most_at_one_time_without_waiting():
    rows = [(0.0, 10.0, 0, 0), (5.0, 10.0, 0, 0), (10.0, 100.0, 0, 0), (130.0, 5.0, 0, 0)]
    tasks = stream(rows)
    peaks = occupancy_peaks(np.zeros(4, dtype=np.int64), tasks.arrival, tasks.seconds, 1, 60.0, 3)
    # 0-60: two at once (the first ends when the third comes); 60-120: the long one; 120-180: the last.
    assert peaks[:, 0].tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    "rows",
    [[(5.0, 1.0, 0, 0), (1.0, 1.0, 0, 0)], [(0.0, 0.0, 0, 0)], [(0.0, np.nan, 0, 0)]],
    ids=["order", "0 s", "nan"],
)
def test_a_stream_that_makes_no_sense_is_refused(rows):
    with pytest.raises(InputError):
        stream(rows)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.floats(0, 2000), st.floats(0.1, 900), st.floats(0, 0.9), st.floats(0, 0.9)),
        min_size=2,
        max_size=60,
    ),
    targets=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8),
    rule=st.sampled_from([kernel.FIRST_FIT, kernel.ROUND_ROBIN, kernel.POWER_AND_FRAGMENTS]),
)
def test_no_machine_ever_holds_more_than_it_has_and_no_task_is_lost(rows, targets, rule):
    one = park(
        sorted(rows),
        counts=(3, 3),
        capacity=((1.0, 1.0), (0.5, 0.9)),
        labels=[number % 2 for number in range(len(rows))],
    )
    one.use_rule(rule, np.array([[0.5, 0.5], [1.0, 0.0]]))
    for step, wanted in enumerate(targets, start=1):
        one.set_targets(np.array(wanted, dtype=float))
        one.run_until(300.0 * step)
        assert one.machines.free.min() >= -1e-6
        running, _ = one.running()
        came = one.queues.scalar[1]
        assert len(running) + one.queues.length.sum() + one.queues.scalar[2] == came
        off = one.machines.state == kernel.OFF
        assert (one.machines.held[off] == 0).all()
