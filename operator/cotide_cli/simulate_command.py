"""`cotide simulate`: a batch log under several policies, side by side.

Called by `main`. Data on stdout, what was done to the log's rows and the progress on stderr. Invariant: every
schedule has passed the feasibility check before a figure of it is printed; apart from wall times, equal arguments
give equal output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_core.errors import CotideError, InputError

if TYPE_CHECKING:
    from cotide_sim.replay.metrics import Figure
    from cotide_sim.replay.runner import Runtime, Schedule
    from cotide_sim.traces.batch_jobs import BatchJobs
    from cotide_sim.traces.swf_cleaning import CleaningReport

DEFAULT_POLICIES: Final = "fcfs,easy,easy-sjbf,conservative"
PROGRESS_JOBS: Final = 20_000
"""Shorter logs are done before a bar could be read; chosen."""
FAULTS_SHOWN: Final = 20
"""Broken rows told one by one; more are told as a number. Chosen."""


@click.command("simulate")
@click.option("--trace", type=click.Path(path_type=Path), required=True, help="Log in the SWF format, plain or gzip.")
@click.option("--policy", "policies", default=DEFAULT_POLICIES, show_default=True, metavar="NAME,NAME,...")
@click.option(
    "--runtime",
    type=click.Choice(["request", "clairvoyant", "last-two"]),
    default="request",
    show_default=True,
    help="What policies believe of run times.",
)
@click.option("--processors", type=click.IntRange(min=1), help="Size of the machine; default: the log's header.")
@click.option(
    "--demand",
    type=click.Choice(["requested", "allocated", "larger"]),
    default="requested",
    show_default=True,
    help="Which processors a job is taken to need.",
)
@click.option(
    "--overrun",
    type=click.Choice(["cut", "raise"]),
    default="cut",
    show_default=True,
    help="A run beyond its request: cut the run, or raise the request.",
)
@click.option("--exclude", multiple=True, metavar="FILTER", help="Leave rows out: 'user=2 and job>=10'; repeatable.")
@click.option(
    "--on-bad",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="At a broken row, a cut-off file, a job too large, a job number twice or rows out of order.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the resampled weeks.")
@click.option("--report", type=click.Path(path_type=Path), help="Write an HTML report that needs no other file.")
@click.option("--swf", "swf_directory", type=click.Path(path_type=Path), help="Directory for schedules as SWF files.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(
    trace: Path,
    policies: str,
    runtime: Runtime,
    processors: int | None,
    demand: Any,
    overrun: Any,
    exclude: tuple[str, ...],
    on_bad: Any,
    seed: int,
    report: Path | None,
    swf_directory: Path | None,
    output: str,
) -> None:
    """Replay a batch log under policies: waiting, slowdown, stretch, response and utilisation, side by side."""
    from cotide_sim.replay.metrics import figures_of
    from cotide_sim.replay.policies import policy_of
    from cotide_sim.traces.swf import read_swf
    from cotide_sim.traces.swf_cleaning import Cleaning, clean
    from cotide_sim.traces.swf_exclusion import parse_exclusion

    chosen = {policy.name: policy for policy in (policy_of(name) for name in policies.split(",") if name.strip())}
    if not chosen:
        raise InputError("names no policy", field="policy")
    strict: Any = "fail" if on_bad == "fail" else "drop"
    cleaning = Cleaning(
        processors=processors,
        demand=demand,
        overrun=overrun,
        too_large=strict,
        duplicates=strict,
        unsorted="fail" if on_bad == "fail" else "sort",
        exclusions=tuple(parse_exclusion(text) for text in exclude),
    )
    log = read_swf(trace, on_bad=on_bad)
    jobs, cleaned = clean(log, cleaning)
    for fault in log.faults[:FAULTS_SHOWN]:
        click.echo(f"{log.file}:{fault.line}: skipped: {fault.message}", err=True)
    if len(log.faults) > FAULTS_SHOWN:
        last = log.faults[-1].line
        click.echo(f"{log.file}: skipped {len(log.faults) - FAULTS_SHOWN:,} more such lines, up to {last}", err=True)
    for sentence in cleaned.sentences():
        click.echo(sentence, err=True)
    schedules = _replay(jobs, list(chosen.values()), runtime)
    figures = {schedule.policy: figures_of(jobs, schedule.start, seed=seed) for schedule in schedules}
    if output == "json":
        click.echo(
            json.dumps(
                _document(jobs, cleaned, cleaning.describe(), len(log.faults), runtime, seed, schedules, figures)
            )
        )
    else:
        _print_table(jobs, cleaned, cleaning.describe(), runtime, schedules, figures)
    if report is not None:
        from cotide_sim.replay.report import write_report

        write_report(report, jobs, cleaning.describe(), schedules, figures)
        click.echo(f"report: {report}", err=True)
    if swf_directory is not None:
        _write_schedules(swf_directory, jobs, schedules)


def _replay(jobs: BatchJobs, policies: list[Any], runtime: Runtime) -> list[Schedule]:
    """Run the policies one after another; a schedule that fails its check is a fault of ours and ends the command."""
    from cotide_sim.replay.check import faults_of
    from cotide_sim.replay.runner import run_policy

    schedules = []
    with _bar(len(jobs) * len(policies)) as tell:
        for place, policy in enumerate(policies):
            watch = None if tell is None else (lambda done, at=place: tell(at * len(jobs) + done, policies[at].name))
            schedule = run_policy(jobs, policy, runtime, watch=watch)
            faults = faults_of(jobs, schedule)
            if faults:
                raise CotideError(f"the schedule of {policy.name} failed its check, please report this: {faults[0]}")
            schedules.append(schedule)
    return schedules


def _bar(total: int) -> AbstractContextManager[Callable[[int, str], None] | None]:
    """Return a progress bar on stderr for a long run on a terminal, else nothing."""
    if total < PROGRESS_JOBS or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    class Bar(AbstractContextManager["Callable[[int, str], None] | None"]):
        def __enter__(self) -> Callable[[int, str], None]:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self.progress.start()
            task = self.progress.add_task("", total=total)
            return lambda done, name: self.progress.update(task, completed=done, description=name)

        def __exit__(self, *_: object) -> None:
            self.progress.stop()

    return Bar()


def _document(
    jobs: BatchJobs,
    cleaned: CleaningReport,
    described: str,
    broken_rows: int,
    runtime: str,
    seed: int,
    schedules: list[Schedule],
    figures: dict[str, dict[str, Figure]],
) -> dict[str, object]:
    policies = {}
    for schedule in schedules:
        found = figures[schedule.policy]
        policies[schedule.policy] = {
            **{name: figure.value for name, figure in found.items()},
            "wall_seconds": schedule.wall_seconds,
            "intervals_95": {name: [figure.low, figure.high] for name, figure in found.items()},
        }
    rules = [{"rule": count.rule, "rows": count.rows, "dropped": count.dropped} for count in cleaned.rules]
    return {
        "trace": jobs.name,
        "jobs": len(jobs),
        "rows": cleaned.rows,
        "broken_rows": broken_rows,
        "processors": jobs.processors,
        "runtime": runtime,
        "filter": described,
        "filter_rows": rules,
        "seed": seed,
        "policies": policies,
    }


def _print_table(
    jobs: BatchJobs,
    cleaned: CleaningReport,
    described: str,
    runtime: str,
    schedules: list[Schedule],
    figures: dict[str, dict[str, Figure]],
) -> None:
    header = ["policy", "wait s", "bounded slowdown", "stretch", "response s", "utilisation", "replay"]
    lines = [header]
    for schedule in schedules:
        found = figures[schedule.policy]
        cells = [
            _cell(found["wait_seconds_mean"], ",.0f"),
            _cell(found["bounded_slowdown_mean"], ",.2f"),
            _cell(found["stretch_mean"], ",.2f"),
            _cell(found["response_seconds_mean"], ",.0f"),
            _cell(found["utilisation"], ".1%"),
        ]
        lines.append([schedule.policy, *cells, f"{schedule.wall_seconds * 1000:,.0f} ms"])
    widths = [max(len(line[place]) for line in lines) for place in range(len(header))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    click.echo(
        f"\n{jobs.name}: {len(jobs):,} jobs of {cleaned.rows:,} rows on {jobs.processors:,} processors, "
        f"run times as {runtime}; {described}. Means, with 95 % intervals over resampled weeks."
    )


def _cell(figure: Figure, form: str) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:{form}}"
    return f"{figure.value:{form}} ({figure.low:{form}}-{figure.high:{form}})"


def _write_schedules(directory: Path, jobs: BatchJobs, schedules: list[Schedule]) -> None:
    from cotide_sim.traces.swf_write import log_of_schedule, write_swf

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't be made: {error.strerror or error}", file=str(directory)) from error
    for schedule in schedules:
        note = f"replayed by cotide under {schedule.policy}, run times as {schedule.runtime}"
        write_swf(log_of_schedule(jobs, schedule.start, note), directory / f"{schedule.policy}.swf")
        click.echo(f"schedule: {directory / schedule.policy}.swf", err=True)
