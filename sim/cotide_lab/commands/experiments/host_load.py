"""`cotide experiment host-load`: forecasts of host load compared with common predictors.

Called by `experiment_command`. Invariant: same files and seed, same numbers; a missed bar is printed and gives exit
code 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_cli.inputs.checked_types import MAX_WORKERS, SEED, DataFolder
from cotide_cli.printing import as_text, output_option, print_figures
from cotide_core.errors import InputError
from cotide_lab.commands.experiments.options import print_report
from cotide_lab.inputs.plot_file import PlotFile

if TYPE_CHECKING:
    from cotide_lab.experiments.host_load.allocated import Report as AllocatedReport
    from cotide_lab.experiments.host_load.forecasts import SetReport
    from cotide_sim.traces.load.load_series import LoadSeries

SETS: Final = ("google2011", "google2019", "alibaba2018", "azure2017-avg", "azure2017-max", "planetlab2011")
_NUMBER: Final = ".6f"


@click.command("host-load")
@click.option("--data", type=DataFolder(), help="Directory of the public traces (docs/research/experiments.md).")
@click.option(
    "--series",
    "own",
    type=click.Path(path_type=Path),
    multiple=True,
    help="CSV file with columns series, slot, load, or in a public trace's format; may be given again.",
)
@click.option("--set", "sets", type=click.Choice(SETS), multiple=True, help="Only these sets of --data.")
@click.option("--hosts", type=click.IntRange(min=1), help="At most so many hosts of each set, drawn by the seed.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of all draws.")
@click.option(
    "--workers", type=click.IntRange(0, MAX_WORKERS), default=0, show_default=True, help="Processes that fit ARMA."
)
@click.option("--allocated", is_flag=True, help="Forecast the load of batch pods, on days of tasks instead.")
@click.option(
    "--seeds", type=click.IntRange(2, 1000), default=10, show_default=True, help="Days of --allocated, from --seed on."
)
@output_option
@click.option("--plot", type=PlotFile(), help="Write a plot, as .png or .svg.")
def command(
    data: Path | None,
    own: tuple[Path, ...],
    sets: tuple[str, ...],
    hosts: int | None,
    seed: int,
    workers: int,
    allocated: bool,
    seeds: int,
    output: str,
    plot: Path | None,
) -> int:
    """Forecast host load on real series, compared with common predictors.

    Without --data and --series it runs on generated series.
    """
    from cotide_lab.experiments.host_load import plot as forecast_plot
    from cotide_lab.experiments.host_load.forecasts import run_set

    if allocated:
        return _allocated(range(seed, seed + seeds), output)
    if sets and data is None:
        raise InputError("names a set of --data, which is not given", field="--set")
    reports = []
    for read in _readers(data, own, sets, seed):
        series = _drawn(read(), hosts, seed)
        reports.append(run_set(series, seed=seed, workers=workers, progress=lambda text: click.echo(text, err=True)))
    if plot is not None:
        forecast_plot.draw(reports, plot)
    missed = [text for report in reports for text in report.missed]
    if output != "table":
        click.echo(as_text({"seed": seed, "sets": [_as_data(report) for report in reports], "missed": missed}, output))
    else:
        for report in reports:
            _print_report(report)
        click.echo("every stated bar was reached" if not missed else "\n".join(["missed:", *missed]))
    return 3 if missed else 0


def _allocated(seeds: range, output: str) -> int:
    """Compare the forecasts of the load of batch and gratis pods."""
    from cotide_lab.experiments.host_load.allocated import run

    report = run(seeds, progress=lambda text: click.echo(text, err=True))
    return print_report(report, output, _print_allocated, seed=seeds.start)


def _print_allocated(report: AllocatedReport) -> None:
    points = [["point", "MSE", "under-estimates", "mean over all", "MSE less that in use"]]
    points += [
        [
            row.method,
            f"{row.mse:{_NUMBER}}",
            f"{row.under:.2%}",
            f"{row.under_mean:.4f}",
            f"{row.behind:+{_NUMBER}} ({row.low:+{_NUMBER}} to {row.high:+{_NUMBER}})",
        ]
        for row in report.points
    ]
    quantiles = [["quantiles around", "pinball p90", "pinball p99", "covers p90", "covers p99", "p90 less that in use"]]
    quantiles += [
        [
            row.centre,
            f"{row.pinball_p90:.3f}",
            f"{row.pinball_p99:.3f}",
            f"{row.coverage_p90:.2%}",
            f"{row.coverage_p99:.2%}",
            f"{row.behind:+.3f} ({row.low:+.3f} to {row.high:+.3f})",
        ]
        for row in report.quantiles
    ]
    for lines in (points, quantiles):
        print_figures(lines, left=(0,))
    click.echo(
        f"  {report.slots} slots of 12 series over {report.seeds} seeds; {report.changed:.1%} rise above what is held"
        " at their start; pinball losses times 1000"
    )
    click.echo(
        "no other point forecast is better than that in use"
        if not report.missed
        else "\n".join(["missed:", *report.missed])
    )


def _readers(
    data: Path | None, own: tuple[Path, ...], sets: tuple[str, ...], seed: int
) -> list[Callable[[], LoadSeries]]:
    """Return a reader for each set, so that only one set is in memory at a time."""
    from cotide_sim.traces.load import alibaba2018, google_load, vm_load
    from cotide_sim.traces.load.any_load import read_load_series
    from cotide_sim.workloads.generated_load import generated_load

    found: list[Callable[[], LoadSeries]] = [lambda path=path: read_load_series(path) for path in own]  # type: ignore[misc]  # bound now
    if data is not None:
        folder: Path = data
        known: dict[str, Callable[[], LoadSeries]] = {
            "google2011": lambda: google_load.read_google2011_load(folder),
            "google2019": lambda: google_load.read_google2019_load(folder),
            "alibaba2018": lambda: alibaba2018.read_alibaba2018_usage(folder),
            "azure2017-avg": lambda: vm_load.read_azure_cpu(folder, "avg"),
            "azure2017-max": lambda: vm_load.read_azure_cpu(folder, "max"),
            "planetlab2011": lambda: vm_load.read_planetlab_cpu(folder),
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
        print_figures(lines, left=(0,))
    same = report.same_violation
    click.echo(
        f"  slack when {same.violation:.2%} of slots are above the forecast: {same.slack:.2%},"
        f" max(N-sigma, percentile) {same.rival_slack:.2%}\n"
    )
