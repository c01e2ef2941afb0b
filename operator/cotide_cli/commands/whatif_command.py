"""``cotide whatif``: the effect of fewer nodes, more nodes, another policy or more load.

Reads a live cluster or a ledger, never changes anything. The engine itself decides about the changed cluster
(`removal.scenario`); ``--each-node`` checks every node alone, thousands per second (`removal.what_if`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_cli.inputs.cluster_input import cluster_options, read_picture
from cotide_cli.printing import as_text, camel_cased, output_option, print_lines
from cotide_core.errors import InputError

if TYPE_CHECKING:
    from cotide_core.consolidation.removal.scenario import ScenarioAnswer
    from cotide_operator.consolidation.picture import Picture

_ADDED: Final = re.compile(r"(?P<model>\S+?)(?:\s*x(?P<count>\d{1,4}))?")
_SCALED: Final = re.compile(r"(?P<name>[^=\s]+)=(?P<factor>\d+(?:\.\d+)?)x")
MOST_ADDED: Final = 5000
MOST_FACTOR: Final = 1000.0


@click.command(name="whatif")
@cluster_options
@click.option("--without-node", "without", multiple=True, help="Nodes that go, by commas; may be given again.")
@click.option("--add-node", "added", multiple=True, help="'TYPE x3': nodes that come, like a node or instance type.")
@click.option("--policy", help="Another policy decides.")
@click.option("--scale-workload", "scaled", multiple=True, help="'namespace/name=2x': a Workload or Job grows.")
@click.option("--each-node", is_flag=True, help="Check for every node alone whether it could go.")
@output_option
def command(
    ledger: Path | None,
    at: float | None,
    kubeconfig: str | None,
    context: str | None,
    config: Path | None,
    without: tuple[str, ...],
    added: tuple[str, ...],
    policy: str | None,
    scaled: tuple[str, ...],
    each_node: bool,
    output: str,
) -> int:
    """Show which pods would move, and which would wait and why, in a changed cluster."""
    changes = (without, added, policy, scaled)
    if each_node and any(changes):
        raise InputError("is asked alone", field="--each-node")
    if not each_node and not any(changes):
        options = "--without-node, --add-node, --policy, --scale-workload, --each-node"
        raise InputError(f"nothing is different: give one of {options}")
    gone = tuple(dict.fromkeys(name.strip() for part in without for name in part.split(",") if name.strip()))
    if without and not gone:  # a script's empty variable: "nothing moves" would be a wrong answer
        raise InputError("names no node", field="--without-node")
    counts = [_count(text) for text in added]
    factors = dict(_factor(text) for text in scaled)
    picture = read_picture(ledger, at, kubeconfig, context, config)
    if each_node:
        return _print_each(picture, output)
    answer = _answer(picture, gone, counts, policy, factors)
    if output == "table":
        _print(answer)
    else:
        click.echo(as_text(camel_cased(answer), output))
    return 0


def _count(text: str) -> tuple[str, int]:
    found = _ADDED.fullmatch(text.strip())
    count = int(found["count"] or 1) if found is not None else 0
    if found is None or not 1 <= count <= MOST_ADDED:
        raise InputError(
            f"{text!r} is not a type and number, as 'm5.large x3', up to x{MOST_ADDED}", field="--add-node"
        )
    return found["model"], count


def _factor(text: str) -> tuple[str, float]:
    found = _SCALED.fullmatch(text.strip())
    if found is None or float(found["factor"]) > MOST_FACTOR:
        raise InputError(
            f"{text!r} is not a workload and factor, as 'shop/web=2x', up to {MOST_FACTOR:g}x", field="--scale-workload"
        )
    return found["name"], float(found["factor"])


def _answer(
    picture: Picture, gone: tuple[str, ...], counts: list[tuple[str, int]], policy: str | None, scaled: Any
) -> ScenarioAnswer:
    from cotide_core.consolidation.removal.scenario import Scenario, clones, play_scenario
    from cotide_core.forecasting.heuristics import HeuristicCatalogue

    coming = [node for model, count in counts for node in clones(picture.state, model, count)]
    scenario = Scenario(gone, tuple(coming), scaled, policy)
    return play_scenario(picture.state, scenario, picture.now, picture.config, HeuristicCatalogue(), picture.facts)


def _print(answer: ScenarioAnswer) -> None:
    new = [wait for wait in answer.waits if not wait.already]
    click.echo(
        f"pods: {len(answer.moves)} moved, {len(answer.placed)} waiting or new ones started, {len(new)} waiting that "
        f"do not now, {len(answer.waits) - len(new)} waiting as before, {len(answer.evicted)} evicted"
    )
    if answer.moves:
        print_lines([["pod", "from", "to"]] + [[move.pod, move.source, move.target] for move in answer.moves])
    if answer.placed:
        print_lines([["starts", "on"]] + [[move.pod, move.target] for move in answer.placed])
    if answer.waits:
        lines = [["waits", "reason", "why"]]
        print_lines(lines + [[wait.pod, wait.reason, wait.why] for wait in answer.waits])
    for left in answer.evicted:
        click.echo(f"evicted: {left.pod} on {left.node}: {left.why}")
    for left in answer.at_risk:
        click.echo(f"at risk: {left.pod} on {left.node}: {left.why}")
    if answer.removed:
        click.echo(f"given up: {', '.join(answer.removed)}")


def _print_each(picture: Picture, output: str) -> int:
    import numpy as np

    from cotide_core.consolidation.removal.columns import columns_of
    from cotide_core.consolidation.removal.stays import MoveRules, Stay
    from cotide_core.consolidation.removal.what_if import node_by_node

    columns = columns_of(picture.state, picture.constraints(MoveRules()), picture.now)
    rows = np.array([row for row, name in enumerate(columns.names) if name], np.int64)
    missing, _ = node_by_node(columns, rows)
    there = columns.stays != Stay.GOES
    pods = np.bincount(columns.row_of[there], minlength=columns.nodes)
    kept = np.bincount(columns.row_of[columns.stays > Stay.GOES], minlength=columns.nodes)
    found = [
        {"node": columns.names[row], "pods": int(pods[row]), "withoutPlace": int(lost), "mustStay": int(kept[row])}
        for row, lost in zip(rows.tolist(), missing.tolist(), strict=True)
    ]
    found.sort(key=lambda one: (one["withoutPlace"], one["mustStay"], one["pods"], one["node"]))
    if output == "table":
        print_lines(
            [["node", "pods", "without a place", "must stay"], *[[str(v) for v in item.values()] for item in found]]
        )
    else:
        click.echo(as_text(found, output))
    return 0
