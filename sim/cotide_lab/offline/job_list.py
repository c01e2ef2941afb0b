"""The instance every algorithm of this package takes: jobs known at time 0, machines all alike.

Called by the algorithms, the bounds and the experiment. First step of the flow. Invariant: all numbers are integers, so
that feasibility and bounds are exact; fractions of a machine are written by choosing a larger capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_core.units import counted

TOTAL_MAX: Final = 1 << 62
"""Bound of the sums of sizes and of volumes: they must stay exact in 64 bits."""


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs of one instance (Naghshnejad 2019, section 3.2.1).

    Attributes
    ----------
    sizes : (n,) slots a job runs, >= 1 (p in the paper).
    demands : (n,) units of a machine a job holds while it runs, in [1, capacity] (d times the capacity).
    capacity : units of each machine, >= 1.
    """

    sizes: Integers
    demands: Integers
    capacity: int

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise InputError(f"{self.capacity} units are no machine; at least 1", field="capacity")
        if self.sizes.ndim != 1 or self.sizes.shape != self.demands.shape:
            raise InputError(f"{self.demands.shape} demands for {self.sizes.shape} sizes", field="demands")
        for name, values, most in (("sizes", self.sizes, TOTAL_MAX), ("demands", self.demands, self.capacity)):
            if values.dtype != np.int64:
                raise InputError(f"are {values.dtype}; whole numbers (int64) are wanted", field=name)
            outside = (values < 1) | (values > most)
            if outside.any():
                index = int(np.argmax(outside))
                raise InputError(f"job {index}: {values[index]} is outside 1 to {most}", field=name)
        # Floats see an overflow that the integers would hide.
        if float(self.sizes.astype(np.float64) @ self.demands.astype(np.float64)) >= TOTAL_MAX:
            raise InputError("the volumes of all jobs add up to more than 64 bits hold", field="sizes")

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def volumes(self) -> Integers:
        """Return (n,) size times demand, in slots of one unit."""
        return self.sizes * self.demands

    def taken(self, jobs: Integers) -> JobList:
        """Return the instance of some of the jobs, in the order given."""
        return JobList(self.sizes[jobs], self.demands[jobs], self.capacity)


def require_machines(machines: int, least: int = 1) -> None:
    """Refuse a number of machines below the least an algorithm works with."""
    if machines < least:
        raise InputError(f"{counted(machines, 'machine')}; at least {least} needed", field="machines")
