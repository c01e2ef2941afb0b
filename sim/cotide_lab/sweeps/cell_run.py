"""Runs one cell: draws or generates its log, replays it, checks the schedule and takes its figures.

Called by `execution` in this process, in worker processes and on Dask workers. Invariants: a fault of one cell becomes
its outcome and raises nothing; the outcome depends on the arguments alone.
"""

from __future__ import annotations

from dataclasses import replace

from cotide_core.errors import CotideError
from cotide_lab.job_logs.generated_log import generated_log
from cotide_lab.sweeps.cells import Cell, Columns, Outcome, Source, SyntheticSource
from cotide_lab.sweeps.weeks import resampled
from cotide_lab.trace_replay.check import faults_of
from cotide_lab.trace_replay.metrics import figures_of
from cotide_lab.trace_replay.policies import policy_of
from cotide_lab.trace_replay.runner import run_policy
from cotide_lab.trace_replay.user_policy import PolicySource, policy_of_source
from cotide_lab.trace_replay.user_replay import run_user_policy
from cotide_predictors.one_thread import on_one_thread
from cotide_sim.traces.jobs.batch_jobs import BatchJobs


def run_cell(
    cell: Cell,
    source: Source,
    columns: Columns | None = None,
    policy: PolicySource | None = None,
    *,
    interruptible: bool = False,
) -> Outcome:
    """Run a cell.

    Parameters
    ----------
    policy : the cell's policy where it is from a file; loaded again for each cell, so that cells share no state.
    columns : the log's jobs when they travel apart from their source (shared memory, scattered on a cluster).
    interruptible : replay in a second thread, so that this one hears signals; for a run in the main process.
    """
    try:
        return _run(cell, source, columns, policy, interruptible)
    except CotideError as error:
        return failed(cell, str(error))
    except Exception as error:  # noqa: BLE001  one broken cell must not lose the others; the reason is kept
        return failed(cell, f"{type(error).__name__}: {error}")


def failed(cell: Cell, reason: str) -> Outcome:
    """Return the outcome of a cell that came to nothing; the reason is kept in one line."""
    return Outcome(cell, 0, 0, {}, " ".join(reason.split()), 0.0)


def _run(
    cell: Cell, source: Source, columns: Columns | None, policy: PolicySource | None, interruptible: bool
) -> Outcome:
    jobs = _jobs(cell, source, columns)
    watch = (lambda _: None) if interruptible else None
    if policy is None:
        schedule = run_policy(jobs, policy_of(cell.policy), cell.runtime, watch=watch)
    else:
        schedule = run_user_policy(jobs, policy_of_source(policy), cell.runtime)
    faults = faults_of(jobs, schedule)
    if faults:
        raise CotideError(f"the schedule failed its check, please report this: {faults[0]}")
    # On one thread: how a matrix product is split among threads may show in the last digit of an interval.
    found = on_one_thread(figures_of)(jobs, schedule.start)
    figures = {name: (figure.value, figure.low, figure.high) for name, figure in found.items()}
    return Outcome(cell, jobs.processors, len(jobs), figures, None, schedule.wall_seconds)


def _jobs(cell: Cell, source: Source, columns: Columns | None) -> BatchJobs:
    if isinstance(source, SyntheticSource):
        return generated_log(source.trace, source.kind, source.count, source.load, cell.seed or 0)
    if columns is not None:
        source = replace(source, columns=columns)
    jobs = source.jobs()
    return jobs if cell.seed is None else resampled(jobs, cell.seed, source.weeks)
