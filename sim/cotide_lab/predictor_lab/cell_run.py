"""Runs one cell of the lab.

Called by `track` in this process, in worker processes and on Dask workers. Invariant: an error in one cell never
raises; its reason becomes the outcome.
"""

from __future__ import annotations

from cotide_core.errors import CotideError
from cotide_lab.predictor_lab.cells import LabCell, LabOutcome, LabSource
from cotide_lab.trace_replay.user_policy import PolicySource


def run_cell(cell: LabCell, source: LabSource, predictor: PolicySource | None) -> LabOutcome:
    """Run a cell; ``predictor`` is the user's file, for a predictor from a file."""
    try:
        if cell.task == "run-time":
            from cotide_lab.predictor_lab.run_times import task as run_time_task

            return run_time_task.run(cell, source, predictor)
        from cotide_lab.predictor_lab.series import task as series_task

        return series_task.run(cell, source, predictor)
    except CotideError as error:
        return failed(cell, str(error))
    except Exception as error:  # noqa: BLE001  one broken cell must not lose the others; the reason is kept
        return failed(cell, f"{type(error).__name__}: {error}")


def failed(cell: LabCell, reason: str) -> LabOutcome:
    """Return the outcome of a failed cell; the reason is kept in one line."""
    return LabOutcome(cell, 0, {}, {}, {}, " ".join(reason.split()))
