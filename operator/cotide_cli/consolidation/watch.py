"""`watch`: shows the consolidation of each round, or carries it out, until Ctrl-C.

Called by `consolidate_command`. Each round is a table, a line of JSON, or a YAML document. After the first round, an
absent API server ends the current round only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from cotide_cli.printing import as_text, camel_cased
from cotide_cli.stopping import StoppedError, run_until_told
from cotide_core.errors import ClusterError
from cotide_core.units import counted

if TYPE_CHECKING:
    from cotide_core.consolidation.removal.drain_plan import DrainPlan
    from cotide_operator.consolidation.carrier import Carried
    from cotide_operator.consolidation.picture import Picture
    from cotide_operator.consolidation.rounds import Round, Rounds

LEFT_CORDONED: Final = "nodes may be left cordoned: the next run of --watch --apply uncordons them"


def watch(
    plan: Callable[[Picture], DrainPlan], kubeconfig: str | None, context: str | None, options: Mapping[str, Any]
) -> int:
    """Run round after round; return the exit code.

    Parameters
    ----------
    plan : of a picture. options : those of the command: ``carry``, ``interval``, ``rounds``, ``moves_per_hour``,
        ``stable``, ``timeout``, ``config`` and ``output``.

    Raises
    ------
    ClusterError
        When the first round can't be read, or the operator holds nodes that ``--apply`` would take.
    """
    from cotide_core.consolidation.removal.watching import WatchRules
    from cotide_operator.clock import real_clock
    from cotide_operator.config.settings import read_settings
    from cotide_operator.consolidation.carrier import Carrier
    from cotide_operator.consolidation.rounds import Rounds
    from cotide_operator.consolidation.watch_hands import WatchHands

    clock = real_clock()
    hands = WatchHands(clock, kubeconfig, context, read_settings(options["config"]))
    goes: set[str] = set()
    carrier = Carrier(
        hands,
        timeout_seconds=options["timeout"],
        now=time.monotonic,
        sleep=asyncio.sleep,
        goes=goes,
        say=lambda text: click.echo(text, err=True),
    )
    pace = WatchRules(moves_per_hour=options["moves_per_hour"], stable_seconds=options["stable"])
    rounds = Rounds(hands, clock, plan, pace, carrier if options["carry"] else None, goes)
    with contextlib.suppress(StoppedError):
        run_until_told(_follow(rounds, options), LEFT_CORDONED if options["carry"] else "")
    return 0


async def _follow(rounds: Rounds, options: Mapping[str, Any]) -> None:
    carry, number = options["carry"], 0
    if carry:
        await rounds.begin()
    try:
        while True:
            try:
                seen = await rounds.look()
                _show(seen, options["output"], carry=carry)
                number = seen.number
                if carry:
                    _show_carried(await rounds.carry_out(seen), options["output"])
            except ClusterError as error:
                if not number:
                    raise
                click.echo(f"cotide: continues in the next round: {error}", err=True)
            if options["rounds"] and number >= options["rounds"]:
                return
            await asyncio.sleep(options["interval"])
    finally:
        if carry:
            for name in await rounds.leave():
                click.echo(f"{name}: uncordoned again", err=True)


def _show(seen: Round, output: str, *, carry: bool) -> None:
    for warning in seen.warnings if seen.number == 1 else ():
        click.echo(f"cotide: {warning}", err=True)
    if output == "json":
        click.echo(json.dumps(_as_data(seen)))
    elif output == "yaml":
        click.echo(f"---\n{as_text(_as_data(seen), output)}")
    else:
        _print(seen, carry=carry)


def _show_carried(carried: Carried, output: str) -> None:
    if output != "table":
        data = {"carried": camel_cased(carried)}
        click.echo(json.dumps(data) if output == "json" else f"---\n{as_text(data, output)}")
    if carried.surprise:
        click.echo(f"cotide: this round ended: {carried.surprise}", err=True)


def _as_data(seen: Round) -> dict[str, Any]:
    plan = seen.plan
    acts = seen.acts
    return {
        "round": seen.number,
        "now": seen.now,
        "nodes": None if plan is None else {"used": plan.used_before, "after": plan.used_after, "atLeast": plan.fewest},
        "moves": None if plan is None else plan.moves,
        "movesLeft": seen.moves_left,
        "waiting": seen.waiting,
        "held": dict(seen.held),
        "drain": [{"node": freed.node, "moves": [camel_cased(move) for move in freed.moves]} for freed in acts.drain],
        "leave": [camel_cased(emptying) for emptying in acts.leave],
        "freed": list(acts.freed),
        "giveBack": [camel_cased(given_back) for given_back in acts.give_back],
    }


def _print(seen: Round, *, carry: bool) -> None:
    plan, acts = seen.plan, seen.acts
    at = time.strftime("%H:%M:%S", time.localtime(seen.now))
    if plan is None:
        click.echo(f"{at}  {counted(seen.waiting, 'pod waits', 'pods wait')} for a node: nothing is planned")
    else:
        used = f"{counted(plan.used_before, 'node')} in use -> {plan.used_after}"
        moves = f"{counted(plan.moves, 'pod moves', 'pods move')}; {seen.moves_left} may within the hour"
        click.echo(f"{at}  {used} (at least {plan.fewest} by volume), {moves}")
    would = "" if carry else "would "
    for back in acts.give_back:
        click.echo(f"  {would}give back {back.node}: {back.why}")
    for freed in acts.freed:
        click.echo(f"  {freed} is empty")
    for emptying in acts.leave:
        minutes = f"{emptying.p50_seconds / 60:.0f} min, p90 {emptying.p90_seconds / 60:.0f}"
        click.echo(f"  {would}leave {emptying.node} to empty: {minutes}")
    for step in acts.drain:
        click.echo(f"  {would}drain {step.node}: {counted(len(step.moves), 'pod')}")
    if seen.held:
        click.echo(f"  held: {', '.join(f'{name} {mark}' for name, mark in sorted(seen.held.items()))}")
