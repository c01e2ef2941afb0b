"""`cotide place`: the replicas of services over several clusters, by predictive control; a dry run by default.

Called by `main`. Reads the placement file, forecasts of demand and prices (CSV with a row per step, or from a
Prometheus), and the clusters. Plans one turn, or with ``--watch`` one each step; prints; with ``--apply`` sets
replicas. Invariant: without ``--apply`` nothing is written in any cluster.
"""

from __future__ import annotations

import contextlib
import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.printing import as_text, output_option, print_lines
from cotide_cli.stopping import StoppedError, run_until_told
from cotide_core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cotide_cli.provisioning.place_turns import TurnResult
    from cotide_operator.provisioning.placing import Seen, Turn


@click.command(name="place")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--demand",
    type=click.Path(path_type=Path, dir_okay=False),
    help="CSV, a column a network; of several services SERVICE/NETWORK; not needed for those with demandQueries.",
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    help="CSV, a column a centre; not needed for those with a priceQuery.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Set replicas; otherwise only show the changes.")
@click.option("--watch", is_flag=True, help="Take a turn each stepSeconds: show, or with --apply do, what is due.")
@click.option("--turns", type=click.IntRange(0), default=0, show_default=True, help="Of --watch; 0: until Ctrl-C.")
@click.option("--state", type=click.Path(path_type=Path, dir_okay=False), help="Keeps which clusters were lost.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Default: $KUBECONFIG, ~/.kube/config.")
@output_option
def command(
    file: Path,
    demand: Path | None,
    prices: Path | None,
    apply_it: bool,
    watch: bool,
    turns: int,
    state: Path | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Plan, and with --apply carry out, the replicas of services in several clusters: one step of them, or all."""
    from cotide_cli.provisioning.place_turns import LostClusters, PlacementFiles, TurnState, follow, take

    if turns and not watch:
        raise InputError("goes with --watch only", field="--turns")
    files, lost = PlacementFiles(file, demand, prices, kubeconfig), LostClusters.read(state)
    if not watch:
        _show(run_until_told(take(files, lost, TurnState(), apply=apply_it)), output)
        return
    with contextlib.suppress(StoppedError):
        run_until_told(follow(files, lost, partial(_show_next, output=output), apply=apply_it, turns=turns))


def _show(taken: TurnResult, output: str) -> None:
    from cotide_cli.provisioning.place_turns import as_data

    if output == "table":
        _print(taken)
    else:
        click.echo(as_text(as_data(taken), output))


def _show_next(taken: TurnResult, output: str) -> None:
    """Show one turn of many: a table under its time, a line of JSON, or a YAML document."""
    from cotide_cli.provisioning.place_turns import as_data

    if output == "table":
        click.echo(time.strftime("%H:%M:%S"))
        _print(taken)
    elif output == "json":
        click.echo(json.dumps(as_data(taken)))
    else:
        click.echo(f"---\n{as_text(as_data(taken), output)}")


def _print(taken: TurnResult) -> None:
    for name, turn in taken.turns.items():
        if not taken.settings.is_of_one:
            click.echo(f"{name}:")
        _print_turn(turn, taken.seen[name], taken.applied)
        click.echo(f"  requests per second that are planned for: {taken.demand[name][0].sum():.2f}")
        score = taken.scores.get(name)
        if score is not None:
            errors = f"off by {score.error:.1%} (last value {score.last_value_error:.1%})"
            click.echo(f"  last {score.steps} steps: {score.coverage:.0%} within what was planned for; {errors}")
    if not taken.applied:
        click.echo("  dry run: nothing was changed")


def _print_turn(turn: Turn, seen: Mapping[str, Seen | None], applied: bool) -> None:
    lines = [["centre", "now", "ready", "wanted", "what", "one server more saves"]]
    for (name, one), worth in zip(seen.items(), turn.worth_of_server, strict=True):
        what = "as it is"
        if name in turn.lost:
            what = "lost: its demand goes to the others"
        elif name in turn.back:
            what = "back: only looked at this time"
        elif name in turn.waiting:
            what = "falls when the others are ready"
        elif name in turn.set_now:
            what = "set" if applied else "would be set"
        now, ready = ("", "") if one is None else (str(one.replicas), str(one.ready))
        lines.append([name, now, ready, str(turn.wanted.get(name, "")), what, f"{worth:.4f}"])
    print_lines(lines)
    click.echo(f"  requests per second that find no server now: {turn.plan.unserved[0].sum():.2f}")
