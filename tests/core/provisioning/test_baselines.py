"""The simple rules that capacity plans are compared with."""

from __future__ import annotations

import numpy as np

from cotide_lab.provisioning.baselines import Fleet, reactive

CAPACITY = np.array([[0.5, 0.25], [0.5, 1.0]])
"""The first type is the more efficient one and holds little memory."""
POWER = np.array([50.0, 90.0])


def fleet(on):
    return Fleet(CAPACITY, np.array([10.0, 10.0]), np.array(on, dtype=float), np.array([0, 1]))


def test_thresholds_start_a_type_that_holds_the_task_that_waits():
    wide = np.array([[0.1, 0.8]])
    assert reactive(fleet([4, 0]), np.array([1.0, 0.5]), wide, POWER).tolist() == [4, 1]
    small = np.array([[0.1, 0.1]])
    assert reactive(fleet([4, 0]), np.array([1.0, 0.5]), small, POWER).tolist() == [5, 0]


def test_thresholds_add_above_seventy_per_cent_and_drop_below_forty():
    none = np.zeros((0, 2))
    assert reactive(fleet([4, 0]), np.array([1.5, 0.5]), none, POWER).tolist() == [5, 0]
    assert reactive(fleet([4, 0]), np.array([1.0, 0.5]), none, POWER).tolist() == [4, 0]
    assert reactive(fleet([4, 1]), np.array([0.5, 0.2]), none, POWER).tolist() == [4, 0]
    # A reserve of 1.25 adds above 56 %.
    assert reactive(fleet([4, 0]), np.array([1.2, 0.5]), none, POWER, 1.25).tolist() == [5, 0]
