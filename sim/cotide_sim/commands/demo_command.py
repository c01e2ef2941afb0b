"""`cotide demo`: the whole system on one machine, and the result of each policy on the same arrivals."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from cotide_cli.inputs.checked_types import SEED
from cotide_cli.printing import as_text, output_option
from cotide_core.errors import CotideError, InputError
from cotide_core.units import counted, format_seconds
from cotide_sim.demo import act
from cotide_sim.demo.live import LiveView
from cotide_sim.demo.options import DEFAULT_POLICIES, PAGE, SPEED, DemoOptions, checked, parse_policies
from cotide_sim.demo.page import write_page
from cotide_sim.demo.preparation import prepare
from cotide_sim.demo.stage import raised, say_to_stderr
from cotide_sim.demo.summary import PolicyOutcome, as_data, print_tables
from cotide_sim.demo.verdict import verdict_of
from cotide_sim.pages.origin import made
from cotide_sim.workloads.scenarios import SCENARIOS, SLOT_SECONDS, Scenario


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Directory of real traces; without it, generators.")
@click.option("--seconds", type=float, default=45.0, show_default=True, help="Wall-clock seconds for each policy.")
@click.option("--nodes", type=int, default=40, show_default=True, help="Fake nodes.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of arrivals and draws.")
@click.option("--policies", default=",".join(DEFAULT_POLICIES), show_default=True, help="Which to run, in order.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Keep each policy's ledger in DIR/POLICY.")
@click.option("--page", type=click.Path(path_type=Path), default=PAGE, show_default=True, help="HTML page to write.")
@click.option("--speed", type=float, default=SPEED, show_default=True, help="Simulated seconds for each second.")
@click.option("--check", is_flag=True, help="Exit 3 when an objective is missed, 1 when the machine was too busy.")
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    help="Kind of services. Default: slack if a policy uses slack (as predictive does), else latency.",
)
@output_option
def command(
    data: Path | None,
    seconds: float,
    nodes: int,
    seed: int,
    policies: str,
    ledger: Path | None,
    page: Path,
    speed: float,
    check: bool,
    scenario: Scenario | None,
    output: str,
) -> int:
    """Start an API server, fake nodes and the operator; run Workloads and Jobs; compare policies.

    \b
    Scenarios (same jobs, same arrivals):
      latency  A few services use less than they request. Jobs next to them break their latency limits.
      slack    Services request half of the cluster, use less on average and more for moments. Requests are as the
               Vertical Pod Autoscaler recommends. Usage is that of real machines (with --data) or generated.

    An overload slot is 25 simulated seconds of a node. In it, real online usage plus the allocation of batch and gratis
    pods exceeded the node at least once.

    \b
    Objectives of --check, each where its policies run:
      Services of predictive are over their limit for at most a quarter of the time of fifo's and random's.
      Predictive and hierarchical overload fewer slots than fifo and evict no online pod.
      In the scenario latency, qpsm keeps to that quarter, too, and its jobs wait less in all than under either
      guarded policy.
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
            page=page,
            speed=speed,
        )
    )
    with _workspace() as workspace:
        outcomes = asyncio.run(_interruptible(options, workspace))
    figures = {name: outcome.figures for name, outcome in outcomes.items()}
    late = {name: outcome.late_seconds for name, outcome in outcomes.items()}
    verdict = verdict_of(figures, late, options.scenario, options.speed)
    if options.output == "table":
        print_tables(Console(), outcomes)
        click.echo(f"\n{verdict.sentence}")
    else:
        click.echo(as_text({**_document(options, outcomes), "verdict": asdict(verdict)}, options.output))
    for fault in verdict.missed or ():
        say_to_stderr(f"objective missed: {fault}")
    # Last: if the disk is full by now, the figures are already printed.
    write_page(page, outcomes, verdict, made(), described=_described(options))
    say_to_stderr(f"the page of it is {page}")
    if ledger is not None:
        say_to_stderr(f"decide it all again with: cotide replay {ledger / options.policies[0]}")
    if not check:
        return 0
    return 1 if verdict.missed is None else 3 if verdict.missed else 0


@contextmanager
def _workspace() -> Iterator[Path]:
    """Make a folder for logs, models and ledgers; it is removed at the end, except after a failure of the demo."""
    folder = Path(tempfile.mkdtemp(prefix="cotide-demo-"))
    try:
        yield folder
    except InputError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except CotideError:
        say_to_stderr(f"logs are in {folder}")
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _described(options: DemoOptions) -> str:
    return (
        f"{counted(options.nodes, 'fake node')}, {format_seconds(options.simulated_seconds)} a policy by a clock "
        f"{options.speed:g} times as fast, seed {options.seed}, scenario {options.scenario}, "
        + ("arrivals and interference from generators." if options.data is None else "arrivals from real traces.")
    )


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
