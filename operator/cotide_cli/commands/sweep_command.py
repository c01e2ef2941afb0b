"""`cotide sweep`: many logs, policies, sources of run times and seeds, in parallel, into one file.

Called by `main`. Reads the logs, builds the cells and hands them to `cotide_sim.sweeps`; says on stderr what happens.
Invariant: the results file does not depend on workers, order or interruptions; exit 1 when a cell failed, 130 and 143
after Ctrl-C and SIGTERM, and then the same command goes on where it stopped.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_cli.inputs.trace_input import FORMATS, GENERATORS, cleaning_of, tell
from cotide_core.errors import InputError
from cotide_core.units import counted

if TYPE_CHECKING:
    from cotide_sim.sweeps.cells import Source
    from cotide_sim.trace_replay.runner import Runtime

LINE_SECONDS: Final = 5.0
"""Time between two lines of progress where there is no terminal; chosen."""


@click.command("sweep")
@click.option(
    "--trace",
    "traces",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Log, in any format that `cotide simulate` takes; repeatable.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="Of all logs; default: by each one's content.")
@click.option(
    "--resources",
    type=click.Choice(["cpu", "dominant"]),
    default="cpu",
    show_default=True,
    help="What counts where jobs ask for several resources.",
)
@click.option(
    "--generate",
    "--synthetic",
    "synthetic",
    type=click.Choice(GENERATORS),
    multiple=True,
    help="Generated jobs; repeatable.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=5000, show_default=True, help="Of each generated log.")
@click.option("--load", default=0.9, show_default=True, help="Share of the machine that generated jobs fill.")
@click.option(
    "--policy",
    "policies",
    default="fcfs,easy,easy-sjbf",
    show_default=True,
    metavar="NAME,NAME,...",
    help="Names that `cotide simulate` takes, or files like ./my_policy.py:NAME.",
)
@click.option(
    "--policy-file",
    "policy_files",
    multiple=True,
    metavar="FILE[:NAME]",
    help="Sweep a policy of your own, beside the others; repeatable. docs/replay.md says what it must define.",
)
@click.option("--runtime", "runtimes", default="request", show_default=True, metavar="NAME,NAME,...")
@click.option("--seeds", metavar="log,1-20", help="Draws of weeks, or of generated jobs; 'log' is the log as it is.")
@click.option("--weeks", type=click.IntRange(min=1), help="Length of a drawn log; default: the log's whole weeks.")
@click.option("--processors", type=click.IntRange(min=1), help="Size of the machine; default: each log's header.")
@click.option(
    "--demand", type=click.Choice(["requested", "allocated", "larger"]), default="requested", show_default=True
)
@click.option("--overrun", type=click.Choice(["cut", "keep", "raise"]), default="cut", show_default=True)
@click.option("--no-request", type=click.Choice(["longest", "run"]), default="longest", show_default=True)
@click.option("--exclude", multiple=True, metavar="FILTER", help="Leave rows out: 'user=2 and job>=10'; repeatable.")
@click.option("--on-bad", type=click.Choice(["fail", "skip"]), default="fail", show_default=True)
@click.option("--workers", type=click.IntRange(min=1), help="Processes; default: one for each core.")
@click.option("--dask", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler, like tcp://10.0.0.1:8786.")
@click.option("--retry-failed", is_flag=True, help="Run cells again that failed before.")
@click.option("--results", type=click.Path(path_type=Path), required=True, help="File to write: .csv or .parquet.")
def command(
    traces: tuple[Path, ...],
    form: Any,
    resources: Any,
    synthetic: tuple[Any, ...],
    jobs: int,
    load: float,
    policies: str,
    policy_files: tuple[str, ...],
    runtimes: str,
    seeds: str | None,
    weeks: int | None,
    processors: int | None,
    demand: Any,
    overrun: Any,
    no_request: Any,
    exclude: tuple[str, ...],
    on_bad: Any,
    workers: int | None,
    dask: str | None,
    retry_failed: bool,
    results: Path,
) -> int:
    """Replay every log under every policy, source of run times and seed; stop it and go on as you like."""
    from cotide_sim.sweeps.execution import Workers, dask_workers
    from cotide_sim.sweeps.plan import log_source, parse_seeds, policies_of, synthetic_source, tasks_of
    from cotide_sim.sweeps.result_file import check_ending
    from cotide_sim.sweeps.stopping import Stopped
    from cotide_sim.sweeps.sweep import run_sweep
    from cotide_sim.trace_replay.user_policy import PolicySource

    check_ending(results)
    if not 0 < load <= 10:
        raise InputError(f"{load} is no share of a machine; between 0 and 10", field="--load")
    if dask is not None and workers is not None:
        raise InputError("is for processes of this machine; a Dask cluster has its own workers", field="--workers")
    swept = policies_of(_parts(policies, "--policy"), policy_files)
    texts = {policy.sha256: policy for policy in swept if isinstance(policy, PolicySource)}
    beliefs = _runtimes(runtimes)
    chosen = None if seeds is None else parse_seeds(seeds)
    cleaning = cleaning_of(
        processors=processors, demand=demand, overrun=overrun, no_request=no_request, exclude=exclude, on_bad=on_bad
    )
    sources: list[Source] = []
    for path in traces:
        source, trace, cleaned = log_source(path, cleaning, on_bad, weeks, form=form, demand=resources)
        sources.append(source)
        tell(trace, cleaned)
    sources += [synthetic_source(kind, jobs, load) for kind in dict.fromkeys(synthetic)]
    if not sources:
        raise InputError("nothing to replay: name a file, or a generator with --generate", field="--trace")
    tasks = tasks_of(sources, swept, beliefs, chosen)
    with nullcontext() if dask is None else closing(dask_workers(dask)) as cluster, _progress() as watch:
        try:
            report = run_sweep(
                tasks, results, replace(cluster or Workers(workers or _cores()), policies=texts),
                retry_failed=retry_failed, tell=_say, watch=watch,
            )  # fmt: skip
        except Stopped as stopped:
            _say(f"stopped by {signal.Signals(stopped.number).name}; the same command goes on with what is left")
            return 128 + stopped.number
    for outcome in report.failures:
        cell = outcome.cell
        seed = "" if cell.seed is None else f" seed {cell.seed}"
        _say(f"failed: {cell.trace} {cell.policy} {cell.runtime}{seed}: {outcome.error}")
    counts = f"{report.ran:,} run now, {report.kept:,} kept, {len(report.failures):,} failed"
    _say(f"{results}: {counted(len(tasks), 'cell')}, {counts}")
    return 1 if report.failures else 0


def _say(text: str) -> None:
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
    from cotide_sim.trace_replay.runner import RUNTIMES

    known = {name: name for name in RUNTIMES}
    found = []
    for name in _parts(text, "--runtime"):
        if name not in known:
            raise InputError(f"there is no {name!r}; there are {', '.join(RUNTIMES)}", field="--runtime")
        found.append(known[name])
    return list(dict.fromkeys(found))


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show finished cells on stderr: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        said = [time.monotonic()]

        def line(done: int, total: int) -> None:
            if time.monotonic() - said[0] >= LINE_SECONDS:
                said[0] = time.monotonic()
                _say(f"{done:,} of {total:,} cells")

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("cells")
        yield lambda done, total: progress.update(bar, completed=done, total=total)
