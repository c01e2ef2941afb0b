"""`cotide capacity`: the machines by type that the cluster needs in the next hours, and one step of the plan.

Called by `main`. Reads the API server, the configuration's ``provisioning`` section and, where given, a history of
tasks; plans; prints. With ``--apply`` the plan's first step is carried out once through the configured actuator: run it
every step, from a CronJob for example. Invariant: without ``--apply`` nothing is written anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from cotide_cli.printing import as_text, output_option, print_lines
from cotide_cli.stopping import run_until_told
from cotide_core.errors import InputError
from cotide_core.units import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cotide_core.provisioning.node_orders import OrderBook
    from cotide_kube.client import KubeClient
    from cotide_operator.config.metric_settings import PrometheusSourceSettings
    from cotide_operator.config.provisioning_settings import ActuatorSettings, ProvisioningSettings
    from cotide_operator.provisioning.advice import Advice, History
    from cotide_operator.provisioning.carrying import BookStore
    from cotide_operator.provisioning.cluster_view import ClusterView

    Floats = NDArray[np.float64]


@click.command(name="capacity")
@click.option(
    "--config",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file with a provisioning section (docs/features/capacity.md).",
)
@click.option("--history", type=click.Path(path_type=Path, dir_okay=False), help="CSV of tasks that have ended.")
@click.option("--plan", "plan_only", is_flag=True, help="Print the plan and change nothing; the default.")
@click.option("--apply", "apply_it", is_flag=True, help="Carry out the first step, once.")
@click.option("--dry-run", is_flag=True, help="With --apply: show the requests, and send nothing.")
@click.option("-n", "--namespace", help="Where the book of node orders is kept; that of the context if not given.")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="Default: $KUBECONFIG, in-cluster, ~/.kube/config.",
)
@click.option("--context", help="Context of the kubeconfig.")
@output_option
def command(
    config: Path,
    history: Path | None,
    plan_only: bool,
    apply_it: bool,
    dry_run: bool,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Plan how many machines of each type should be on in the next hours, with quantiles of demand and cost."""
    from cotide_operator.config.settings import read_settings

    if plan_only and apply_it:
        raise InputError("can't be given together with --apply", field="--plan")
    if dry_run and not apply_it:
        raise InputError("shows the effect of --apply, which is not given", field="--dry-run")
    whole = read_settings(config)
    settings = whole.provisioning
    if settings is None:
        raise InputError("has no provisioning section", file=str(config), field="provisioning")
    if apply_it and settings.actuator is None:
        raise InputError("names no actuator: nothing can be applied", file=str(config), field="provisioning.actuator")
    past = None if history is None else read_history(history)
    asked = None if whole.metrics_source is None else whole.metrics_source.prometheus
    found = run_until_told(_run(settings, asked, past, apply_it, dry_run, namespace, kubeconfig, context))
    if output == "table":
        _print(settings, found, dry_run)
    else:
        click.echo(as_text(_as_data(settings, found, dry_run), output))


class _Found(NamedTuple):
    """The plan, its input, and the requests that were or would be sent; ``hopeless``: pods larger than any machine."""

    advice: Advice
    view: ClusterView
    sent: list[str] | None
    hopeless: int


def read_history(path: Path) -> History:
    """Read tasks that have ended: columns arrival_seconds, run_seconds, cpu_millicores, memory_bytes, priority.

    Raises
    ------
    InputError
        When the file is missing or a row is broken; names file, line and column.
    """
    from cotide_files.columns import read_table
    from cotide_operator.provisioning.advice import History

    table = read_table(path, numbers=tuple(_LARGEST), texts=("priority",))
    for name, most in _LARGEST.items():
        over = np.flatnonzero(table.numbers[name] > most)
        if len(over):
            raise InputError(f"is above {most:g}", file=str(path), line=table.lines[over[0]], field=name)
    priority = np.array(
        [_priority(text, path, line) for text, line in zip(table.texts["priority"], table.lines, strict=True)]
    )
    arrival, seconds, cpu, memory = (table.numbers[name] for name in _LARGEST)
    return History(arrival, np.maximum(seconds, 1.0), np.column_stack((cpu, memory)), priority)


_LARGEST = {"arrival_seconds": 1e11, "run_seconds": 1e9, "cpu_millicores": 1e9, "memory_bytes": 1e16}
"""Largest values of a history's columns: more is an error of units, for example times in milliseconds."""


