"""How many pieces of a gang fit, counted where something changed: against counting everything each time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_lab.trace_replay.kernels.on_machines.gang_counts import (
    all_fit,
    blocks_of,
    change_machine,
    fitting_of,
    gained,
    work_out_room,
)
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs


def by_definition(free, need, pieces, allowed, kind):
    """One machine after another, one piece after another."""
    placed = 0
    for at, of_kind in enumerate(kind.tolist()):
        here = 0
        while (allowed >> of_kind) & 1 and placed < pieces:
            here += 1
            if any(wanted > 0 and here * wanted > have for have, wanted in zip(free[at], need, strict=True)):
                break
            placed += 1
    return placed == pieces


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_counting_what_changed_is_counting_everything(data):
    """Up to 20 machines are three blocks; amounts fall and rise, and any job may be asked for at any time."""
    seed = data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    machines, jobs = int(rng.integers(1, 21)), 5
    shape = rng.integers(0, 3, jobs)
    kinds_of_shape, need_of_shape = rng.integers(1, 4, 3), rng.integers(0, 4, (3, 2))
    need_of_shape[need_of_shape.sum(axis=1) == 0] = (1, 0)
    need, allowed, pieces = need_of_shape[shape], kinds_of_shape[shape], rng.integers(1, 30, jobs)
    kind, free = rng.integers(0, 2, machines), rng.integers(-1, 6, (machines, 2))
    gangs = Gangs(pieces, need, shape, allowed, kind, free, np.zeros((jobs, 2), np.int64))
    clock = np.ones(1, np.int64)
    fitting = fitting_of(gangs, clock)
    for rises in data.draw(st.lists(st.booleans(), max_size=20)):
        job = int(rng.integers(jobs))
        work_out_room(fitting)
        found = all_fit(fitting, job, gangs)
        assert found == by_definition(fitting.free, need[job], pieces[job], allowed[job], kind)
        clock[0] += 1
        for at in rng.integers(0, machines, 3):
            fitting.free[at] += rng.integers(0, 4, 2) * (1 if rises else -1)
            change_machine(fitting, at)
        if rises:
            gained(fitting)


def test_blocks_hold_all_machines():
    """Eight machines a block: 1 to 8 are one, 9 are two, 1,313 are 165."""
    assert [blocks_of(machines) for machines in (1, 8, 9, 1313)] == [1, 1, 2, 165]
