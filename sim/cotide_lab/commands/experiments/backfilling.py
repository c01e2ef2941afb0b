"""`cotide experiment reliable-share`, `platform-settings`, `first-share`, `known-run-times` and `forecast-accuracy`:
the hybrid platform compared with its baselines, the choice of its settings, its loss through missing knowledge, and the
reason for a hybrid.

Called by `experiment_command`. Reads logs, hands over to `cotide_lab.experiments` and prints. Invariant: same logs and
seed, same figures, except the seconds of replays; a missed bar is printed and gives exit code 3.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotide_cli.inputs.checked_types import SEED, WORKERS
from cotide_cli.printing import as_text, output_option, print_figures, progress_bar
from cotide_lab.commands.experiments.options import print_report
from cotide_lab.inputs.plot_file import PlotFile

if TYPE_CHECKING:
    from cotide_lab.experiments.backfilling import forecast_accuracy as sensitivity
    from cotide_lab.experiments.backfilling import reliable_share as platform
    from cotide_lab.trace_replay.kernels.platform import PlatformSettings
    from cotide_sim.traces.jobs.batch_jobs import BatchJobs

_LOGS = click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
_WORKERS = click.option("--workers", type=WORKERS, help="Replays at a time; default: one for each core.")
_SEED = click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of all draws.")
_PLOT = click.option("--plot", type=PlotFile(), help="Write a plot, as .png or .svg.")


@click.command("reliable-share")
@_LOGS
@click.option("--trees", is_flag=True, help="Also the platforms on boosted trees; takes minutes a log.")
@_WORKERS
@_SEED
@output_option
@_PLOT
def reliable_share_experiment(
    logs: tuple[Path, ...], trees: bool, workers: int | None, seed: int, output: str, plot: Path | None
) -> int:
    """Replay SWF logs under the hybrid platform, pure backfilling and pure plans, with every source of run times."""
    from cotide_lab.experiments.backfilling import plot as backfilling_plot
    from cotide_lab.experiments.backfilling.reliable_share import PAPER_LOWER, PAPER_TABLE_4_3, run

    with progress_bar() as progress:
        report = run(_read(logs), trees=trees, seed=seed, workers=workers or os.cpu_count() or 1, progress=progress)
    if plot is not None:
        backfilling_plot.draw_platform(report, plot)
    if output == "table":
        _print_platform(report)
    else:
        paper = {"lower": PAPER_LOWER, "table_4_3": PAPER_TABLE_4_3}
        click.echo(as_text({"seed": seed, **asdict(report), "paper": paper}, output))
    return 3 if report.missed else 0


@click.command("forecast-accuracy")
@_LOGS
@_WORKERS
@_SEED
@output_option
@_PLOT
def forecast_accuracy_experiment(
    logs: tuple[Path, ...], workers: int | None, seed: int, output: str, plot: Path | None
) -> int:
    """Replay SWF logs with run-time forecasts of 20 to 100 % accuracy under backfilling and plans."""
    from cotide_lab.experiments.backfilling import plot as backfilling_plot
    from cotide_lab.experiments.backfilling.forecast_accuracy import run

    with progress_bar() as progress:
        report = run(_read(logs), seed=seed, workers=workers or os.cpu_count() or 1, progress=progress)
    if plot is not None:
        backfilling_plot.draw_sensitivity(report, plot)
    return print_report(report, output, _print_sensitivity, seed=seed)


@click.command("platform-settings")
@_LOGS
@_WORKERS
@output_option
def platform_settings_experiment(logs: tuple[Path, ...], workers: int | None, output: str) -> int:
    """Choose the hybrid platform's settings on all logs but one and judge them on that one, for each log in turn."""
    from cotide_lab.experiments.backfilling.platform_settings import run

    with progress_bar() as progress:
        report = run(_read(logs), workers=workers or os.cpu_count() or 1, progress=progress)
    if output != "table":
        click.echo(as_text(asdict(report), output))
        return 0
    lines = [["log", "chosen on the others", "there: wait, slowdown, longest", "as shipped", "best for this log"]]
    for log in report.logs:
        outcomes = [
            f"{outcome.wait:.2f}, {outcome.bounded_slowdown:.2f}, {outcome.longest_wait:.2f}"
            for outcome in (log.there, log.shipped, log.best)
        ]
        lines.append([log.trace, _in_words(log.chosen), *outcomes])
    print_figures(lines)
    click.echo(f"shares of easy's figures; best on all logs together: {_in_words(report.best_on_all)}")
    return 0