def _priority(text: str, path: Path, line: int) -> float:
    """Return a pod's priority, which may be below 0."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not abs(value) <= 2.0**31:
        raise InputError(f"{text[:30]!r} is not a priority of a pod", file=str(path), line=line, field="priority")
    return value


async def _run(
    settings: ProvisioningSettings,
    prometheus: PrometheusSourceSettings | None,
    history: History | None,
    apply_it: bool,
    dry_run: bool,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> _Found:
    from cotide_kube.client import ANSWER_SECONDS, KubeClient
    from cotide_kube.credentials import load_credentials
    from cotide_kube.objects import NodeObject, PodObject
    from cotide_kube.plain_objects import all_checked, those_checked
    from cotide_operator.provisioning.advice import Underway, advise, machine_types
    from cotide_operator.provisioning.carrying import BookStore
    from cotide_operator.provisioning.cluster_view import view_of, without_hopeless

    credentials = load_credentials(kubeconfig, context)
    async with KubeClient(credentials, timeout_seconds=ANSWER_SECONDS, asks_silence_again=False) as client:
        nodes, pods = await asyncio.gather(client.list("/api/v1/nodes"), client.list("/api/v1/pods"))
        nodes, odd = those_checked(nodes, NodeObject, "node")  # a skipped node stays unchanged
        for warning in odd:
            click.echo(f"cotide: {warning}", err=True)
        pods = all_checked(
            pods, PodObject, "pod"
        )  # skipping an invalid pod might make its node look empty, and stop it
        now = time.time()
        kinds = [kind.name for kind in settings.machine_types]
        where = namespace or credentials.namespace
        freed = _freed(nodes)
        ours = set(freed)
        if settings.actuator is not None and not settings.actuator.scales:
            book = await _book(BookStore(client, where), needed=apply_it)
            ours |= {*book.draining, *book.opening}
        machines = np.array([kind.capacity for kind in machine_types(settings)])
        lost = _lost(nodes, settings)
        seen = view_of(nodes, pods, settings.node_type_label, kinds, now, ours, freed, lost=lost)
        view, hopeless = without_hopeless(seen, machines)
        there = Counter((item["metadata"].get("labels") or {}).get(settings.node_type_label) for item in nodes)
        counted = Counter(node.kind for node in view.nodes)
        away = {kind: there[kind] - counted[kind] for kind in kinds}
        price = await _prices(settings, prometheus, now)
        advice = advise(settings, view, history, Underway(away=away), price=price, moves=False)
        if not apply_it or settings.actuator is None:
            return _Found(advice, view, None, hopeless)
        if settings.actuator.scales:
            opened = await _open(client, advice, view, dry_run)
            sent = opened + await _scale(settings.actuator, advice, away, kubeconfig, context, dry_run)
        else:
            sent = await _order(client, settings, advice, view, where, now, dry_run)
        return _Found(advice, view, sent, hopeless)


async def _book(store: BookStore, *, needed: bool) -> OrderBook:
    """Return the book of orders; an empty one if it can't be read and only a plan is requested."""
    from cotide_core.provisioning.node_orders import OrderBook
    from cotide_kube.answers import ApiError

    try:
        return await store.load()
    except ApiError as error:
        if needed or error.status not in (401, 403):
            raise
        return OrderBook()


