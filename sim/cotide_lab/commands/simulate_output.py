"""Output of `cotide simulate`: a table for people, a document for programs, a progress bar.

Called by `simulate_command`. Last step of the flow. Invariant: the document holds every figure of the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

import click

from cotide_cli.printing import print_figures
from cotide_core.units import counted

if TYPE_CHECKING:
    from cotide_lab.inputs.trace_input import Input
    from cotide_lab.trace_replay.machine_jobs import MachineJobs
    from cotide_lab.trace_replay.metrics import Figure
    from cotide_lab.trace_replay.runner import Schedule

PROGRESS_JOBS: Final = 20_000
"""Shorter logs are done before a bar could be read; chosen."""

Figures = Mapping[str, Mapping[str, "Figure"]]


def document(
    given: Input, runtime: str, seed: int, schedules: Sequence[Schedule], figures: Figures
) -> dict[str, object]:
    """Return the document of ``-o json``."""
    policies = {}
    for schedule in schedules:
        found = figures[schedule.policy]
        policies[schedule.policy] = {
            **{name: figure.value for name, figure in found.items()},
            "runtime": schedule.runtime,
            **({"reliability": schedule.reliability} if schedule.reliability else {}),
            **({"rebuilds": schedule.rebuilds} if schedule.rebuilds else {}),
            "wall_seconds": schedule.wall_seconds,
            "intervals_95": {name: [figure.low, figure.high] for name, figure in found.items()},
        }
    return {
        "trace": given.jobs.name,
        "jobs": len(given.jobs),
        "rows": given.rows,
        "broken_rows": given.broken_rows,
        "processors": given.jobs.processors,
        "format": given.format,
        "conversion": given.conversion,
        "runtime": runtime,
        "filter": given.described,
        "filter_rows": given.rules,
        "seed": seed,
        "recorded": given.recorded,
        **({} if given.machine_jobs is None else _machines(given.machine_jobs)),
        "policies": policies,
    }


def _machines(found: MachineJobs) -> dict[str, object]:
    """Return the facts about machines: their number, their source, and the requested share of each resource."""
    jobs, machines = found.jobs, found.machines
    span = float((jobs.submit + jobs.run).max() - jobs.submit[0])
    asked = (found.pieces * jobs.run).astype(float) @ found.need.astype(float)
    total = machines.capacity.sum(axis=0) * span
    return {
        "machines": len(machines),
        "machines_source": machines.source,
        "left_out": found.dropped,
        "load": {
            name: float(asked[at] / total[at]) if total[at] else 0.0 for at, name in enumerate(machines.resources)
        },
    }


def print_table(given: Input, runtime: str, schedules: Sequence[Schedule], figures: Figures) -> None:
    """Print one line for each policy, and the replayed jobs."""
    from cotide_lab.trace_replay.metrics import NO_INTERVAL

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
        # The hybrid platform has its own run times, whatever the others use.
        name = schedule.policy if schedule.source == runtime else f"{schedule.policy} ({schedule.source})"
        lines.append([name, *cells, f"{schedule.wall_seconds * 1000:,.0f} ms"])
    print_figures(lines, indent="")
    jobs = given.jobs
    click.echo()
    if given.recorded is not None:
        click.echo(
            f"as recorded: wait {given.recorded['wait_seconds_mean']:,.0f} s, bounded slowdown "
            f"{given.recorded['bounded_slowdown_mean']:,.2f} ({counted(int(given.recorded['jobs']), 'job')} whose wait "
            "is known)"
        )
    where = counted(jobs.processors, "processor")
    if given.machine_jobs is not None:
        machine_facts = _machines(given.machine_jobs)
        where = f"{machine_facts['machines_source']}"
        loads = ", ".join(f"{name} {share:.1%}" for name, share in dict(machine_facts["load"]).items())  # type: ignore[call-overload]  # a document's values are objects
        click.echo(f"requested between the first submission and the last end, if no job had waited: {loads}")
    means = "Means, with 95 % intervals over resampled weeks."
    if all(figure.low is None for found in figures.values() for figure in found.values()):
        means = NO_INTERVAL
    click.echo(
        f"{jobs.name}: {counted(len(jobs), 'job')} of {counted(given.rows, 'row')} on {where}, "
        f"run times as {runtime}; {given.described}. {means}"
    )


def progress_bar(total: int, *, slow: bool = False) -> AbstractContextManager[Callable[[int, str], None] | None]:
    """Return a progress bar on stderr for a long or ``slow`` run on a terminal, otherwise a bar that prints nothing."""
    if (total < PROGRESS_JOBS and not slow) or not sys.stderr.isatty():
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


def _cell(figure: Figure, form: str) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:{form}}"
    return f"{figure.value:{form}} ({figure.low:{form}}-{figure.high:{form}})"