@click.command("first-share")
@_LOGS
@_WORKERS
@output_option
def first_share_experiment(logs: tuple[Path, ...], workers: int | None, output: str) -> int:
    """Replay SWF logs under the hybrid platform with every first share of the processors."""
    from cotide_lab.experiments.backfilling.first_share import run

    with progress_bar() as progress:
        results = run(_read(logs), workers=workers or os.cpu_count() or 1, progress=progress)
    if output != "table":
        click.echo(
            as_text([asdict(result) | {"best": result.best, "spread": result.spread} for result in results], output)
        )
        return 0
    shares = list(results[0].wait_seconds)
    lines = [["mean wait, s", *(f"{share:g}" for share in shares), "longest over least"]]
    for result in results:
        waits = [f"{result.wait_seconds[share]:,.0f}" + ("*" if share == result.best else "") for share in shares]
        lines.append([result.trace, *waits, f"{result.spread:+.1%}"])
    print_figures(lines)
    return 0


@click.command("known-run-times")
@_LOGS
@_WORKERS
@output_option
def known_run_times_experiment(logs: tuple[Path, ...], workers: int | None, output: str) -> int:
    """Replay SWF logs under the hybrid platform with known run times for its order, its planned lengths, both or
    neither."""
    from cotide_lab.experiments.backfilling.known_run_times import run

    with progress_bar() as progress:
        results = run(_read(logs), workers=workers or os.cpu_count() or 1, progress=progress)
    if output != "table":
        click.echo(as_text([asdict(result) for result in results], output))
        return 0
    lines = [["log", "known", "wait s", "wait p99 h", "longest wait h", "bounded slowdown", "gap closed"]]
    for result in results:
        for row in result.rows:
            waits = [f"{row.wait_seconds:,.0f}", f"{row.wait_p99 / 3600:,.1f}", f"{row.wait_longest / 3600:,.0f}"]
            closed = "-" if row.gap_closed is None else f"{row.gap_closed:.0%}"
            lines.append([result.trace, row.known, *waits, f"{row.bounded_slowdown:,.2f}", closed])
    print_figures(lines, names=2)
    for result in results:
        click.echo(
            f"{result.trace}: the gap is from easy's {result.easy_slowdown:,.2f} to {result.plan_slowdown:,.2f}"
            " of the better plan that knows all run times"
        )
    return 0


def _in_words(settings: PlatformSettings) -> str:
    from cotide_lab.trace_replay.kernels.replay_state import NEVER

    others, predictable = settings.patience
    days = "" if settings.patience_seconds == NEVER else f" or {settings.patience_seconds // 86_400} d"
    return f"patience {others} and {predictable} lengths{days}, {settings.reserved} reserved"


def _read(paths: tuple[Path, ...]) -> list[BatchJobs]:
    from cotide_sim.traces.jobs.swf import read_swf
    from cotide_sim.traces.jobs.swf_cleaning import clean

    logs = []
    for path in paths:
        jobs, cleaning = clean(read_swf(path))
        for sentence in cleaning.sentences():
            click.echo(sentence, err=True)
        logs.append(jobs)
    return logs


