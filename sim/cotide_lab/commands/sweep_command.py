"""`cotide sweep`: many logs, policies, sources of run times and seeds, in parallel, into one file.

Called by `main`. Reads the logs, builds the cells and hands them to `cotide_lab.sweeps`; reports progress on stderr.
Invariant: the results file does not depend on workers, order or interruptions. Exit 1 when a cell failed, 130 and 143
after Ctrl-C and SIGTERM; then the same command continues where it stopped.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_cli.option_groups import GroupedCommand, grouped, option_group
from cotide_core.errors import InputError
from cotide_core.units import counted
from cotide_lab.inputs.execution_options import ExecutionOptions, execution_options
from cotide_lab.inputs.row_options import RowOptions, row_options
from cotide_lab.inputs.trace_input import FORMATS, GENERATORS, emit

if TYPE_CHECKING:
    from cotide_lab.sweeps.cells import Source
    from cotide_lab.trace_replay.runner import Runtime

LINE_SECONDS: Final = 5.0
"""Seconds between two lines of progress without a terminal; chosen."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The source of jobs."""

    traces: tuple[Path, ...]
    form: Any
    synthetic: tuple[Any, ...]
    jobs: int
    load: float
    seeds: str | None
    weeks: int | None


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The compared policies, and their knowledge of run times."""

    policies: str
    policy_files: tuple[str, ...]
    runtimes: str


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """The machines for the jobs."""

    processors: int | None
    resources: Any


@click.command("sweep", cls=GroupedCommand)
@option_group(
    "Jobs",
    "source",
    JobOptions,
    grouped(
        "--trace",
        "traces",
        type=click.Path(path_type=Path),
        multiple=True,
        help="Log, in any format that `cotide simulate` takes; repeatable.",
    ),
    grouped("--format", "form", type=click.Choice(FORMATS), help="Of all logs; default: by each one's content."),
    grouped(
        "--generate",
        "--synthetic",
        "synthetic",
        type=click.Choice(GENERATORS),
        multiple=True,
        help="Generated jobs; repeatable.",
    ),
    grouped("--jobs", type=click.IntRange(min=1), default=5000, show_default=True, help="Of each generated log."),
    grouped("--load", default=0.9, show_default=True, help="Share of the machine that generated jobs fill."),
    grouped("--seeds", metavar="log,1-20", help="Draws of weeks, or of generated jobs; 'log' is the log as it is."),
    grouped("--weeks", type=click.IntRange(min=1), help="Length of a drawn log; default: the log's whole weeks."),
)
@option_group(
    "Policies",
    "rules",
    PolicyOptions,
    grouped(
        "--policy",
        "policies",
        default="fcfs,easy,easy-sjbf",
        show_default=True,
        metavar="NAME,NAME,...",
        help="Names that `cotide simulate` takes, or files like ./my_policy.py:NAME.",
    ),
    grouped(
        "--policy-file",
        "policy_files",
        multiple=True,
        metavar="FILE[:NAME]",
        help="Sweep a policy of your own, next to the others; repeatable. docs/research/write-a-policy.md describes "
        "its contents.",
    ),
    grouped("--runtime", "runtimes", default="request", show_default=True, metavar="NAME,NAME,..."),
)
@option_group(
    "Machines",
    "machine",
    MachineOptions,
    grouped("--processors", type=click.IntRange(min=1), help="Size of the machine; default: each log's header."),
    grouped(
        "--resources",
        type=click.Choice(["cpu", "dominant"]),
        default="cpu",
        show_default=True,
        help="What counts where jobs ask for several resources.",
    ),
)
@row_options
@execution_options
@click.option("--results", type=click.Path(path_type=Path), required=True, help="File to write: .csv or .parquet.")
def command(
    source: JobOptions,
    rules: PolicyOptions,
    machine: MachineOptions,
    rows: RowOptions,
    execution: ExecutionOptions,
    results: Path,
) -> int:
    """Replay every log under every policy, source of run times and seed; stop and continue it as you like."""
    from cotide_lab.sweeps.execution import Workers, dask_workers
    from cotide_lab.sweeps.plan import parse_seeds, policies_of, tasks_of
    from cotide_lab.sweeps.result_file import check_ending
    from cotide_lab.sweeps.stopping import Stopped
    from cotide_lab.sweeps.sweep import run_sweep
    from cotide_lab.trace_replay.user_policy import PolicySource

    check_ending(results)
    execution.check()
    swept = policies_of(_parts(rules.policies, "--policy"), rules.policy_files)
    texts = {policy.sha256: policy for policy in swept if isinstance(policy, PolicySource)}
    beliefs = _runtimes(rules.runtimes)
    chosen = None if source.seeds is None else parse_seeds(source.seeds)
    sources = _sources(source, machine, rows)
    if not sources:
        raise InputError("nothing to replay: name a file, or a generator with --generate", field="--trace")
    tasks = tasks_of(sources, swept, beliefs, chosen)
    dask = execution.dask
    with nullcontext() if dask is None else closing(dask_workers(dask)) as cluster, _progress() as watch:
        try:
            report = run_sweep(
                tasks, results, replace(cluster or Workers(execution.workers or _cores()), policies=texts),
                retry_failed=execution.retry_failed, emit=_print_to_stderr, watch=watch,
            )  # fmt: skip
        except Stopped as stopped:
            _print_to_stderr(
                f"stopped by {signal.Signals(stopped.number).name}; the same command continues with the rest"
            )
            return 128 + stopped.number
    for outcome in report.failures:
        cell = outcome.cell
        seed = "" if cell.seed is None else f" seed {cell.seed}"
        _print_to_stderr(f"failed: {cell.trace} {cell.policy} {cell.runtime}{seed}: {outcome.error}")
    counts = f"{report.ran:,} run now, {report.kept:,} kept, {len(report.failures):,} failed"
    _print_to_stderr(f"{results}: {counted(len(tasks), 'cell')}, {counts}")
    return 1 if report.failures else 0


def _sources(source: JobOptions, machine: MachineOptions, rows: RowOptions) -> list[Source]:
    """Read and clean the logs, report the outcome of their rows on stderr, and add the generators."""
    from cotide_lab.sweeps.plan import log_source, synthetic_source

    cleaning = rows.cleaning(machine.processors)
    found: list[Source] = []
    for path in source.traces:
        log, trace, cleaned = log_source(
            path, cleaning, rows.on_bad, source.weeks, form=source.form, demand=machine.resources
        )
        found.append(log)
        emit(trace, cleaned)
    return found + [synthetic_source(kind, source.jobs, source.load) for kind in dict.fromkeys(source.synthetic)]


def _print_to_stderr(text: str) -> None:
    click.echo(text, err=True)


def _cores() -> int:
    import joblib  # type: ignore[import-untyped]  # it ships no types

    return int(joblib.cpu_count())


def _parts(text: str, option: str) -> list[str]:
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise InputError("names nothing", field=option)
    return found


def _runtimes(text: str) -> list[Runtime]:
    from cotide_lab.trace_replay.runner import RUNTIMES

    known = {name: name for name in RUNTIMES}
    found = []
    for name in _parts(text, "--runtime"):
        if name not in known:
            raise InputError(f"there is no {name!r}; there are {', '.join(RUNTIMES)}", field="--runtime")
        found.append(known[name])
    return list(dict.fromkeys(found))


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show finished cells on stderr: a bar on a terminal, otherwise a line from time to time."""
    if not sys.stderr.isatty():
        printed = [time.monotonic()]

        def line(done: int, total: int) -> None:
            if time.monotonic() - printed[0] >= LINE_SECONDS:
                printed[0] = time.monotonic()
                _print_to_stderr(f"{done:,} of {total:,} cells")

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("cells")
        yield lambda done, total: progress.update(bar, completed=done, total=total)
