"""Input of `cotide simulate`: a trace from a file, or jobs from a generator, and the steps of its preparation.

Called by `simulate_command`. Reads, cleans and reports the outcome of rows on stderr. Invariant: a broken row is
reported with its file and line and counted, in any format; every dropped row is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cotide_lab.trace_replay.machine_jobs import MachineJobs
    from cotide_sim.traces.jobs.any_log import JobTrace
    from cotide_sim.traces.jobs.batch_jobs import BatchJobs
    from cotide_sim.traces.jobs.swf import OnBad
    from cotide_sim.traces.jobs.swf_cleaning import Cleaning, CleaningReport

FORMATS: Final = ("swf", "alibaba2017", "openb", "google2011", "ledger")
"""As `cotide_sim.traces.jobs.any_log.FORMATS`, which a help text must not import."""
GENERATORS: Final = ("synth1", "synth2", "lublin")
"""As `cotide_lab.job_logs.generated_log.GENERATORS`."""
FAULTS_SHOWN: Final = 20
"""Broken rows that are reported one by one; further ones are reported as a number. Chosen."""


@dataclass(frozen=True, slots=True)
class Input:
    """Jobs and their source.

    Attributes
    ----------
    described : the conversion of rows to jobs, or the generator, in one line.
    rows, broken_rows : of the file; a generator's are its jobs, and none.
    rules : effect of each rule of the cleaning, as plain data.
    format : of the file; ``generated`` for a generator.
    conversion : the conversion of demands to processors; empty when they are processors.
    trace : as read from a file.
    rows_of_jobs : (n,) the row of the trace of each job.
    machine_jobs : the jobs with their requests and the machines, when they are replayed on machines.
    recorded : results at the recording of the trace: ``jobs`` with a known wait, and their means; None without any.
    """

    jobs: BatchJobs
    described: str
    rows: int
    broken_rows: int
    rules: list[dict[str, object]]
    format: str
    conversion: str
    recorded: dict[str, float] | None = None
    trace: JobTrace | None = None
    rows_of_jobs: npt.NDArray[np.intp] | None = None
    machine_jobs: MachineJobs | None = None


def from_file(path: Path, form: Any, resources: Any, on_bad: OnBad, cleaning: Cleaning) -> Input:
    """Read a trace, clean it, and report the outcome of its rows on stderr.

    Raises
    ------
    InputError
        When the file can't be read, or at a row that ``on_bad`` makes fatal.
    """
    from cotide_sim.traces.jobs.any_log import read_any_log
    from cotide_sim.traces.jobs.swf_cleaning import clean

    trace = read_any_log(path, form=form, on_bad=on_bad, demand=resources)
    if not trace.in_order:
        cleaning = cleaning.of_a_table()
    jobs, cleaned = clean(trace.log, cleaning)
    emit(trace, cleaned)
    return Input(
        jobs,
        cleaning.describe(),
        cleaned.rows,
        len(trace.log.faults),
        [{"rule": count.rule, "rows": count.rows, "dropped": count.dropped} for count in cleaned.rules],
        trace.format,
        trace.conversion,
        _recorded(jobs, cleaned),
        trace,
        cleaned.rows_of_jobs,
    )


def _recorded(jobs: BatchJobs, cleaned: CleaningReport) -> dict[str, float] | None:
    """Return the results of the jobs under the recorded scheduler, as far as the trace has them."""
    from cotide_lab.trace_replay.metrics import bounded_slowdown

    known = cleaned.waits >= 0
    if not known.any():
        return None
    slowdown = bounded_slowdown(jobs, jobs.submit + cleaned.waits)
    return {
        "jobs": int(known.sum()),
        "wait_seconds_mean": float(cleaned.waits[known].mean()),
        "bounded_slowdown_mean": float(slowdown[known].mean()),
    }


def emit(trace: JobTrace, cleaned: CleaningReport) -> None:
    """Report on stderr how a trace was read and the outcome of its rows."""
    log = trace.log
    if trace.conversion:
        click.echo(f"{log.file}: read as {trace.format}: {trace.conversion}", err=True)
    for fault in log.faults[:FAULTS_SHOWN]:
        click.echo(f"{log.file}:{fault.line}: skipped: {fault.message}", err=True)
    if len(log.faults) > FAULTS_SHOWN:
        last = log.faults[-1].line
        click.echo(f"{log.file}: skipped {len(log.faults) - FAULTS_SHOWN:,} more such lines, up to {last}", err=True)
    for sentence in cleaned.sentences():
        click.echo(sentence, err=True)


def from_generator(kind: Any, count: int, load: float | None, processors: int | None, seed: int) -> Input:
    """Generate jobs.

    Raises
    ------
    InputError
        As `generated_log` does.
    """
    from cotide_lab.job_logs.generated_log import described, generated_log

    jobs = generated_log(f"{kind}-{count}", kind, count, load, seed, processors=processors)
    words = described(kind, jobs.processors, load)
    return Input(jobs, f"{words}, seed {seed}", count, 0, [], "generated", "")