def _freed(nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the nodes that consolidation has freed."""
    from cotide_operator.consolidation.carrier import FREED, MARK

    metadata = (node["metadata"] for node in nodes)
    return {one["name"] for one in metadata if (one.get("annotations") or {}).get(MARK) == FREED}


def _lost(nodes: Sequence[Mapping[str, Any]], settings: ProvisioningSettings) -> set[str]:
    """Return the nodes that have been not ready for longer than a boot may take, by the operator's rule."""
    import msgspec

    from cotide_kube.objects import NodeObject
    from cotide_operator.clock import ScaledClock
    from cotide_operator.provisioning.live_view import nodes_of

    readable: dict[str, NodeObject] = {}
    for node in nodes:
        with contextlib.suppress(msgspec.ValidationError):  # an invalid node does not count as lost
            readable[node["metadata"]["name"]] = msgspec.convert(node, NodeObject)
    known, _ = nodes_of(readable, settings, ScaledClock())
    return {node_now.view.name for node_now in known if node_now.lost}


async def _prices(
    settings: ProvisioningSettings, prometheus: PrometheusSourceSettings | None, now: float
) -> Floats | None:
    """Return money for a kWh at each step from a file or Prometheus; an invalid value ends the command."""
    from cotide_operator.provisioning.energy_prices import read_prices, step_prices

    if settings.energy_prices is None:
        return None
    table = await read_prices(settings.energy_prices, prometheus, now)
    return step_prices(settings, table, now)


async def _order(
    client: KubeClient,
    settings: ProvisioningSettings,
    advice: Advice,
    view: ClusterView,
    namespace: str,
    now: float,
    dry_run: bool,
) -> list[str]:
    """Take one turn of the book of orders with the command or the webhook."""
    import aiohttp

    from cotide_operator.provisioning.actuators import CommandActuator, WebhookActuator
    from cotide_operator.provisioning.carrying import BookStore, carry_out

    chosen = settings.actuator
    assert chosen is not None  # noqa: S101 - for mypy: checked where the command begins
    wanted = {kind: int(count) for kind, count in zip(advice.kinds, advice.plan.machines[0], strict=True)}
    async with aiohttp.ClientSession() as session:
        actuator: CommandActuator | WebhookActuator
        if chosen.command:
            actuator = CommandActuator(chosen.command, chosen.timeout_seconds)
        else:
            actuator = WebhookActuator(session, chosen.url, chosen.timeout_seconds)
        done = await carry_out(
            BookStore(client, namespace),
            client,
            actuator,
            wanted,
            view.nodes,
            now,
            boot_deadline_seconds=settings.boot_deadline_seconds,
            closed=view.closed,
            others=view.others,
            dry_run=dry_run,
        )
    return [
        f"{node_instruction.action.value} {node_instruction.subject} ({node_instruction.kind})"
        for node_instruction in done
    ]


async def _open(client: KubeClient, advice: Advice, view: ClusterView, dry_run: bool) -> list[str]:
    """Uncordon wanted nodes that were freed; they count as on, and no replicas are raised for them."""
    from cotide_operator.provisioning.carrying import open_node

    sent = []
    for kind, on, wanted in zip(advice.kinds, advice.on, advice.plan.machines[0], strict=True):
        freed = [node.name for node in view.nodes if node.kind == kind and node.freed and node.cordoned]
        for name in freed[: max(int(wanted - (on - len(freed))), 0)]:
            if not dry_run:
                await open_node(client, name)
            sent.append(f"uncordon {name} ({kind})")
    return sent


async def _scale(
    actuator: ActuatorSettings,
    advice: Advice,
    away: Mapping[str, int],
    kubeconfig: str | None,
    context: str | None,
    dry_run: bool,
) -> list[str]:
    """Raise replicas where more machines are wanted than are on; replicas include unavailable machines."""
    from cotide_kube.official import connect
    from cotide_operator.provisioning.actuators import ScaleSubresource

    api = await asyncio.to_thread(connect, kubeconfig, context, retries=False)
    scales = ScaleSubresource(api, actuator.scales, actuator.timeout_seconds)
    sent = []
    for kind, on, wanted in zip(advice.kinds, advice.on, advice.plan.machines[0], strict=True):
        if kind not in actuator.scales or wanted <= on:
            continue
        replicas = int(wanted) + away[kind]
        if dry_run or await scales.raise_to(kind, replicas):
            sent.append(f"raise {actuator.scales[kind]} to {replicas} ({kind})")
    return sent


def _as_data(settings: ProvisioningSettings, found: _Found, dry_run: bool) -> dict[str, Any]:
    advice, plan = found.advice, found.advice.plan
    steps = [
        {
            "afterSeconds": index * settings.step_seconds,
            "machines": dict(zip(advice.kinds, map(int, row), strict=True)),
            "demand": {
                name: dict(zip(map(str, advice.probabilities), map(float, levels), strict=True))
                for name, levels in zip(advice.classes, advice.demand[index], strict=True)
            },
            "unserved": float(plan.unserved[index].sum()),
        }
        for index, row in enumerate(plan.machines)
    ]
    return {
        "on": dict(zip(advice.kinds, map(int, advice.on), strict=True)),
        "steps": steps,
        "cost": plan.cost,
        "worthOfOneMachineMore": dict(zip(advice.kinds, map(float, plan.worth_of_machine), strict=True)),
        "unknownNodes": list(found.view.unknown),
        "hopelessPods": found.hopeless,
        "sent": found.sent,
        "dryRun": dry_run,
    }


def _print(settings: ProvisioningSettings, found: _Found, dry_run: bool) -> None:
    advice, plan, sent = found.advice, found.advice.plan, found.sent
    lines = [["in minutes", *advice.kinds, "containers p50", "p95", "p99", "not served"]]
    lines.append(["on now", *(f"{count:.0f}" for count in advice.on), "", "", "", ""])
    for index, row in enumerate(plan.machines):
        total = advice.demand[index].sum(axis=0)
        levels = [f"{total[advice.probabilities.index(level)]:.0f}" for level in (0.5, 0.95, 0.99)]
        minutes = f"{index * settings.step_seconds / 60:.0f}"
        lines.append([minutes, *(f"{count:.0f}" for count in row), *levels, f"{plan.unserved[index].sum():.1f}"])
    print_lines(lines)
    hours = settings.step_seconds * settings.horizon_steps / 3600
    click.echo(f"  classes: {'; '.join(advice.classes)}")
    click.echo(f"  energy, rent and switching of the next {hours:g} h: {plan.cost:.2f}")
    for kind, worth in zip(advice.kinds, plan.worth_of_machine, strict=True):
        if worth > 0:
            click.echo(f"  one {kind} more would save {worth:.4f}")
    if found.view.unknown:
        click.echo(f"  unchanged, of no known type, cordoned by a person or not ready: {', '.join(found.view.unknown)}")
    if found.hopeless:
        click.echo(f"  {counted(found.hopeless, 'pod is', 'pods are')} larger than any machine: nothing is on for them")
    if sent is None:
        click.echo("  advice only: nothing was changed")
    else:
        outcome = "would be sent" if dry_run else "sent"
        click.echo("\n".join(f"  {outcome}: {text}" for text in sent) if sent else f"  nothing {outcome}")
