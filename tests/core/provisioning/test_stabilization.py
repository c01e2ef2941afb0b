"""Machines go when they were not wanted for a while, and none starts for what was wanted before."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.provisioning.stabilization import Stabilization


def counts(*machines):
    return np.array(machines, dtype=np.float64)


def followed(seconds, *wanted, step=60.0):
    """Plan after plan of one type, all that is wanted comes at once; return what there is after each."""
    window, on, found = Stabilization(seconds), counts(0), []
    for index, count in enumerate(wanted):
        window, on = window.after(index * step, counts(count), on)
        found.append(int(on[0]))
    return found


def test_machines_stay_for_the_window_after_they_were_wanted_and_then_fall_to_what_was_wanted_since():
    assert followed(180.0, 5, 1, 2, 1, 1, 1) == [5, 5, 5, 2, 2, 1]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_without_a_window_or_in_one_as_short_as_a_step_they_go_at_once(seconds):
    assert followed(seconds, 5, 1, 2) == [5, 1, 2]


def test_none_is_started_for_what_was_wanted_before():
    """Three were wanted and only one came; then one is wanted."""
    window, _ = Stabilization(600.0).after(0.0, counts(3, 1), counts(0, 1))
    _, kept = window.after(60.0, counts(1, 0), counts(1, 1))
    assert kept.tolist() == [1, 1]


def test_what_is_remembered_is_bounded_by_the_window():
    window = Stabilization(600.0)
    for index in range(100):
        window, _ = window.after(index * 60.0, counts(1), counts(1))
    assert len(window.lately) == 10
