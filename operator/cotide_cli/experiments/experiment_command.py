"""`cotide experiment NAME`: a paper's experiment, its numbers beside ours.

Called by `main`. Reads series (files the user names, or a generator), hands them to `cotide_sim.experiments` and prints
what comes back. Invariant: same files and seed, same numbers; a stated bar that was missed is said and is exit code 3.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_cli.experiments.backfilling import forecast_accuracy_experiment, reliable_share_experiment
from cotide_cli.experiments.easy_variants import easy_variants
from cotide_cli.experiments.offline import offline_experiment
from cotide_cli.experiments.offline_readings import offline_readings_experiment
from cotide_cli.experiments.qpsm_waiting import qpsm_waiting_experiment
from cotide_cli.experiments.run_times import run_times_experiment
from cotide_core.errors import InputError

if TYPE_CHECKING:
    from cotide_sim.experiments.hierarchical.schedule import Report
    from cotide_sim.experiments.host_load.forecasts import SetReport
    from cotide_sim.traces.load.load_series import LoadSeries

SETS: Final = ("google2011", "google2019", "alibaba2018", "azure2017-avg", "azure2017-max", "planetlab2011")
_NUMBER: Final = ".6f"


@click.group("experiment")
def command() -> None:
    """Run an experiment of one of the papers and print its numbers beside ours."""


command.add_command(qpsm_waiting_experiment)
command.add_command(offline_experiment)
command.add_command(offline_readings_experiment)
command.add_command(run_times_experiment)
command.add_command(reliable_share_experiment)
command.add_command(forecast_accuracy_experiment)
command.add_command(easy_variants)


@command.command("host-load")
@click.option("--data", type=click.Path(path_type=Path), help="Directory of the public traces (docs/host-load.md).")
@click.option(
    "--series",
    "own",
    type=click.Path(path_type=Path),
    multiple=True,
    help="CSV file with columns series, slot, load, or in a public trace's format; may be given again.",
)
@click.option("--set", "sets", type=click.Choice(SETS), multiple=True, help="Only these sets of --data.")
@click.option("--hosts", type=click.IntRange(min=1), help="At most so many hosts of each set, drawn by the seed.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of what is drawn.")
@click.option("--workers", type=click.IntRange(min=0), default=0, show_default=True, help="Processes that fit ARMA.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--plot", type=click.Path(path_type=Path), help="Write a plot, as .png or .svg.")
def host_load_experiment(
    data: Path | None,
    own: tuple[Path, ...],
    sets: tuple[str, ...],
    hosts: int | None,
    seed: int,
    workers: int,
    output: str,
    plot: Path | None,
) -> int:
    """Forecast host load on real series, beside the predictors that others use.

    Without --data and --series it runs on generated series.
    """
    from cotide_sim.experiments.host_load import plot as forecast_plot
    from cotide_sim.experiments.host_load.forecasts import run_set

    if plot is not None:
        forecast_plot.check_suffix(plot)
    if sets and data is None:
        raise InputError("names a set of --data, which is not given", field="--set")
    reports = []
    for read in _readers(data, own, sets, seed):
        series = _drawn(read(), hosts, seed)
        reports.append(run_set(series, seed=seed, workers=workers, progress=lambda text: click.echo(text, err=True)))
    if plot is not None:
        forecast_plot.draw(reports, plot)
    missed = [text for report in reports for text in report.missed]
    if output == "json":
        click.echo(json.dumps({"seed": seed, "sets": [_as_data(report) for report in reports], "missed": missed}))
    else:
        for report in reports:
            _print_report(report)
        click.echo("every stated bar was reached" if not missed else "\n".join(["missed:", *missed]))
    return 3 if missed else 0


def _readers(
    data: Path | None, own: tuple[Path, ...], sets: tuple[str, ...], seed: int
) -> list[Callable[[], LoadSeries]]:
    """Return what reads each set, so that only one is in memory at a time."""
    from cotide_sim.traces.load import alibaba2018, google_load, vm_load
    from cotide_sim.traces.load.any_load import read_load_series
    from cotide_sim.workloads.generated_load import generated_load

    found: list[Callable[[], LoadSeries]] = [lambda path=path: read_load_series(path) for path in own]  # type: ignore[misc]  # bound now
    if data is not None:
        if not data.is_dir():
            raise InputError("no such directory", file=str(data), field="--data")
        place: Path = data
        known: dict[str, Callable[[], LoadSeries]] = {
            "google2011": lambda: google_load.read_google2011_load(place),
            "google2019": lambda: google_load.read_google2019_load(place),
            "alibaba2018": lambda: alibaba2018.read_alibaba2018_usage(place),
            "azure2017-avg": lambda: vm_load.read_azure_cpu(place, "avg"),
            "azure2017-max": lambda: vm_load.read_azure_cpu(place, "max"),
            "planetlab2011": lambda: vm_load.read_planetlab_cpu(place),
        }
        found += [known[name] for name in SETS if not sets or name in sets]
    return found or [lambda: generated_load(seed)]


def _drawn(series: LoadSeries, hosts: int | None, seed: int) -> LoadSeries:
    import numpy as np

    from cotide_sim.traces.load.load_series import LoadSeries

    if hosts is None or hosts >= len(series.hosts):
        return series
    rows = np.sort(np.random.default_rng(seed).choice(len(series.hosts), hosts, replace=False))
    return LoadSeries(series.name, tuple(series.hosts[row] for row in rows), series.load[rows])


def _as_data(report: SetReport) -> dict[str, Any]:
    """Return a report without its example, which is for the plot."""
    names = ("name", "hosts", "slots", "warm_up_slots", "records", "arma")
    return {
        **{name: getattr(report, name) for name in names},
        "points": [asdict(score) for score in report.points],
        "quantiles": [asdict(score) for score in report.quantiles],
        "same_violation": asdict(report.same_violation),
        "curve": [{"violation": violation, "slack": slack} for violation, slack in report.curve],
        "missed": list(report.missed),
    }


def _print_report(report: SetReport) -> None:
    click.echo(
        f"{report.name}: {report.hosts} hosts x {report.slots} slots, {report.records} scored after"
        f" {report.warm_up_slots}; ARMA {report.arma}"
    )
    points = [["point", "MSE", "under-estimates", "mean size", "mean over all"]]
    points += [
        [
            score.method,
            f"{score.mse:{_NUMBER}}",
            f"{score.underestimates:.2%}",
            f"{score.underestimate_size:.4f}",
            f"{score.underestimate_mean:.4f}",
        ]
        for score in report.points
    ]
    quantiles = [["quantile", "pinball p90", "pinball p99", "covers p90", "covers p99", "slack at p99"]]
    quantiles += [
        [
            score.method,
            f"{score.pinball_p90:{_NUMBER}}",
            f"{score.pinball_p99:{_NUMBER}}",
            f"{score.coverage_p90:.2%}",
            f"{score.coverage_p99:.2%}",
            f"{score.slack_p99:.2%}",
        ]
        for score in report.quantiles
    ]
    for lines in (points, quantiles):
        widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
        for line in lines:
            cells = [line[0].ljust(widths[0])] + [
                cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)
            ]
            click.echo("  " + "  ".join(cells))
    same = report.same_violation
    click.echo(
        f"  slack when {same.violation:.2%} of slots are above the forecast: {same.slack:.2%},"
        f" max(N-sigma, percentile) {same.rival_slack:.2%}\n"
    )


@command.command("hierarchical")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Directory of the public traces: production as in Google's."
)
@click.option("--slots", default="100,200,300,400,500", show_default=True, help="Slot sizes in seconds, by commas.")
@click.option("--load", type=click.FloatRange(min=0.1, max=10.0), help="Scales what tasks ask for.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the first day.")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=10, show_default=True, help="Days, each with the seed after."
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Processes; default: one for each core."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--plot", type=click.Path(path_type=Path), help="Write a plot, as .png or .svg.")
def hierarchical_experiment(
    data: Path | None,
    slots: str,
    load: float | None,
    seed: int,
    seeds: int,
    workers: int,
    output: str,
    plot: Path | None,
) -> int:
    """Schedule days of tasks on the paper's machines, with and without prediction; figures are means over the days.

    A day takes seconds in each of ten ways; --seeds 1 for a first look. Without --data production usage is generated;
    the tasks always are, since the paper's were never published.
    """
    from cotide_sim.experiments.hierarchical import plot as schedule_plot
    from cotide_sim.experiments.hierarchical.schedule import DEFAULT_LOAD, run
    from cotide_sim.traces.load import google_load

    if plot is not None:
        schedule_plot.check_suffix(plot)
    series = None
    if data is not None:
        if not data.is_dir():
            raise InputError("no such directory", file=str(data), field="--data")
        series = google_load.read_google2011_load(data)
    report = run(
        seeds=range(seed, seed + seeds),
        series=series,
        slot_sizes=_slot_sizes(slots),
        load=DEFAULT_LOAD if load is None else load,
        workers=workers,
        progress=lambda text: click.echo(text, err=True),
    )
    if plot is not None:
        schedule_plot.draw(report, plot)
    if output == "json":
        click.echo(json.dumps({"seed": seed, **asdict(report)}))
    else:
        _print_schedule(report)
    return 3 if report.missed else 0


def _slot_sizes(text: str) -> tuple[float, ...]:
    from cotide_sim.experiments.hierarchical.data_center import SAMPLE_SECONDS

    sizes = []
    for part in text.split(","):
        if not part.strip().isdigit() or int(part) < 3 * SAMPLE_SECONDS or int(part) % SAMPLE_SECONDS:
            raise InputError(
                f"{part!r} is not a multiple of {SAMPLE_SECONDS:g} s, from {3 * SAMPLE_SECONDS:g} up", field="--slots"
            )
        sizes.append(float(part))
    return tuple(sizes)


def _print_schedule(report: Report) -> None:
    from cotide_sim.experiments.hierarchical.schedule import WITHOUT, change

    lines = [["run", "by", "slot s", "overloads", "kills", "evictions", "undelayed", "mean delay s", "max delay s"]]
    lines[0] += ["batch s", "gratis s", "first s", "lost s", "against none"]
    before = {row.source: row for row in report.rows if row.name == WITHOUT}
    for row in report.rows:
        counts = ["-" if count is None else f"{count:.0f}" for count in (row.overloads, row.kills, row.evictions)]
        delays = [f"{row.undelayed:.0f}", f"{row.mean_delay:.0f}", f"{row.max_delay:.0f}"]
        parts = (row.batch_delay, row.gratis_delay, row.first_delay, row.lost)
        split = ["-" if part is None else f"{part:.0f}" for part in parts]
        changes = "-"
        if row.overloads is not None and row is not before[row.source]:
            changes = " / ".join(f"{part:+.0%}" for part in change(before[row.source], row))
        lines.append([row.name, row.source, f"{row.slot_seconds:.0f}", *counts, *delays, *split, changes])
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        click.echo("  ".join(cells))
    click.echo(
        "mean delay by class, to the first start, and of it run time thrown away by kills and evictions;"
        " against none: overloads / kills and evictions / mean delay"
    )
    click.echo(
        f"means of {report.days} day(s) of {report.tasks} tasks (what Table II adds up to), 2017 in the paper's text"
    )
    click.echo("every stated bar was reached" if not report.missed else "\n".join(["missed:", *report.missed]))
