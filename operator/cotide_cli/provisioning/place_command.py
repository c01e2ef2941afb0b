"""`cotide place`: the replicas of one service over several clusters, by predictive control; a dry run by default.

Called by `main`. Reads the placement file, forecasts of demand and prices (CSV, a row a step), and the clusters; plans
one turn; prints; with ``--apply`` sets replicas. Invariant: without ``--apply`` nothing is written in any cluster.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from cotide_cli.printing import as_text, output_option, print_lines
from cotide_core.errors import ClusterError, InputError

if TYPE_CHECKING:
    from cotide_operator.provisioning.placing import PlaceSettings, Seen, Turn


@click.command(name="place")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--demand", required=True, type=click.Path(path_type=Path, dir_okay=False), help="CSV, a column a network."
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    help="CSV, a column a centre; not needed for those with a priceQuery.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Set replicas; else only say what would be set.")
@click.option("--state", type=click.Path(path_type=Path, dir_okay=False), help="Keeps which clusters were lost.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Default: $KUBECONFIG, ~/.kube/config.")
@output_option
def command(
    file: Path,
    demand: Path,
    prices: Path | None,
    apply_it: bool,
    state: Path | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Plan, and with --apply carry out, one step of the replicas of a service in several clusters."""
    from cotide_operator.provisioning.place_queries import queried
    from cotide_operator.provisioning.placing import plan_turn

    settings, queried_prices = asyncio.run(queried(_read(file)))
    networks = sorted({name for centre in settings.centres for name in centre.delays})
    if not networks:
        raise InputError("no centre has delays or delayQueries", file=str(file), field="centres")
    rates = _columns(demand, networks)
    price = _prices(settings, prices, queried_prices, len(rates))
    before = json.loads(state.read_text()) if state is not None and state.exists() else []
    seen = asyncio.run(_look(settings, kubeconfig))
    turn = plan_turn(settings, networks, rates, price, seen, before)
    if apply_it:
        asyncio.run(_apply(settings, turn, kubeconfig))
        if state is not None:
            state.write_text(json.dumps(list(turn.lost)))
    if output == "table":
        _print(turn, seen, apply_it)
    else:
        click.echo(as_text(_as_data(turn, seen, apply_it), output))


def _read(file: Path) -> PlaceSettings:
    from pydantic import ValidationError

    from cotide_operator.config.yaml_lines import line_of, load, written
    from cotide_operator.provisioning.placing import PlaceSettings

    try:
        data, lines = load(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {str(error).splitlines()[0]}", file=str(file)) from error
    try:
        return PlaceSettings.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        path = first["loc"]
        raise InputError(
            first["msg"], file=str(file), line=line_of(path, lines), field=written(path) or "file"
        ) from None


def _columns(path: Path, names: list[str], *, signed: bool = False) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return (rows, names) numbers of a CSV file; below 0 only where that may be."""
    import math

    from cotide_sim.traces.rows import stream_rows

    least = -math.inf if signed else 0.0
    rows = [[row.number(name, minimum=least) for name in names] for row in stream_rows(path, names, what="forecast")]
    if not rows:
        raise InputError("has no rows", file=str(path))
    return np.array(rows)


def _prices(
    settings: PlaceSettings, prices: Path | None, queried_prices: dict[str, float], rows: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return (rows, centres): what was told holds for all rows, the rest is the file's."""
    names = [centre.name for centre in settings.centres if centre.name not in queried_prices]
    given = np.zeros((rows, 0))
    if names:
        if prices is None:
            raise InputError(f"is needed for the centres without a priceQuery: {', '.join(names)}", field="--prices")
        given = _columns(prices, names, signed=True)
        if len(given) != rows:
            raise InputError(f"has {len(given)} rows where the demand has {rows}", file=str(prices))
    columns = dict(zip(names, given.T, strict=True))
    return np.stack(
        [columns.get(centre.name, np.full(rows, queried_prices.get(centre.name, 0.0))) for centre in settings.centres],
        axis=1,
    )


async def _look(settings: PlaceSettings, kubeconfig: str | None) -> dict[str, Seen | None]:
    from cotide_kube.client import KubeClient
    from cotide_kube.credentials import load_credentials
    from cotide_operator.provisioning.placing import look

    async def one(context: str) -> Seen | None:
        async with KubeClient(load_credentials(kubeconfig, context), timeout_seconds=10) as client:
            return await look(client, settings)

    found = await asyncio.gather(*(one(centre.context) for centre in settings.centres))
    return dict(zip((centre.name for centre in settings.centres), found, strict=True))


async def _apply(settings: PlaceSettings, turn: Turn, kubeconfig: str | None) -> None:
    """Set replicas, those that rise first; a cluster that is lost meanwhile stops the turn before anything falls."""
    from cotide_kube.client import KubeClient
    from cotide_kube.credentials import load_credentials
    from cotide_operator.provisioning.placing import scale

    for centre in settings.centres:
        if centre.name in turn.set_now:
            try:
                async with KubeClient(load_credentials(kubeconfig, centre.context), timeout_seconds=10) as client:
                    await scale(client, settings, turn.set_now[centre.name])
            except ClusterError as error:
                raise ClusterError(f"{centre.name}: {error}; what follows was not set") from error


def _as_data(turn: Turn, seen: dict[str, Seen | None], applied: bool) -> dict[str, Any]:
    return {
        "now": {name: None if one is None else one.replicas for name, one in seen.items()},
        "wanted": turn.wanted,
        "set": turn.set_now,
        "waiting": list(turn.waiting),
        "lost": list(turn.lost),
        "back": list(turn.back),
        "unserved": float(turn.plan.unserved[0].sum()),
        "worthOfOneServerMore": dict(zip(seen, map(float, turn.plan.worth_of_server), strict=True)),
        "cost": turn.plan.cost,
        "applied": applied,
    }


def _print(turn: Turn, seen: dict[str, Seen | None], applied: bool) -> None:
    lines = [["centre", "now", "ready", "wanted", "what", "one server more saves"]]
    for (name, one), worth in zip(seen.items(), turn.plan.worth_of_server, strict=True):
        what = "as it is"
        if one is None:
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
    if not applied:
        click.echo("  dry run: nothing was changed")
