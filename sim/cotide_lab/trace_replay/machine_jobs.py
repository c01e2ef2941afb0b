"""Jobs with vector demands on many machines: what a replay on machines needs to know.

Made from a trace by `machine_jobs_of`, called by `cotide simulate --machines`; read by `machine_runner`. Step two of
the flow: values to jobs. Invariant: every job fits the empty machines; the columns of ``jobs`` count the first
resource, so that figures, reports and files of a pool hold for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_sim.traces.jobs.any_log import JobTrace
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.machines import DEVICE, RESOURCES, Machines
from cotide_sim.traces.jobs.swf import Field

ROWS_AT_ONCE: Final = 4096
"""Jobs in one batch of the search for room; chosen, bounds the memory."""


@dataclass(frozen=True, slots=True)
class MachineJobs:
    """n jobs and N machines of R resources.

    Attributes
    ----------
    jobs : the jobs; ``demand`` and ``processors`` count whole units of the first resource, added up.
    pieces : (n,) of each job, >= 1; they run at the same time, each on one machine.
    need : (n, R) whole units that a piece needs.
    devices : (n, 2) how many devices of its machine a piece takes, and how many units of each; a job that takes any has
        one piece.
    allowed : (n,) bit k is set when a job may use machines of kind k.
    machines : the machines.
    dropped : jobs that fit no machines, which were left out.
    """

    jobs: BatchJobs
    pieces: Integers
    need: Integers
    devices: Integers
    allowed: Integers
    machines: Machines
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.jobs)


def machine_jobs_of(
    trace: JobTrace,
    jobs: BatchJobs,
    machines: Machines,
    *,
    skip: bool = False,
    rows: npt.NDArray[np.intp] | None = None,
) -> MachineJobs:
    """Return the cleaned jobs of a trace with their requests.

    Parameters
    ----------
    rows : (n,) the row of the trace that each job was made of; None: the first with its number.
    skip : leave out a job that fits no machines, instead of ending there.

    Raises
    ------
    InputError
        When a job can't be placed on the empty machines, names file and line; or none is left.
    """
    indices = _first_rows(trace, jobs) if rows is None else rows
    chosen = [trace.asked[int(index)] for index in indices]
    pieces = np.array([asked.pieces for asked in chosen], dtype=np.int64)
    need = np.array([asked.need for asked in chosen], dtype=np.int64)
    devices = np.array([asked.devices for asked in chosen], dtype=np.int64)
    masks = {kinds: _mask(kinds, machines.kinds) for kinds in {asked.kinds for asked in chosen}}
    allowed = np.array([masks[asked.kinds] for asked in chosen], dtype=np.int64)
    fits = fit_empty(pieces, need, devices, allowed, machines)
    if not fits.all() and not skip:
        job = int(np.argmin(fits))
        words = ", ".join(
            f"{need[job, at] / scale:g} {what}"
            for at, (scale, what) in enumerate(RESOURCES[trace.format].values())
            if need[job, at]
        )
        raise InputError(
            f"asks for {pieces[job]:,} x ({words}), which the {len(machines):,} machines don't hold even when empty",
            file=trace.log.file,
            line=int(trace.log.lines[indices[job]]),
        )
    if not fits.any():
        raise InputError("no job fits the machines", file=trace.log.file)
    columns = ("numbers", "submit", "run", "request", "user", *(() if jobs.group is None else ("group",)))
    kept = replace(
        jobs,
        processors=int(machines.capacity[:, 0].sum()),
        demand=(pieces * need[:, 0])[fits],
        **{name: getattr(jobs, name)[fits] for name in columns},
    )
    return MachineJobs(kept, pieces[fits], need[fits], devices[fits], allowed[fits], machines, int((~fits).sum()))


def _first_rows(trace: JobTrace, jobs: BatchJobs) -> npt.NDArray[np.intp]:
    numbers, rows = np.unique(trace.log.table[:, Field.JOB].astype(np.int64), return_index=True)
    return rows[np.searchsorted(numbers, jobs.numbers)]


def _mask(kinds: Sequence[str], known: Sequence[str]) -> int:
    return sum(1 << index for index, name in enumerate(known) if not kinds or name in kinds)


def fit_empty(
    pieces: Integers, need: Integers, devices: Integers, allowed: Integers, machines: Machines
) -> npt.NDArray[np.bool_]:
    """Return (n,) whether the pieces of each job fit the empty machines."""
    columns = np.column_stack([machines.kind, machines.devices, machines.capacity])
    shapes, counts = np.unique(columns, axis=0, return_counts=True)
    fits = np.zeros(len(pieces), dtype=np.bool_)
    for begin in range(0, len(pieces), ROWS_AT_ONCE):
        part = slice(begin, begin + ROWS_AT_ONCE)
        asked = need[part, None, :]
        each = np.where(asked > 0, shapes[None, :, 2:] // np.maximum(asked, 1), np.iinfo(np.int64).max)
        may = (allowed[part, None] >> shapes[None, :, 0]) & 1
        may &= (devices[part, :1] <= shapes[None, :, 1]) & (devices[part, 1:] <= DEVICE)
        # Bounded before the product, which could not be held otherwise.
        room = np.minimum(each.min(axis=2), pieces[part, None]) * may * counts[None, :]
        fits[part] = room.sum(axis=1) >= pieces[part]
    return fits
