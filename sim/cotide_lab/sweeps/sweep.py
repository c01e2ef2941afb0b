"""A sweep from its cells to its table: what the journal has is kept, the rest is run, each outcome written at once.

Called by `cotide sweep`. Middle of the flow. Invariant: a cell that the journal holds is never run again (a failed one
only when asked for); the table is written when, and only when, no cell is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cotide_core.errors import InputError
from cotide_lab.sweeps.cells import Outcome
from cotide_lab.sweeps.execution import Task, Workers
from cotide_lab.sweeps.journal import SweepJournal
from cotide_lab.sweeps.result_file import write_results
from cotide_lab.sweeps.stopping import StopSignals


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What became of a sweep.

    Attributes
    ----------
    kept : cells that were finished before.
    ran : cells that were run now.
    failures : the outcomes among this sweep's cells that hold no figures.
    """

    kept: int
    ran: int
    failures: tuple[Outcome, ...]


def journal_path(output: Path) -> Path:
    """Return the path of a result file's journal, in the same folder."""
    return output.with_name(output.name + ".journal")


def run_sweep(
    tasks: Sequence[Task],
    output: Path,
    workers: Workers,
    *,
    retry_failed: bool = False,
    emit: Callable[[str], None] = lambda _: None,
    watch: Callable[[int, int], None] = lambda _done, _total: None,
) -> SweepReport:
    """Run what is not yet finished and write the table.

    Parameters
    ----------
    tell : called with each sentence for the user.
    watch : called with finished cells and all cells, before the first and after each.

    Raises
    ------
    InputError
        When the output or its journal is not ours, or can't be written.
    ClusterError
        When a Dask cluster is lost; what was finished stays.
    Stopped
        At Ctrl-C and SIGTERM; what was finished stays.
    """
    path = journal_path(output)
    if output.exists() and not path.exists():
        raise InputError(
            f"exists, but not its journal {path.name}; move it away or choose another output", file=str(output)
        )
    with StopSignals() as signals, SweepJournal(path) as journal:
        for remark in journal.remarks:
            emit(remark)
        journal.check(cell for cell, _ in tasks)
        left = [task for task in tasks if _is_left(journal.outcomes.get(task[0].key), retry_failed)]
        kept = len(tasks) - len(left)
        watch(kept, len(tasks))
        with closing(workers.run(left)) as outcomes:
            for done, outcome in enumerate(outcomes, start=kept + 1):
                with signals.held():
                    journal.add(outcome)
                watch(done, len(tasks))
        with signals.held():
            write_results(output, journal.outcomes.values())
        ours = [journal.outcomes[cell.key] for cell, _ in tasks]
    return SweepReport(kept, len(left), tuple(outcome for outcome in ours if outcome.error is not None))


def _is_left(outcome: Outcome | None, retry_failed: bool) -> bool:
    return outcome is None or (retry_failed and outcome.error is not None)