def _print_platform(report: platform.Report) -> None:
    from cotide_lab.experiments.backfilling.reliable_share import (
        GAP_CLOSED,
        PAPER_LOWER,
        PAPER_TABLE_4_3,
        PLAN_GAP_CLOSED,
    )

    for log in report.logs:
        click.echo(f"{log.trace}: {log.jobs:,} jobs on {log.processors:,} processors")
        lines = [
            [
                "policy",
                "run times",
                "accuracy",
                "wait s",
                "bounded slowdown",
                "utilisation",
                "wait p99 h",
                "longest wait h",
                "replay s",
            ]
        ]
        for row in log.rows:
            figures = [_with_ends(row.wait_seconds, row.wait_interval, ",.0f")]
            figures.append(_with_ends(row.bounded_slowdown, row.slowdown_interval, ",.2f"))
            figures += [f"{row.utilisation:.1%}", f"{row.all_jobs.wait_p99 / 3600:,.1f}"]
            figures += [f"{row.all_jobs.wait_longest / 3600:,.0f}", f"{row.wall_seconds:.2f}"]
            lines.append([row.policy, row.source, f"{row.accuracy:.3f}", *figures])
        print_figures(lines, names=2)
        for family, shares in log.lower.items():
            best = log.best[family]
            wait, slowdown = (f"{best[name].policy}, {best[name].source}" for name in shares)
            click.echo(
                f"  below the best of {family} by {shares['wait_seconds']:.1%} in wait ({wait}) and "
                f"{shares['bounded_slowdown']:.1%} in bounded slowdown ({slowdown})"
            )
        closed = "no gap to close" if log.gap_closed is None else f"closes {log.gap_closed:.0%} of it"
        click.echo(f"  gap between easy and clairvoyant easy-sjbf: {log.gap:.1%} of easy's bounded slowdown; {closed}")
        _print_classes(log)
    for family, means in report.mean_lower.items():
        click.echo(
            f"on average below the best of {family} by {means['wait_seconds']:.0%} in wait (the seed: about "
            f"{PAPER_LOWER['wait_seconds']:.0%}) and {means['bounded_slowdown']:.0%} in bounded slowdown (the seed: "
            f"more than {PAPER_LOWER['bounded_slowdown']:.0%})"
        )
    for name, bars in report.inactive.items():
        click.echo(f"{name} in the platform's place misses {bars} bar(s)")
    for name, figures_of in PAPER_TABLE_4_3.items():
        words = ", ".join(f"{family} {value:g}" for family, value in figures_of.items())
        click.echo(f"the seed's Table 4.3, bounded slowdown, {name}: {words}")
    for name, families in report.mean_same_forecasts.items():
        words = "; ".join(
            f"{family} {shares['wait_seconds']:+.0%} and {shares['bounded_slowdown']:+.0%}"
            for family, shares in families.items()
        )
        click.echo(f"{name} below the best on the same learned run times, in wait and bounded slowdown: {words}")
    if report.mean_gap_closed is not None:
        click.echo(f"closes {report.mean_gap_closed:.0%} of the gap on average; the goal is {GAP_CLOSED:.0%}")
    if report.mean_plan_gap_closed is not None:
        click.echo(
            f"closes {report.mean_plan_gap_closed:.0%} of the gap to the plan that knows all run times; the goal is"
            f" {PLAN_GAP_CLOSED:.0%}"
        )
    _print_missed(report.missed)


def _print_classes(log: platform.LogResult) -> None:
    """Print the cost of the mean by class of job: waits and slowdowns, Cotide's next to those of two baselines."""
    rows = {(row.policy, row.source): row for row in log.rows}
    shown = (rows["hybrid", "learned"], rows["easy", "request"], rows["easy-sjbf", "learned"])
    for figure, of in (("wait h: mean, p99, longest", _waits), ("slowdown: mean, p99, largest", _slowdowns)):
        lines = [[f"  {figure}", "jobs", "hybrid", "easy", "easy-sjbf, learned"]]
        for name, tail in shown[0].classes.items():
            lines.append([f"  {name}", f"{tail.jobs:,}", *(of(row.classes[name]) for row in shown)])
        print_figures(lines)
    click.echo()


def _waits(tail: platform.Tail) -> str:
    return " / ".join(f"{one / 3600:,.1f}" for one in (tail.wait_mean, tail.wait_p99, tail.wait_longest))


def _slowdowns(tail: platform.Tail) -> str:
    return " / ".join(f"{value:,.1f}" for value in (tail.slowdown_mean, tail.slowdown_p99, tail.slowdown_largest))


def _print_sensitivity(report: sensitivity.Report) -> None:
    from cotide_lab.experiments.backfilling.forecast_accuracy import CURVES, PAPER_PLANS_FROM, PAPER_THRESHOLDS

    for log in report.logs:
        accuracies = sorted({point.accuracy for point in log.points})
        click.echo(f"{log.trace}: {log.jobs:,} jobs; mean wait in s (mean bounded slowdown) by accuracy of run times")
        lines = [["policy", *(f"{accuracy} %" for accuracy in accuracies), "largest / least wait"]]
        for policy, name in CURVES.items():
            points = {point.accuracy: point for point in log.points if point.policy == policy}
            cells = [
                f"{points[accuracy].wait_seconds:,.0f} ({points[accuracy].bounded_slowdown:,.2f})"
                for accuracy in accuracies
            ]
            lines.append([name, *cells, f"{log.spread[policy]:.2f}"])
        print_figures(lines)
        first, last = PAPER_THRESHOLDS
        ours, plans = ("never" if found is None else f"from {found} %" for found in (log.threshold, log.plans_from))
        click.echo(f"  a plan waits less than backfilling: {plans} (the seed: from {PAPER_PLANS_FROM} %)")
        click.echo(f"  Online-SVF waits least: {ours} (the seed: from {first} to {last} %, by the log)\n")
    _print_missed(report.missed)


def _with_ends(value: float, ends: tuple[float, float] | None, form: str) -> str:
    return f"{value:{form}}" if ends is None else f"{value:{form}} ({ends[0]:{form}}-{ends[1]:{form}})"


def _print_missed(missed: Sequence[Any]) -> None:
    click.echo("every stated bar was reached" if not missed else "\n".join(["missed:", *missed]))
