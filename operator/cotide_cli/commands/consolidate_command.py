"""``cotide consolidate``: shows the nodes that can go and, on request, moves their pods off them one by one.

Reads a live cluster (rights to read suffice for the plan) or a ledger; `removal.drain_plan` plans, `carrier` carries
out. Prints only, unless ``--apply`` is given. ``--watch`` continues from round to round (`consolidation.watch`). Exit
code 1 when a surprise ended the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_cli.inputs.cluster_input import cluster_options, read_picture
from cotide_cli.printing import as_text, camel_cased, output_option, print_lines
from cotide_cli.stopping import run_until_told
from cotide_core.errors import ClusterError, InputError
from cotide_core.units import counted

if TYPE_CHECKING:
    from cotide_core.consolidation.removal.columns import RemovalColumns
    from cotide_core.consolidation.removal.drain_plan import DrainPlan
    from cotide_core.consolidation.removal.stays import MoveRules
    from cotide_core.consolidation.removal.what_if import Left
    from cotide_core.kernels.array_types import Booleans
    from cotide_operator.consolidation.carrier import Carrier
    from cotide_operator.consolidation.picture import Picture

GIB: Final = 2**30
DEFAULT_PRICE: Final = "default"
MAX_MOVES: Final = 1_000_000
"""Most pods in any option; chosen: more than a cluster has, and a number that the plan's kernel can hold."""
NUMBERS: Final = ("interval", "stable", "reserve", "minimum_age", "idle_watts", "timeout")
"""Options that take any number within bounds; these bounds do not exclude nan."""
LEFT_CORDONED: Final = "a node may be left cordoned: the next run, or --undo, uncordons it"
SHOWN_NODES: Final = 50
"""Nodes in use that are listed with the reason why they stay (chosen)."""


