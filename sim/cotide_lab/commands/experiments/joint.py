"""`cotide experiment joint`: all predictions at once, compared with each alone and with reserves without forecasts.

Called by `experiment_command`. Hands over to `cotide_lab.experiments.joint` and prints. Invariant: same options and
files, same numbers; a missed bar is printed and gives exit code 3.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.checked_types import SEED, DataFolder
from cotide_cli.inputs.finite_range import FiniteRange
from cotide_cli.printing import output_option, print_figures, progress_bar
from cotide_core.errors import InputError
from cotide_lab.commands.experiments.options import journal_option, print_report
from cotide_sim.workloads.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    from cotide_lab.experiments.joint.contest import Report


@click.command("joint")
@click.option("--data", type=DataFolder(), help="Directory of the public traces; generators without it.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="The first seed.")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many, one after another."
)
@click.option("--nodes", type=click.IntRange(1, 10_000), default=40, show_default=True, help="8-core nodes.")
@click.option("--seconds", type=FiniteRange(60, 86_400), default=900, show_default=True, help="Simulated seconds.")
@click.option("--scenario", type=click.Choice(SCENARIOS), default="slack", show_default=True, help="Which services.")
@click.option("--only", multiple=True, metavar="NAME", help="A contender, as the table names it; repeat for more.")
@journal_option
@output_option
def command(
    data: Path | None, seed: int, seeds: int, nodes: int, seconds: float, scenario: Scenario, only: tuple[str, ...],
    journal: Path | None, output: str,
) -> int:  # fmt: skip
    """Compare `predictive` with qpsm, hierarchical, guarded and plain orders, and static reserves.

    A seed takes about a minute of processor time at 40 nodes.
    """
    from cotide_lab.experiments.joint.contest import CONTENDERS, run
    from cotide_lab.sweeps.kept_figures import KeptFigures

    if unknown := sorted(set(only) - set(CONTENDERS)):
        raise InputError(f"{unknown[0]!r} is none of {', '.join(CONTENDERS)}", field="--only")
    of = {"data": data is not None, "nodes": nodes, "seconds": seconds, "scenario": scenario}
    with progress_bar() as progress, ExitStack() as opened:
        kept = None if journal is None else opened.enter_context(KeptFigures(journal, "joint", ("seed", "name"), of))
        report = run(
            data,
            seeds=range(seed, seed + seeds),
            nodes=nodes,
            seconds=seconds,
            scenario=scenario,
            contenders={name: contender for name, contender in CONTENDERS.items() if name in (only or CONTENDERS)},
            kept=kept,
            progress=progress,
        )
    return print_report(report, output, _print)


def _print(report: Report) -> None:
    lines = [["contender", "over the limit", "overload slots", "evictions", "mean wait s", "jobs", "cpu"]]
    for row in report.rows:
        means, intervals = row.means, row.intervals
        lines.append(
            [
                row.name,
                f"{means['qos_violation_ratio']:.2%} +-{intervals['qos_violation_ratio']:.2%}",
                f"{means['overload_slots']:.1f} +-{intervals['overload_slots']:.1f}",
                f"{means['evictions']:.0f} +-{intervals['evictions']:.0f}",
                f"{means['waiting_seconds_mean']:.0f} +-{intervals['waiting_seconds_mean']:.0f}",
                f"{means['jobs_finished']:.0f} +-{intervals['jobs_finished']:.0f}",
                f"{means['cpu_utilisation']:.1%}",
            ]
        )
    print_figures(lines)
    click.echo(f"means over {len(report.seeds)} seeds, 95 % intervals of the mean (t)")
    click.echo("every stated bar was reached" if not report.missed else "\n".join(["missed:", *report.missed]))
