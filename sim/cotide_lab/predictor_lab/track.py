"""The lab's run: it keeps the journal's results, runs the rest in parallel, and writes each outcome at once.

Called by `cotide lab run`. Invariant: a cell in the journal never runs again, a failed one only on request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cotide_lab.predictor_lab.cell_run import failed, run_cell
from cotide_lab.predictor_lab.cells import LabOutcome
from cotide_lab.predictor_lab.journal import LabJournal
from cotide_lab.predictor_lab.plan import LabTask
from cotide_lab.sweeps.pool import Call, Pool
from cotide_lab.sweeps.stopping import StopSignals


@dataclass(frozen=True, slots=True)
class LabReport:
    """The result of a run: cells kept and run, and the outcomes of its cells without figures."""

    kept: int
    ran: int
    failures: tuple[LabOutcome, ...]


def run_lab(
    tasks: Sequence[LabTask],
    path: Path,
    pool: Pool,
    *,
    retry_failed: bool = False,
    emit: Callable[[str], None] = lambda _: None,
    watch: Callable[[int, int], object] = lambda _done, _total: None,
) -> LabReport:
    """Run the unfinished cells.

    Parameters
    ----------
    path : of the journal. tell : called with each sentence for the user. watch : called with finished and all cells.

    Raises
    ------
    InputError
        When the journal has another format, or cannot be written.
    Stopped
        At Ctrl-C and SIGTERM; finished cells stay.
    """
    with StopSignals() as signals, LabJournal(path) as journal:
        for remark in journal.remarks:
            emit(remark)
        journal.check([cell for cell, _, _ in tasks])
        left = [task for task in tasks if _is_left(journal.outcomes.get(task[0].key), retry_failed)]
        kept = len(tasks) - len(left)
        watch(kept, len(tasks))
        calls = [Call(task[0].key, run_cell, task, partial(run_cell, *task), partial(failed, task[0])) for task in left]
        with closing(pool.run(calls)) as outcomes:
            for done, outcome in enumerate(outcomes, start=kept + 1):
                with signals.held():
                    journal.add(outcome)
                watch(done, len(tasks))
        ours = [journal.outcomes[cell.key] for cell, _, _ in tasks]
    return LabReport(kept, len(left), tuple(outcome for outcome in ours if outcome.error is not None))


def _is_left(outcome: LabOutcome | None, retry_failed: bool) -> bool:
    return outcome is None or (retry_failed and outcome.error is not None)
