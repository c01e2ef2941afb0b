"""`cotide report`: the observations of shadow mode, and what Cotide would have done.

Called by `main`. Reads the ledger of an operator in shadow and the model files next to it; the figures are made in
`cotide_core.recording.shadow_report`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from cotide_cli.inputs.finite_range import FiniteRange
from cotide_cli.inputs.ledger_input import ledger_file, ledger_lines
from cotide_cli.inputs.ledger_models import MODELS_NAME, ModelDirectory
from cotide_cli.printing import as_text, output_option
from cotide_core.errors import InputError, LedgerError
from cotide_core.recording.shadow_report import ShadowReport, shadow_report
from cotide_core.units import counted, format_seconds


@click.command()
@click.argument("ledger", type=click.Path(path_type=Path))
@click.option(
    "--slot-seconds",
    type=FiniteRange(min=1.0),
    default=300.0,
    show_default=True,
    help="A service over its limit once in a slot counts as one.",
)
@output_option
def command(ledger: Path, slot_seconds: float, output: str) -> None:
    """Summarise LEDGER (a directory or its ledger.jsonl), written in shadow mode.

    It shows the placements of the cluster's scheduler that Cotide would have refused, and why; how much more would have
    fitted; how long pods would have waited; and the quality of the forecasts.
    """
    file = ledger_file(ledger)
    try:
        with ledger_lines(file) as lines:
            models = ModelDirectory(file.parent / MODELS_NAME)
            found = shadow_report(_whole(lines, file), models, slot_seconds=slot_seconds)
    except LedgerError as error:
        raise InputError(str(error), file=str(file)) from error
    click.echo(_as_table(found) if output == "table" else as_text(asdict(found), output))


def _whole(lines: Iterable[bytes], file: Path) -> Iterator[bytes]:
    """Yield the lines that are whole: an operator may be writing its last one, or have died over it."""
    for line in lines:
        if not line.endswith(b"\n"):
            click.echo(f"{file}: the last line is incomplete and skipped", err=True)
            return
        yield line


def _as_table(found: ShadowReport) -> str:
    refused = ", ".join(f"{count} {kind}" for kind, count in sorted(found.refused.items())) or "none"
    services = ", ".join(f"{name} ({count})" for name, count in sorted(found.services.items())) or "none"
    forecasts = "no placement beside a service has had its slot yet"
    if found.brier is not None and found.mean_probability is not None and found.broken_share is not None:
        forecasts = (
            f"{found.judged} placements beside a service: p={found.mean_probability:.3f} predicted, "
            f"{found.broken_share:.3f} came true, Brier score {found.brier:.3f}"
        )
    beside = f"{found.slots_over_beside_refused} of {found.slots_over} slots over a limit"
    waits, as_if = found.waits, found.waits_as_if
    rows = [
        ("watched", f"{format_seconds(found.seconds)}, as if under {found.policy}"),
        ("placed", f"{counted(found.placed, 'pod')}; Cotide would have refused the node: {refused}"),
        ("limits", f"predicted to break: {services}; {beside} had such a pod beside the service"),
        (
            "room",
            f"{counted(found.earlier_pods, 'pod')} would have run earlier, "
            f"{found.earlier_core_seconds / 3600:.2f} core hours, "
            f"at most {found.earlier_at_once_millicores}m at once",
        ),
        ("waits", f"mean {waits.mean:.1f} s, p50 {waits.p50:.1f} s, p95 {waits.p95:.1f} s"),
        ("as if", f"mean {as_if.mean:.1f} s, p50 {as_if.p50:.1f} s, p95 {as_if.p95:.1f} s"),
        ("forecasts", forecasts),
        (
            "left out",
            f"{counted(found.unseen, 'pod')} bound before Cotide looked, "
            f"{found.unsupported} with constraints of others",
        ),
    ]
    return "\n".join(f"{name:<12}{value}" for name, value in rows)
