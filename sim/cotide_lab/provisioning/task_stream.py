"""Tasks as columns: what a park of machines is to run.

Made by `traces.jobs` readers through the capacity experiment; read by `park`. Invariant: sorted by arrival; all numbers
finite, run times above 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TaskStream:
    """n tasks.

    Attributes
    ----------
    name : where they are from.
    resources : names of the R resources, cpu first.
    arrival : (n,) seconds, rising.
    seconds : (n,) run times, > 0.
    need : (n, R) in the unit of the machines.
    priority : (n,) the trace's own.
    devices : (n, 2) how many devices of its machine a task takes, such as GPUs, and how much of each, from 0 to 1; None
        where no task takes any.
    """

    name: str
    resources: tuple[str, ...]
    arrival: Floats
    seconds: Floats
    need: Floats
    priority: Floats
    devices: Floats | None = None

    def __post_init__(self) -> None:
        for name, column in (("arrival", self.arrival), ("seconds", self.seconds), ("need", self.need)):
            if not np.isfinite(column).all():
                raise InputError("holds a number that is not finite", file=self.name, field=name)
        if len(self.arrival) and (np.diff(self.arrival).min(initial=0) < 0 or self.seconds.min() <= 0):
            raise InputError("tasks must be sorted by arrival and run longer than 0 s", file=self.name)

    def __len__(self) -> int:
        return len(self.arrival)

    def between(self, first: float, last: float) -> TaskStream:
        """Return the tasks that arrive in [first, last), with arrivals counted from ``first``."""
        rows = slice(*np.searchsorted(self.arrival, (first, last)))
        return TaskStream(
            self.name,
            self.resources,
            self.arrival[rows] - first,
            self.seconds[rows],
            self.need[rows],
            self.priority[rows],
            None if self.devices is None else self.devices[rows],
        )

    def those(self, kept: NDArray[np.bool_]) -> TaskStream:
        """Return some of the tasks."""
        return TaskStream(
            self.name,
            self.resources,
            self.arrival[kept],
            self.seconds[kept],
            self.need[kept],
            self.priority[kept],
            None if self.devices is None else self.devices[kept],
        )
