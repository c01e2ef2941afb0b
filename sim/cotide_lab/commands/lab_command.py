"""`cotide lab`: predictors on one fair track, and the value of each for the decision behind it.

Called by `main`. `run` builds cells and hands them to `cotide_lab.predictor_lab.track`, `report` reads a journal,
`list` prints the choices. Invariant: data on stdout, progress on stderr. Exit 1 when a cell failed, 130 and 143 after
Ctrl-C and SIGTERM; then the same command continues where it stopped. `report --claims` exits 3 when a claim does not
hold.
"""

from __future__ import annotations

import signal
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotide_cli.inputs.checked_types import OutputFile
from cotide_cli.option_groups import GroupedCommand, grouped, option_group
from cotide_cli.printing import as_text, print_figures, print_lines, progress_bar
from cotide_core.errors import InputError
from cotide_core.units import counted
from cotide_lab.inputs.execution_options import ExecutionOptions, execution_options
from cotide_sim.pages.origin import made

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotide_lab.predictor_lab.cells import LabCell, LabOutcome
    from cotide_lab.predictor_lab.report import Ranks, Table

TASKS = ("run-time", "usage-path", "host-peak", "service-rate")
SHOWN_FIGURES = 8
"""Columns of a table on a terminal; JSON and the page hold all (chosen)."""
COSTS = {
    "fit_seconds": ("s to fit", ".3g"),
    "seconds_per_1000": ("s a 1,000", ".3g"),
    "forecast_seconds_per_1000": ("s, nothing new", ".3g"),
    "bytes_per_series": ("bytes a series", ",.0f"),
}
"""Costs, what heads their columns, and how they are written."""


@click.group("lab")
def command() -> None:
    """Put every predictor on one fair track."""


@command.command("list")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def list_predictors(output: str) -> int:
    """List tasks and their predictors."""
    from cotide_lab.predictor_lab.cells import TASKS as QUESTIONS
    from cotide_lab.predictor_lab.registry import rows_of

    found = [
        {"task": task, "predictor": name, "is": summary, "source": source}
        for task in QUESTIONS
        for name, summary, source in rows_of(task)
    ]
    if output != "table":
        click.echo(as_text(found, output))
        return 0
    for task, question in QUESTIONS.items():
        click.echo(f"{task}: {question}")
        print_lines([[name, summary, source] for name, summary, source in rows_of(task)])
    return 0


@dataclass(frozen=True, slots=True)
class DataOptions:
    """What predictors are tried on."""

    paths: tuple[Path, ...]
    hosts: int | None
    limit: int | None
    seeds: str


@dataclass(frozen=True, slots=True)
class PredictorOptions:
    """The predictors, and the way they are tried."""

    predictors: str
    decide: bool
    training_steps: int | None
    weights: tuple[str, ...]


@command.command("run", cls=GroupedCommand)
@option_group(
    "Data",
    "data",
    DataOptions,
    grouped(
        "--data",
        "paths",
        type=click.Path(path_type=Path),
        multiple=True,
        help="An SWF log for run times, else load series or requests; repeatable. Default: generated.",
    ),
    grouped("--hosts", type=click.IntRange(min=1), help="At most so many series of each set, drawn by the seed."),
    grouped("--limit", type=click.IntRange(min=1), help="At most so many jobs, or slots, from the beginning."),
    grouped("--seeds", default="0", show_default=True, metavar="0-4", help="Of drawn series, fits and generators."),
)
@option_group(
    "Predictors",
    "tried",
    PredictorOptions,
    grouped(
        "--predictor",
        "predictors",
        default="all",
        show_default=True,
        metavar="NAME,NAME,...",
        help="Names of `cotide lab list`, or files like ./my_predictor.py:NAME.",
    ),
    grouped("--decide", is_flag=True, help="Run times: replay policies with the forecasts, too."),
    grouped("--training-steps", type=click.IntRange(min=1), help="Of networks of paths; default: 800."),
    grouped(
        "--weights",
        multiple=True,
        metavar="NAME=FOLDER",
        help="Of a pretrained model (chronos, tirex, timesfm): config.json and model.safetensors; repeatable.",
    ),
)
@execution_options
@click.option("--task", type=click.Choice(TASKS), required=True, help="What is forecast.")
@click.option("--journal", type=click.Path(path_type=Path), required=True, help="Where finished cells are kept.")
def run(task: Any, journal: Path, data: DataOptions, tried: PredictorOptions, execution: ExecutionOptions) -> int:
    """Run predictors on data; stop it and go on as you like."""
    import joblib  # type: ignore[import-untyped]  # it ships no types

    from cotide_lab.predictor_lab.plan import cells_of, source_of
    from cotide_lab.predictor_lab.track import run_lab
    from cotide_lab.sweeps.execution import dask_workers
    from cotide_lab.sweeps.plan import parse_seeds
    from cotide_lab.sweeps.pool import Pool
    from cotide_lab.sweeps.stopping import Stopped

    if tried.decide and task != "run-time":
        raise InputError("is for run times; tasks on series hold their decisions in any case", field="--decide")
    if tried.training_steps is not None and task == "run-time":
        raise InputError("is for networks of paths; run times have none of those", field="--training-steps")
    execution.check()
    if tried.weights and task == "run-time":
        raise InputError("is for models of series; run times have none of those", field="--weights")
    numbers = [seed for seed in parse_seeds(data.seeds) if seed is not None]
    steps, folders = tried.training_steps, _folders(tried.weights)
    sources = [
        source_of(path, hosts=data.hosts, limit=data.limit, decide=tried.decide, steps=steps, weights=folders)
        for path in data.paths or (None,)
    ]
    names = [part.strip() for part in tried.predictors.split(",") if part.strip()]
    tasks = cells_of(task, sources, names, numbers)
    if not tasks:
        raise InputError("names nothing", field="--predictor")
    workers, dask = execution.workers, execution.dask
    with nullcontext() if dask is None else closing(dask_workers(dask)) as cluster, progress_bar() as bar:
        pool = Pool(workers or int(joblib.cpu_count())) if cluster is None else Pool(cluster.count, cluster.client)
        try:
            report = run_lab(
                tasks, journal, pool, retry_failed=execution.retry_failed, emit=_print_to_stderr,
                watch=lambda done, total: bar(f"{done} of {total} cells", done / total),
            )  # fmt: skip
        except Stopped as stopped:
            _print_to_stderr(
                f"stopped by {signal.Signals(stopped.number).name}; the same command continues with the rest"
            )
            return 128 + stopped.number
    for line in _failures(report.failures):
        _print_to_stderr(line)
    counts = f"{report.ran:,} run now, {report.kept:,} kept, {len(report.failures):,} failed"
    _print_to_stderr(f"{journal}: {counted(len(tasks), 'cell')}, {counts}")
    return 1 if report.failures else 0


