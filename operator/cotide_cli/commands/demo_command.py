"""`cotide demo`: the whole system on one machine, and what each policy makes of the same arrivals."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from cotide_cli.demo import act
from cotide_cli.demo.live import LiveView
from cotide_cli.demo.options import DEFAULT_POLICIES, DemoOptions, checked, parse_policies
from cotide_cli.demo.preparation import prepare
from cotide_cli.demo.stage import raised, say_to_stderr
from cotide_cli.demo.summary import PolicyOutcome, as_data, print_tables
from cotide_cli.printing import as_text
from cotide_sim.workloads.scenarios import SCENARIOS, SLOT_SECONDS, Scenario


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Directory of real traces; without it, generators.")
@click.option("--seconds", type=float, default=45.0, show_default=True, help="Wall-clock seconds for each policy.")
@click.option("--nodes", type=int, default=40, show_default=True, help="Fake nodes.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of arrivals and draws.")
@click.option("--policies", default=",".join(DEFAULT_POLICIES), show_default=True, help="Which to run, in order.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Keep each policy's ledger in DIR/POLICY.")
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    help="What the services are like. Default: slack if a policy goes by slack (as hierarchical does), else latency.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def command(
    data: Path | None,
    seconds: float,
    nodes: int,
    seed: int,
    policies: str,
    ledger: Path | None,
    scenario: Scenario | None,
    output: str,
) -> None:
    """Start an API server, fake nodes and the operator; run Workloads and Jobs; compare policies.

    \b
    Scenarios (same jobs, same arrivals):
      latency  few services that use less than they ask for; jobs beside them break their latency limits
      slack    services ask for half of the cluster, use less on average and more for moments: requests as the
               Vertical Pod Autoscaler recommends, use as of real machines (with --data) or generated

    An overload slot is 25 simulated seconds of a node in which real online use and what batch and gratis pods are
    allocated exceeded the node at least once.
    """
    options = checked(
        DemoOptions(
            seconds=seconds,
            nodes=nodes,
            seed=seed,
            policies=parse_policies(policies),
            data=data,
            ledger=ledger,
            output=output,
            named_scenario=scenario,
        )
    )
    # Kept after the demo: the ledgers and logs in it are what a user looks at next.
    workspace = Path(tempfile.mkdtemp(prefix="cotide-demo-"))
    outcomes = asyncio.run(_interruptible(options, workspace))
    if options.output == "table":
        print_tables(Console(), outcomes)
    else:
        click.echo(as_text(_document(options, outcomes), options.output))
    first = next(iter(outcomes.values())).ledger
    say_to_stderr(f"logs are in {workspace}; decide it all again with: cotide replay {first}")


def _document(options: DemoOptions, outcomes: dict[str, PolicyOutcome]) -> dict[str, Any]:
    return as_data(
        options.seed, options.nodes, outcomes, scenario=options.scenario, slot_seconds=SLOT_SECONDS
    )  # fmt: skip


async def _interruptible(options: DemoOptions, workspace: Path) -> dict[str, PolicyOutcome]:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C: children end in order. After SIGKILL they end by themselves."""
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await _run(options, workspace)
    except asyncio.CancelledError:
        raise click.Abort from None


async def _run(options: DemoOptions, workspace: Path) -> dict[str, PolicyOutcome]:
    prepared = await asyncio.to_thread(prepare, options, workspace, say_to_stderr)
    outcomes: dict[str, PolicyOutcome] = {}
    console = Console(stderr=True)
    ledgers = (options.ledger or workspace / "ledger").resolve()
    async with raised(options, prepared, workspace, say_to_stderr) as stage:
        await act.make_namespace(stage)
        for number, policy in enumerate(options.policies, start=1):
            view = LiveView(console, number, len(options.policies))
            outcomes[policy] = await act.play(stage, prepared.plan, policy, ledgers / policy, view)
    return outcomes
