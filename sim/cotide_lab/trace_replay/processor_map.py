"""Which processors each job of a schedule could have held: what a picture of a schedule needs and no policy decides.

Called by `schedule_view`. Pure. Invariant: at no time do two jobs hold one processor; a job holds as many as it asked
for from its start to its end. A job goes into the smallest gap that takes it whole, else into the lowest gaps in
pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled

_TOO_FEW: Final = -2
_PIECES_FIRST: Final = 2
"""Room for pieces of a job at first; doubled when it runs out."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Runs of neighbouring processors, by job in order of start; arrays are (p,) int64.

    Attributes
    ----------
    job : index of the job in the log.
    first, size : the first processor, from 0, and how many.
    """

    job: Integers
    first: Integers
    size: Integers


def pieces_of(start: Integers, run: Integers, demand: Integers, processors: int) -> Pieces:
    """Lay out a feasible schedule.

    Parameters
    ----------
    start, run, demand : (n,) seconds, seconds, processors.

    Raises
    ------
    ValueError
        When more processors are in use than there are: the schedule has not been checked.
    """
    end = start + run
    by_start = np.argsort(start, kind="stable")
    by_end = np.argsort(end, kind="stable")
    room = _PIECES_FIRST * len(start) + processors.bit_length()
    while True:
        job, first, size = np.empty((3, room), dtype=np.int64)
        count = _lay_out(start, end, demand, processors, by_start, by_end, job, first, size)
        if count == _TOO_FEW:
            raise ValueError("the schedule has more processors in use than there are")
        if count >= 0:
            return Pieces(job[:count].copy(), first[:count].copy(), size[:count].copy())
        room *= 2


@compiled
def _lay_out(
    start: Integers,
    end: Integers,
    demand: Integers,
    processors: int,
    by_start: Integers,
    by_end: Integers,
    piece_job: Integers,
    piece_first: Integers,
    piece_size: Integers,
) -> int:
    """Fill the pieces; return how many there are, -1 when there is no room for more, or `_TOO_FEW` processors."""
    jobs = start.shape[0]
    room = piece_job.shape[0]
    gap_first = np.empty(room + 2, np.int64)
    gap_size = np.empty(room + 2, np.int64)
    begins = np.zeros(jobs, np.int64)
    ends = np.zeros(jobs, np.int64)
    gap_first[0] = 0
    gap_size[0] = processors
    gaps = 1
    count = 0
    over = 0
    for index in range(jobs):
        job = by_start[index]
        now = start[job]
        while end[by_end[over]] <= now:
            gone = by_end[over]
            for piece in range(begins[gone], ends[gone]):
                gaps = _give_back(gap_first, gap_size, gaps, piece_first[piece], piece_size[piece])
            over += 1
        begins[job] = count
        left = demand[job]
        best = -1
        for gap in range(gaps):
            if gap_size[gap] >= left and (best < 0 or gap_size[gap] < gap_size[best]):
                best = gap
        gap = max(best, 0)
        while left > 0:
            if gaps == 0:
                return _TOO_FEW
            if count == room:
                return -1
            taken = min(left, gap_size[gap])
            piece_job[count] = job
            piece_first[count] = gap_first[gap]
            piece_size[count] = taken
            count += 1
            left -= taken
            gap_first[gap] += taken
            gap_size[gap] -= taken
            if gap_size[gap] == 0:
                for at in range(gap, gaps - 1):
                    gap_first[at] = gap_first[at + 1]
                    gap_size[at] = gap_size[at + 1]
                gaps -= 1
        ends[job] = count
    return count


@compiled
def _give_back(gap_first: Integers, gap_size: Integers, gaps: int, first: int, size: int) -> int:
    """Put processors back among the gaps, which stay in order and apart; return the number of gaps."""
    index = 0
    while index < gaps and gap_first[index] < first:
        index += 1
    touches_next = index < gaps and first + size == gap_first[index]
    if index > 0 and gap_first[index - 1] + gap_size[index - 1] == first:
        gap_size[index - 1] += size
        if touches_next:
            gap_size[index - 1] += gap_size[index]
            for at in range(index, gaps - 1):
                gap_first[at] = gap_first[at + 1]
                gap_size[at] = gap_size[at + 1]
            return gaps - 1
        return gaps
    if touches_next:
        gap_first[index] = first
        gap_size[index] += size
        return gaps
    for at in range(gaps, index, -1):
        gap_first[at] = gap_first[at - 1]
        gap_size[at] = gap_size[at - 1]
    gap_first[index] = first
    gap_size[index] = size
    return gaps + 1
