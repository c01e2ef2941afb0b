"""Jobs in columns, and the order of the events for a forecaster.

Built by readers of logs and by the engine; every module of this package takes these arrays. Invariant: in an event
order a completion comes before exactly those submissions that are later than it. A walk along the order therefore
cannot look ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats

Ints = NDArray[np.int64]

SHORTEST_SECONDS: Final = 1.0
"""Logs count whole seconds: a run of 0 s means less than one, and eq. 4.2 needs a positive run (chosen)."""


@dataclass(frozen=True, slots=True)
class JobTable:
    """The columns of n jobs, known at submission.

    Attributes
    ----------
    submit_seconds : (n,) rising.
    requested_seconds : (n,) the user's limit; nan where none was given.
    processors : (n,) requested, >= 1.
    user, group, executable, queue : (n,) numbers of no order; -1 is unknown.
    """

    submit_seconds: Floats
    requested_seconds: Floats
    processors: Floats
    user: Ints
    group: Ints
    executable: Ints
    queue: Ints

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in self.__dataclass_fields__}
        if len(lengths) != 1:
            raise ValueError(f"the columns of a job table differ in length: {sorted(lengths)}")
        if np.any(np.diff(self.submit_seconds) < 0):
            raise ValueError("submit_seconds must rise")

    def __len__(self) -> int:
        return len(self.submit_seconds)

    def rows(self, chosen: slice) -> JobTable:
        """Return the chosen rows, as views."""
        return JobTable(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class RunLog:
    """Jobs with how they went.

    Attributes
    ----------
    jobs : the n jobs.
    run_seconds : (n,) >= `SHORTEST_SECONDS`.
    finish_seconds : (n,) when the run time became known.
    """

    jobs: JobTable
    run_seconds: Floats
    finish_seconds: Floats

    def __len__(self) -> int:
        return len(self.jobs)


def event_order(submit_seconds: Floats, finish_seconds: Floats) -> Ints:
    """Return (2n,) events in time: ``j`` is the submission of job j, ``~j`` its completion.

    At the same second submissions come first: a forecast uses only jobs that finished *before* the submission.
    """
    count = len(submit_seconds)
    times = np.concatenate([submit_seconds, finish_seconds])
    kinds = np.repeat(np.array([0, 1]), count)
    jobs = np.arange(count, dtype=np.int64)
    order = np.lexsort((np.tile(jobs, 2), kinds, times))
    return np.concatenate([jobs, ~jobs])[order]


def codes(*columns: Ints | Floats) -> Ints:
    """Return (n,) numbers from 0, the same for two rows exactly when all their columns agree (nan agrees with nan)."""
    found = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, inverse = np.unique(column, return_inverse=True)
        _, found = np.unique(found * (len(inverse) + 1) + inverse, return_inverse=True)
    return found.astype(np.int64)
