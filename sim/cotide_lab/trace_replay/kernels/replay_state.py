"""What a replay works on: the jobs of a log in columns, and the lists that it keeps from moment to moment.

Handed over by the caller of a replay to `event_loop` and, from there, to the steps of its rule. The state outlasts a
pause: models of run times are rebuilt after some simulated hours, outside the kernel. The kernel returns before the
first moment at or after ``until``, leaves every list as it is, and is called again. Invariant: a replay in any number
of pieces gives the schedule of one in a single piece.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers

NEVER: Final = 1 << 62
"""A time that does not come."""
WAITING: Final = 0
"""Index of the number of jobs that wait, in the first list of waiting jobs."""
RUNNING: Final = 1
ARRIVED: Final = 2
ROUNDS: Final = 3
TAKEN: Final = 4
"""Index of the processors that running jobs hold."""
WAKE: Final = 5
"""Index of the earliest reserved start, -1 without: a moment at which there is a round even if nothing happens."""
ENDED: Final = 6
"""Index of how many jobs ended in this round, or exceeded their planned time."""
NEW_FROM: Final = 7
"""Index of the first job that was submitted in this round; `ARRIVED` where there is none."""
SPARE: Final = 8
"""Index of the first of eight numbers that differ between rules."""


class Jobs(NamedTuple):
    """The n jobs of a log, and what a replay finds for each: (n,) int64.

    Attributes
    ----------
    submit, run, demand, request : seconds or processors; submit never falls, 1 <= demand <= capacity, run >= 1.
    user : numbers from 0, or -1 for unknown.
    forecast : seconds; read if given, else filled with what was forecast at submission.
    start : out.
    promise : out, where the rule promises anything.
    """

    submit: Integers
    run: Integers
    demand: Integers
    request: Integers
    user: Integers
    forecast: Integers
    start: Integers
    promise: Integers


class ReplayState(NamedTuple):
    """The lists of a replay of n jobs; rows are touched only as far as jobs wait or run.

    Attributes
    ----------
    heap, ends : (2, n) times and jobs: events of running jobs, and running jobs by planned end.
    planned_end : (n,) seconds.
    queues : (2, 2, n) keys and jobs of the waiting, in one order and in another.
    profile : (2, 2n + 16) times and free processors of a rule that plans ahead.
    counts : (16,) at the indices above.
    until : (1,) seconds; the replay returns before the first moment at or after it.
    """

    heap: Integers
    ends: Integers
    planned_end: Integers
    queues: Integers
    profile: Integers
    counts: Integers
    until: Integers


def new_replay_state(jobs: int) -> ReplayState:
    """Return the lists before the first moment of a replay; it does not pause unless ``until`` is set."""
    heap, ends = (np.empty((2, jobs), np.int64) for _ in range(2))
    counts = np.zeros(SPARE + 8, np.int64)
    counts[WAKE] = -1
    return ReplayState(
        heap=heap,
        ends=ends,
        planned_end=np.empty(jobs, np.int64),
        queues=np.empty((2, 2, jobs), np.int64),
        profile=np.empty((2, 2 * jobs + 16), np.int64),
        counts=counts,
        until=np.full(1, NEVER, np.int64),
    )