@click.command(name="consolidate")
@click.option("--plan", "only_plan", is_flag=True, help="Print the plan and change nothing (the default).")
@click.option("--apply", "carry", is_flag=True, help="Carry the plan out: cordon, evict, wait, pod by pod.")
@click.option("--undo", is_flag=True, help="Uncordon the nodes that a killed run left cordoned, and end.")
@click.option(
    "--watch", is_flag=True, help="Continue round after round: show the due moves, or make them with --apply."
)
@cluster_options
@click.option("--interval", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds between rounds.")
@click.option("--rounds", type=click.IntRange(0), default=0, show_default=True, help="Of --watch; 0: until Ctrl-C.")
@click.option(
    "--moves-per-hour", type=click.IntRange(0, MAX_MOVES), default=60, show_default=True, help="Pods of --watch."
)
@click.option(
    "--stable", type=click.FloatRange(0), default=600.0, show_default=True,
    help="Seconds in which each round must have been able to free a node, before --watch does.",
)  # fmt: skip
@click.option("--reserve", type=click.FloatRange(0, 0.9), default=0.1, show_default=True, help="Share kept free.")
@click.option(
    "--most-moves", type=click.IntRange(0, MAX_MOVES), default=1000, show_default=True, help="Pods of the whole plan."
)
@click.option(
    "--moves-per-node", type=click.IntRange(0, MAX_MOVES), default=50, show_default=True, help="Pods for one node."
)
@click.option(
    "--minimum-age", type=click.FloatRange(0), default=600.0, show_default=True, help="Seconds a pod has run."
)
@click.option(
    "--exclude-namespace", multiple=True, default=("kube-system",), show_default=True, help="May be given again."
)
@click.option("--exclude-node", multiple=True, help="Node that is not to be freed; may be given again.")
@click.option(
    "--exclude-pool", multiple=True, metavar="LABEL=VALUE",
    help="Nodes with this label are not to be freed; may be given again.",
)  # fmt: skip
@click.option("--move-local-storage", is_flag=True, help="Move pods with emptyDir or hostPath volumes, too.")
@click.option("--move-unwilling", is_flag=True, help="Move pods that prefer not to be evicted, too.")
@click.option(
    "--move-gangs", is_flag=True, help="Move gangs that can spare no pod, each whole, off the one node it is on."
)
@click.option("--prices", type=click.Path(path_type=Path), help="YAML: instance type, or 'default', to price an hour.")
@click.option("--idle-watts", type=click.FloatRange(0), default=93.7, show_default=True, help="Of an idle node.")
@click.option("--timeout", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds for each pod.")
@output_option
def command(
    only_plan: bool,
    carry: bool,
    undo: bool,
    ledger: Path | None,
    at: float | None,
    kubeconfig: str | None,
    context: str | None,
    output: str,
    **options: Any,
) -> int:
    """Plan which nodes can be freed with the fewest moves; --apply carries it out, --watch continues.

    Every scheduling rule, disruption budgets and the owners' rules on eviction hold.
    """
    _check(only_plan, carry, undo, ledger, options)
    if options["watch"]:
        from cotide_cli.consolidation.watch import watch

        chosen = {**options, "carry": carry, "output": output}
        return watch(planner(options), kubeconfig, context, chosen)
    prices = _prices(options["prices"])
    if carry or undo:
        left = run_until_told(_carrier(kubeconfig, context, options["timeout"]).undo(), LEFT_CORDONED)
        if undo:
            click.echo(
                as_text({"uncordoned": left}, output)
                if output != "table"
                else f"{counted(len(left), 'node')} uncordoned"
            )
            return 0
    picture = read_picture(ledger, at, kubeconfig, context, options["config"])
    _pods_that_wait(picture, carry)
    plan, lines, more = _explained(options, picture)
    data = _as_data(plan, picture, prices, options["idle_watts"])
    data |= {"notFreed": [camel_cased(line) for line in lines], "notFreedBeside": more}
    if output == "table":
        _print(plan, data)
    if carry:
        data["carried"] = carried = _carry_out(plan, picture, kubeconfig, context, options["timeout"])
        if output == "table":
            click.echo(f"freed {counted(len(carried['freed']), 'node')}, moved {counted(len(carried['moved']), 'pod')}")
    if output != "table":
        click.echo(as_text(data, output))
    surprise = data.get("carried", {}).get("surprise", "")
    if surprise:
        click.echo(f"cotide: stopped: {surprise}", err=True)
    return 1 if surprise else 0


def _pods_that_wait(picture: Picture, carry: bool) -> None:
    """Print the effect of waiting pods on the plan.

    Raises
    ------
    ClusterError
        With `carry`, when a waiting pod would fit on some empty node.
    """
    if not picture.waiting:
        return
    waiting = counted(len(picture.waiting), "pod waits", "pods wait")
    if not picture.holds_up():
        click.echo(f"cotide: {waiting}, and no node could take any, were it empty: this holds up nothing", err=True)
    elif carry:
        raise ClusterError(f"{waiting} for a node: nothing is consolidated while any does")
    else:
        click.echo(f"cotide: {waiting} for a node; --apply would change nothing while any does", err=True)


def _check(only_plan: bool, carry: bool, undo: bool, ledger: Path | None, options: Mapping[str, Any]) -> None:
    for name in NUMBERS:
        if not isfinite(options[name]):
            raise InputError(f"{options[name]:g} is no number", field=f"--{name.replace('_', '-')}")
    if undo and (only_plan or carry or ledger is not None):
        raise InputError(
            "changes a live cluster and ends: neither --plan, --apply nor --ledger goes with it", field="--undo"
        )
    if carry and (only_plan or ledger is not None):
        raise InputError("changes a live cluster: neither --plan nor --ledger goes with it", field="--apply")
    if options["watch"] and (only_plan or undo or ledger is not None):
        raise InputError("follows a live cluster: neither --plan, --undo nor --ledger goes with it", field="--watch")


def planner(options: Mapping[str, Any]) -> Callable[[Picture], DrainPlan]:
    """Return the function that plans one picture after the other.

    An excluded node must exist the first time; it may disappear later.
    """
    from cotide_core.consolidation.removal.drain_plan import drain_plan

    laid_out = _layout(options)
    return lambda picture: drain_plan(*laid_out(picture))


def _explained(options: Mapping[str, Any], picture: Picture) -> tuple[DrainPlan, tuple[Left, ...], int]:
    """Return the plan, the reasons for at most `SHOWN_NODES` other nodes to stay, and the number of further nodes."""
    from cotide_core.consolidation.removal.drain_plan import drain_plan
    from cotide_core.consolidation.removal.not_freed import not_freed

    columns, rules, excluded = _layout(options)(picture)
    plan = drain_plan(columns, rules, excluded)
    return plan, *not_freed(columns, rules, plan, excluded, SHOWN_NODES, picture.kept_nodes)


def _layout(options: Mapping[str, Any]) -> Callable[[Picture], tuple[RemovalColumns, MoveRules, Booleans]]:
    """Return the function that prepares a picture for a plan and the set of excluded nodes."""
    known: set[str] = set()
    pools = _pools(options["exclude_pool"])

    def laid_out(picture: Picture) -> tuple[RemovalColumns, MoveRules, Booleans]:
        import numpy as np

        from cotide_core.consolidation.removal.columns import columns_of
        from cotide_core.consolidation.removal.not_freed import in_pools
        from cotide_core.consolidation.removal.outlook import outlook_of
        from cotide_core.consolidation.removal.stays import MoveRules

        rules = MoveRules(
            excluded_namespaces=frozenset(options["exclude_namespace"]),
            minimum_age_seconds=options["minimum_age"],
            local_storage=options["move_local_storage"],
            prefer_no_eviction=options["move_unwilling"],
            reserve_share=options["reserve"],
            most_moves=options["most_moves"],
            moves_per_node=options["moves_per_node"],
            gang_most=options["moves_per_node"] if options["move_gangs"] else 0,
        )
        outlook = outlook_of(picture.state, picture.now, picture.config.qos_risk_threshold)
        columns = columns_of(picture.state, picture.constraints(rules), picture.now, outlook)
        excluded = np.zeros(columns.nodes, np.bool_)
        there = set(columns.names)
        for name in options["exclude_node"]:
            if name not in there | known:
                raise InputError(f"no node is called {name!r}", field="--exclude-node")
        known.update(options["exclude_node"])
        excluded[columns.rows([name for name in options["exclude_node"] if name in there])] = True
        # A node that is already cordoned belongs to the person that cordoned it.
        for row, node in enumerate(picture.state.columns.nodes):
            kept = node is not None and (node.name in picture.kept_nodes or in_pools(node, pools))
            excluded[row] |= kept or (node is not None and node.unschedulable)
        return columns, rules, excluded

    return laid_out


def _pools(given: Sequence[str]) -> dict[str, set[str]]:
    pools: dict[str, set[str]] = {}
    for text in given:
        label, sign, value = text.partition("=")
        if not (label and sign):
            raise InputError(f"wants LABEL=VALUE, not {text!r}", field="--exclude-pool")
        pools.setdefault(label, set()).add(value)
    return pools


def _prices(path: Path | None) -> dict[str, float]:
    if path is None:
        return {}
    from cotide_operator.config.yaml_lines import load, read

    try:
        found, lines = load(read(path), str(path))
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is no YAML: {error}", file=str(path)) from error
    if not isinstance(found, dict):
        raise InputError("wants instance types and prices an hour", file=str(path))
    for name, price in found.items():
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < 1e9:
            line = lines.get((str(name),))
            raise InputError(f"wants a price of 0 and more, not {price!r}", file=str(path), line=line, field=str(name))
    return {str(name): float(price) for name, price in found.items()}


def _as_data(plan: DrainPlan, picture: Picture, prices: Mapping[str, float], idle_watts: float) -> dict[str, Any]:
    from cotide_core.consolidation.removal.scenario import INSTANCE_TYPE
    from cotide_operator.consolidation.picture import instance_types

    nodes = [node for node in picture.state.columns.nodes if node is not None]
    types = instance_types(nodes, INSTANCE_TYPE)
    priced = [prices.get(types.get(freed.node, ""), prices.get(DEFAULT_PRICE)) for freed in plan.freed]
    return {
        "nodes": {"used": plan.used_before, "after": plan.used_after, "atLeast": plan.fewest, "all": len(nodes)},
        "moves": plan.moves,
        "saves": {
            "cores": sum(freed.millicores for freed in plan.freed) / 1000,
            "gib": round(sum(freed.memory_bytes for freed in plan.freed) / GIB, 1),
            "idleWatts": round(idle_watts * len(plan.freed), 1),
            "priceAnHour": round(sum(value for value in priced if value is not None), 4) if prices else None,
            "nodesWithoutPrice": sum(value is None for value in priced) if prices else None,
        },
        "freed": [_without_empty(camel_cased(freed), "together") for freed in plan.freed],
        "emptying": [camel_cased(emptying) for emptying in plan.emptying],
        "kept": [camel_cased(left) for left in plan.kept],
        "risks": _risks(plan, picture),
    }


def _without_empty(data: dict[str, Any], key: str) -> dict[str, Any]:
    """Leave out empty values."""
    return data if data[key] else {name: value for name, value in data.items() if name != key}


def _risks(plan: DrainPlan, picture: Picture) -> list[str]:
    """Return the risks of a move, in sentences: single replicas, and budgets that it uses."""
    alone = []
    budgets: dict[str, int] = {}
    members: dict[str, int] = {}
    for owner in picture.owners.values():
        members[owner] = members.get(owner, 0) + 1
    for freed in plan.freed:
        for move in freed.moves:
            if members.get(picture.owners.get(move.pod, ""), 0) == 1:
                alone.append(move.pod)
            for budget in picture.facts[move.pod].budgets:
                budgets[budget] = budgets.get(budget, 0) + 1
    found = [f"pod {pod} is its controller's only one: it is away while it moves" for pod in alone]
    found += [
        f"{len(gang)} pods of a gang, {gang[0]} among them, leave {freed.node} at once: none works meanwhile"
        for freed in plan.freed
        for gang in freed.together
    ]
    return found + [f"disruption budget {name} is drawn on {count} times" for name, count in sorted(budgets.items())]


def _print(plan: DrainPlan, data: Mapping[str, Any]) -> None:
    nodes, saves = data["nodes"], data["saves"]
    click.echo(
        f"{nodes['used']} of {counted(nodes['all'], 'node')} in use -> {nodes['after']} (at least {nodes['atLeast']} "
        f"by volume), {counted(data['moves'], 'pod moves', 'pods move')}"
    )
    price = "" if saves["priceAnHour"] is None else f", {saves['priceAnHour']:g} an hour"
    click.echo(f"saves {saves['cores']:g} cores, {saves['gib']:g} GiB, {saves['idleWatts']:g} W idle{price}")
    if plan.freed:
        print_lines([["free", "pods", "cores", "GiB"]] + [
            [freed.node, str(len(freed.moves)), f"{freed.millicores / 1000:g}", f"{freed.memory_bytes / GIB:.1f}"]
            for freed in plan.freed
        ])  # fmt: skip
    moves = [[move.pod, move.source, move.target] for freed in plan.freed for move in freed.moves]
    if moves:
        print_lines([["pod", "from", "to"], *moves])
    for emptying in plan.emptying:
        click.echo(
            f"cordon {emptying.node} and wait: empty in {_minutes(emptying.p50_seconds)}, "
            f"p90 {_minutes(emptying.p90_seconds)}"
        )
    if plan.kept:
        print_lines([["stays", "for pod", "since"]] + [[left.node, left.pod, left.why] for left in plan.kept])
    if data["notFreed"]:
        lines = [[one["node"], one["pod"] or "-", one["why"]] for one in data["notFreed"]]
        print_lines([["in use", "for pod", "since"], *lines])
    if data["notFreedBeside"]:
        click.echo(f"and {counted(data['notFreedBeside'], 'node')} more in use")
    for risk in data["risks"]:
        click.echo(f"risk: {risk}")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def _carrier(
    kubeconfig: str | None, context: str | None, timeout: float, goes: frozenset[str] = frozenset()
) -> Carrier:
    import asyncio

    from cotide_operator.consolidation.carrier import Carrier
    from cotide_operator.consolidation.official_client import OfficialClient

    return Carrier(
        OfficialClient(kubeconfig, context),
        timeout_seconds=timeout,
        now=time.monotonic,
        sleep=asyncio.sleep,
        goes=goes,
        say=lambda text: click.echo(text, err=True),
    )


def _carry_out(
    plan: DrainPlan, picture: Picture, kubeconfig: str | None, context: str | None, timeout: float
) -> dict[str, Any]:
    # Pods that are already terminating need no node, like those of DaemonSets.
    going = {pod_record.pod.key for pod_record in picture.state.records() if pod_record.pod.terminating}
    goes = frozenset(going | {key for key, facts in picture.facts.items() if facts.goes_with_node})
    uids = {record.pod.key: record.pod.uid for record in picture.state.records()}
    carrier = _carrier(kubeconfig, context, timeout, goes)
    return camel_cased(run_until_told(carrier.carry_out(plan.freed, uids), LEFT_CORDONED))
