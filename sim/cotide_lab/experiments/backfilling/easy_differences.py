"""Two replays of one log, job by job: jobs with another start, the first divergence, and the jobs that carry the
difference.

Called by experiment `easy_variants`. Pure. Invariant: jobs are matched by their numbers in the log; jobs of only one
replay are counted, not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

TOP: Final = 10
"""Jobs that are named; chosen."""
MAX_NAMED: Final = 6
"""Job numbers listed of one moment; chosen."""


@dataclass(frozen=True, slots=True)
class MovedJob:
    """A job in both replays: seconds since the log's start, and its bounded slowdown in each."""

    number: int
    processors: int
    run: int
    submit: int
    start_before: int
    start_after: int
    slowdown_before: float
    slowdown_after: float

    @property
    def change(self) -> float:
        """Return its contribution to the sum of slowdowns."""
        return self.slowdown_after - self.slowdown_before


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first moment when a job starts in one replay and not in the other, with the other events of that moment.

    Attributes
    ----------
    job : the job; of several, the first one in the log.
    submitted, ended, planned : numbers of jobs submitted, ended and planned to end at that second in the first replay.
    """

    second: int
    job: MovedJob
    submitted: tuple[int, ...]
    ended: tuple[int, ...]
    planned: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between two replays.

    Attributes
    ----------
    common, only_before, only_after : jobs of both and of one of them.
    moved : jobs of both with another start.
    change : of the sum of slowdowns of the common jobs.
    top_share : of that change, by the ten jobs that change most; None when there is no change.
    top_of_all : of all changes taken absolutely, by the same ten.
    """

    common: int
    only_before: int
    only_after: int
    moved: int
    change: float
    top_share: float | None
    top_of_all: float | None
    top: tuple[MovedJob, ...]
    first: Divergence | None


def compare(
    jobs: BatchJobs,
    start: Integers,
    slowdown: Floats,
    other_jobs: BatchJobs,
    other_start: Integers,
    other_slowdown: Floats,
) -> Difference:
    """Return the differences of the second replay from the first; starts and slowdowns are (n,) of their jobs."""
    _, first_index, second_index = np.intersect1d(jobs.numbers, other_jobs.numbers, return_indices=True)
    # By number is not by submission in every log: the first divergence is looked for in the log's order.
    order = np.argsort(first_index, kind="stable")
    first_index, second_index = first_index[order], second_index[order]
    changes = other_slowdown[second_index] - slowdown[first_index]
    moved = other_start[second_index] != start[first_index]
    largest = np.argsort(-np.abs(changes), kind="stable")[:TOP]

    def named(index: int) -> MovedJob:
        row, other_row = int(first_index[index]), int(second_index[index])
        return MovedJob(
            int(jobs.numbers[row]),
            int(jobs.demand[row]),
            int(jobs.run[row]),
            int(jobs.submit[row]),
            int(start[row]),
            int(other_start[other_row]),
            float(slowdown[row]),
            float(other_slowdown[other_row]),
        )

    first = None
    if moved.any():
        moments = np.where(moved, np.minimum(start[first_index], other_start[second_index]), np.iinfo(np.int64).max)
        index = int(np.argmin(moments))
        first = _divergence(jobs, start, int(moments[index]), named(index))
    total, absolute = float(changes.sum()), float(np.abs(changes).sum())
    top = changes[largest]
    return Difference(
        common=len(first_index),
        only_before=len(jobs) - len(first_index),
        only_after=len(other_jobs) - len(first_index),
        moved=int(moved.sum()),
        change=total,
        top_share=float(top.sum()) / total if total else None,
        top_of_all=float(np.abs(top).sum()) / absolute if absolute else None,
        top=tuple(named(int(index)) for index in largest if changes[index]),
        first=first,
    )


def _divergence(jobs: BatchJobs, start: Integers, second: int, job: MovedJob) -> Divergence:
    def numbers(times: Integers) -> tuple[int, ...]:
        return tuple(int(number) for number in jobs.numbers[times == second][:MAX_NAMED])

    return Divergence(second, job, numbers(jobs.submit), numbers(start + jobs.run), numbers(start + jobs.request))
