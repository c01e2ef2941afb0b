"""What a replay keeps when it pauses, so that the next call of its kernel goes on where it stopped.

Called by the replay kernels and by who runs them. Models of run times are rebuilt every so many simulated hours,
outside the kernel: it returns before the first moment at or after ``until``, with every list as it stands, and is
called again.
Invariant: a replay in any number of pieces gives the schedule of one in a single piece.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

NEVER: Final = 1 << 62
"""A time that does not come."""
WAITING: Final = 0
RUNNING: Final = 1
ARRIVED: Final = 2
ROUNDS: Final = 3
SPARE: Final = 4
"""Place of the first of three numbers that differ between kernels."""


class Kept(NamedTuple):
    """The lists of a replay of n jobs; rows are touched only as far as jobs wait or run.

    Attributes
    ----------
    heap, ends : (2, n) times and jobs: events of running jobs, and running jobs by planned end.
    planned_end : (n,) seconds.
    queue, line : (2, n) keys and jobs: the waiting in one order and in another.
    keys, lines : (2, n) the second order of each kind of job, in the platform.
    volume : (n,) of the platform.
    profile : (2, 2n + 16) times and free processors of a kernel that carries its profile on.
    counts : (7,) at the places above.
    shares : (2,) running sums of the platform.
    until : (1,) seconds; the replay returns before the first moment at or after it.
    """

    heap: Integers
    ends: Integers
    planned_end: Integers
    queue: Integers
    line: Integers
    keys: Integers
    lines: Integers
    volume: Integers
    profile: Integers
    counts: Integers
    shares: npt.NDArray[np.float64]
    until: Integers


def kept_of(jobs: int) -> Kept:
    """Return the lists before the first moment of a replay; it does not pause unless ``until`` is set."""
    heap, ends, queue, line, keys, lines = (np.empty((2, jobs), np.int64) for _ in range(6))
    return Kept(
        heap=heap,
        ends=ends,
        planned_end=np.empty(jobs, np.int64),
        queue=queue,
        line=line,
        keys=keys,
        lines=lines,
        volume=np.empty(jobs, np.int64),
        profile=np.empty((2, 2 * jobs + 16), np.int64),
        counts=np.zeros(7, np.int64),
        shares=np.zeros(2),
        until=np.full(1, NEVER, np.int64),
    )
