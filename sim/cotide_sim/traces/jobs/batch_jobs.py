"""The jobs of a batch log as columns: what a replay needs to know of each, and nothing more.

Made by `swf_cleaning`; read by `replay`. Invariants: sorted by submit time, ties in the order of the log; every time is
a whole number of seconds. Every job fits the machine and runs for 1 s at least, and not beyond its request unless the
cleaning keeps such runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.kernels.array_types import Integers


@dataclass(frozen=True, slots=True)
class BatchJobs:
    """Jobs of one machine; each array is (n,) int64 (56 bytes a job).

    Attributes
    ----------
    name : where the jobs come from, for tables.
    processors : capacity of the machine, >= 1.
    numbers : the log's own job numbers.
    submit : seconds since the log's start, non-decreasing.
    run : seconds that the job really runs, >= 1.
    demand : processors, 1 <= demand <= processors.
    request : seconds the user asked for.
    user : the log's user numbers; -1 where unknown.
    group : its group numbers, the same way; None where jobs have none, as generated ones.
    """

    name: str
    processors: int
    numbers: Integers
    submit: Integers
    run: Integers
    demand: Integers
    request: Integers
    user: Integers
    group: Integers | None = None

    def __len__(self) -> int:
        return len(self.submit)

    @property
    def nbytes(self) -> int:
        """Return the memory of the columns, in bytes."""
        columns = (self.numbers, self.submit, self.run, self.demand, self.request, self.user, self.group)
        return sum(column.nbytes for column in columns if column is not None)
