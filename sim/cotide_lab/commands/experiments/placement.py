"""`cotide experiment placement`: servers over data centres compared with baselines (Zhang and Boutaba 2014, sec. II).

Called by `experiment_command`. Hands over to `cotide_lab.experiments.placement` and prints. Invariant: the same data
and seeds, the same figures, except the seconds of decisions; a missed bar is printed and gives exit code 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.checked_types import DataFolder
from cotide_cli.inputs.finite_range import FiniteRange
from cotide_cli.printing import print_figures, progress_bar
from cotide_lab.commands.experiments.options import print_report, run_options, seed_options

if TYPE_CHECKING:
    from cotide_lab.experiments.like_for_like import Ratio, Spread
    from cotide_lab.experiments.placement.experiment import PlacementReport


@click.command("placement")
@click.option("--data", type=DataFolder(), help="Directory of the public traces (docs/research/experiments.md).")
@click.option(
    "--week",
    "weeks",
    type=click.Choice(["worldcup", "match days", "flat", "nasa", "two countries"]),
    multiple=True,
    help="Only these weeks.",
)
@seed_options
@click.option("--days", type=click.IntRange(1, 7), default=7, show_default=True, help="Days of the week that are run.")
@click.option(
    "--reconfiguration",
    "factors",
    type=FiniteRange(0.0, 100.0),
    multiple=True,
    default=(1.0, 4.0),
    show_default=True,
    help="Factor on the costs of adding and removing servers; may be given again.",
)
@click.option(
    "--tuning-seeds", type=click.IntRange(1, 20), default=2, show_default=True,
    help="Seeds from 101 on, used to choose each contender's setting.",
)  # fmt: skip
@run_options
def command(
    data: Path | None,
    weeks: tuple[str, ...],
    seed: int,
    seeds: int,
    days: int,
    factors: tuple[float, ...],
    tuning_seeds: int,
    workers: int,
    output: str,
    plot: Path | None,
) -> int:
    """Place servers over data centres by predictive control and by its baselines; compare cost and failed requests.

    Each contender runs at the setting that costs least on the tuning seeds, which takes half an hour for a week.
    Without --data on generated requests and prices.
    """
    from cotide_lab.experiments.like_for_like import TUNING_SEEDS
    from cotide_lab.experiments.placement import plot as placement_plot
    from cotide_lab.experiments.placement.experiment import run
    from cotide_lab.experiments.placement.scenarios import WEEKS

    with progress_bar() as progress:
        report = run(
            weeks or WEEKS,
            range(seed, seed + seeds),
            data=data,
            tuning_seeds=range(TUNING_SEEDS[0], TUNING_SEEDS[0] + tuning_seeds),
            days=days,
            reconfigurations=factors,
            workers=workers,
            progress=progress,
        )
    if plot is not None:
        placement_plot.draw(report, plot)
    return print_report(report, output, _print)


def _print(report: PlacementReport) -> None:
    for week in report.weeks:
        click.echo(f"{week.week}: {week.reading}; reconfiguration costs x{week.reconfiguration:g}")
        lines = [
            [
                "policy",
                "setting",
                "cost",
                "servers",
                "reconfiguration",
                "egress",
                "moved",
                "lost requests",
                "failed steps",
            ]
        ]
        lines[0] += ["our cost over it", "decision s"]
        for row in week.policies:
            setting = " ".join(f"{part:g}" for part in row.setting)
            cells = [row.policy, f"{row.knob} {setting}", _spread(row.cost, ".0f"), f"{row.servers_cost.mean:.0f}"]
            cells += [f"{row.reconfiguration_cost.mean:.1f}", f"{row.egress_cost.mean:.1f}"]
            cells += [
                _spread(row.reconfigurations, ".0f"),
                _spread(row.unserved, ".3%"),
                _spread(row.violations, ".1%"),
            ]
            lines.append([*cells, _spread(row.own_cost_over_it, ".3f"), f"{row.decision_seconds.mean:.3f}"])
        print_figures(lines, names=2)
        click.echo(f"  our reconfigurations over greedy's: {_spread(week.own_reconfigurations_over_greedy, '.2f')}")
        click.echo(f"  of greedy's cost: the oracle {_spread(week.oracle_over_greedy, '.3f')}\n")
    gap = report.rounded_over_integral
    click.echo(f"rounding up on small instances costs {_spread(gap, '.3f')} of the integral optimum")
    click.echo(
        f"means over {len(report.seeds)} seed(s), in brackets the least and the most, of our cost over it the 95 %"
        f" interval; settings that cost least on seeds {', '.join(map(str, report.tuning_seeds))}"
    )
    click.echo("every stated bar was reached" if not report.missed else "\n".join(["missed:", *report.missed]))


def _spread(spread: Spread | Ratio, form: str) -> str:
    return f"{spread.mean:{form}} ({spread.low:{form}}-{spread.high:{form}})"
