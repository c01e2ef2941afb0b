"""`cotide replay`: run a recorded ledger through the engine and compare every instruction.

Called by `main`. Reads ``ledger.jsonl`` and, as the ledger names them, the model files next to it; the comparison
itself is `ledger_replay`. Exit 0 when everything was reproduced, 1 at the first difference, a missing or
broken model included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from cotide_cli.inputs.ledger_input import ledger_file, ledger_lines
from cotide_cli.inputs.ledger_models import MODELS_NAME, ModelDirectory
from cotide_cli.printing import as_text, output_option
from cotide_core.errors import InputError
from cotide_lab.commands.ledger_replay import ReplayResult, replay

PROGRESS_CYCLES: Final = 5_000
"""Cycles between two lines of progress (chosen: a few seconds apart)."""


@click.command()
@click.argument("ledger", type=click.Path(path_type=Path))
@output_option
def command(ledger: Path, output: str) -> int:
    """Run the recorded LEDGER (a directory or its ledger.jsonl) through the engine and compare.

    Prints the number of exactly reproduced cycles and instructions. At the first difference it prints the line, the
    expected and the actual instruction, and exits with 1.
    """
    file = ledger_file(ledger)
    with ledger_lines(file) as lines:
        result = replay(lines, ModelDirectory(file.parent / MODELS_NAME), on_cycle=_progress)
    if not result.begun:
        raise InputError(str(result.difference), file=str(file))
    click.echo(_as_table(result) if output == "table" else as_text(_as_data(result), output))
    if result.difference is not None:
        click.echo(f"cotide: {file}: {result.difference}", err=True)
        return 1
    return 0


def _progress(cycles: int) -> None:
    if cycles % PROGRESS_CYCLES == 0:
        click.echo(f"{cycles:,} cycles reproduced so far", err=True)


def _as_data(result: ReplayResult) -> dict[str, object]:
    return {
        "reproduced": result.difference is None,
        "cycles": result.cycles,
        "instructions": result.instructions,
        "difference": result.difference,
    }


def _as_table(result: ReplayResult) -> str:
    outcome = "every instruction reproduced" if result.difference is None else "the replay differs"
    rows = [("cycles", f"{result.cycles:,}"), ("instructions", f"{result.instructions:,}"), ("outcome", outcome)]
    return "\n".join(f"{name:<14}{value}" for name, value in rows)