def _failures(outcomes: Sequence[LabOutcome]) -> list[str]:
    """Return a line for each cause: a file of another kind fails in every cell, and once is enough to read."""
    cells: dict[tuple[str, str | None], list[LabCell]] = {}
    for outcome in outcomes:
        cells.setdefault((outcome.cell.data, outcome.error), []).append(outcome.cell)
    lines = []
    for (data, error), failed in cells.items():
        first = f"{failed[0].predictor} seed {failed[0].seed}"
        others = f" and {counted(len(failed) - 1, 'other cell')}" if len(failed) > 1 else ""
        lines.append(f"failed: {data} {first}{others}: {error}")
    return lines


@command.command("report")
@click.option("--journal", type=click.Path(path_type=Path, exists=True), required=True, help="Of `cotide lab run`.")
@click.option("--page", type=OutputFile(), help="Write an HTML page with plots.")
@click.option("--claims", is_flag=True, help="Judge the printed claims; exit 3 when one does not hold.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def report(journal: Path, page: Path | None, claims: bool, output: str) -> int:
    """Show figures with intervals, ranks, and the winner of each task."""
    from dataclasses import asdict

    from cotide_lab.predictor_lab.claims import judged
    from cotide_lab.predictor_lab.journal import LabJournal
    from cotide_lab.predictor_lab.page import write_page
    from cotide_lab.predictor_lab.report import as_document, ranks_of, tables_of
    from cotide_lab.predictor_lab.today import against_today

    with LabJournal(journal) as kept:
        for remark in kept.remarks:
            _print_to_stderr(remark)
        outcomes = list(kept.outcomes.values())
    tables = tables_of(outcomes)
    ranks = ranks_of(tables)
    judgements = judged(outcomes) if claims else []
    compared = against_today(outcomes)
    if page is not None:
        write_page(page, tables, ranks, made(), [today.sentence for today in compared])
    if output == "table":
        _print(tables, ranks)
        for sentence in [*(today.sentence for today in compared), *(judgement.sentence for judgement in judgements)]:
            click.echo(sentence)
    else:
        document = as_document(tables, ranks) | {"today": [asdict(today) for today in compared]}
        if claims:
            document["claims"] = [asdict(judgement) for judgement in judgements]
        click.echo(as_text(document, output))
    return 3 if any(not judgement.holds for judgement in judgements) else 0


def _print(tables: list[Table], ranks: list[Ranks]) -> None:
    from cotide_lab.predictor_lab.cells import horizon_of

    for table in tables:
        click.echo(f"{table.task}: {table.data} ({table.settings}), {table.count:,} forecasts scored")
        found = dict.fromkeys(name for row in table.rows for name in row.figures)
        names = [name for name in found if horizon_of(name) is None][:SHOWN_FIGURES]
        costs = [name for name in COSTS if any(name in row.costs for row in table.rows)]
        lines = [["predictor", *names, *(COSTS[name][0] for name in costs)]]
        for row in table.rows:
            cells = [f"{row.figures[name]:.4g}" if name in row.figures else "-" for name in names]
            cells += [f"{row.costs[name]:{COSTS[name][1]}}" if name in row.costs else "-" for name in costs]
            lines.append([row.predictor, *cells])
        print_figures(lines)
        for name, why in table.missing:
            click.echo(f"  {name}: {why}")
        click.echo(f"  {table.sentence}\n")
    for rank in ranks:
        apart = "" if rank.critical_difference is None else f", told apart from {rank.critical_difference:.2f} on"
        said = ", ".join(f"{name} {mean:.1f}" for name, mean in rank.ranks.items())
        click.echo(f"{rank.task}, mean rank by {rank.figure} over {counted(rank.sets, 'set')}{apart}: {said}")


def _folders(weights: tuple[str, ...]) -> dict[str, Path]:
    if not weights:
        return {}
    from cotide_lab.predictor_lab.series.pretrained import parse_weights

    return parse_weights(weights)


def _print_to_stderr(text: str) -> None:
    click.echo(text, err=True)
