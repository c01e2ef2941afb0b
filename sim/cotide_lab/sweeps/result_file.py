"""The results of a sweep as a table on disk: CSV, or Parquet when pyarrow is installed, by the ending of the name.

Called by `sweep` when all cells are finished. Last step of the flow. Invariants: the contents of rows decide their
order, and no column depends on the machine or its load, so that the same sweep gives the same CSV bytes. The file
appears whole or not at all.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from cotide_core.errors import InputError
from cotide_files.replacement import replace_file
from cotide_lab.sweeps.cells import Outcome
from cotide_lab.trace_replay.metrics import METRICS

TEXT: Final = ("trace", "trace_sha256", "settings", "runtime", "policy", "policy_sha256")
COUNTS: Final = ("seed", "processors", "jobs")
COLUMNS: Final[tuple[str, ...]] = (
    *TEXT,
    *COUNTS,
    *(f"{name}{end}" for name in METRICS for end in ("", "_low", "_high")),
    "error",
)
"""Names of the columns; ``_low`` and ``_high`` are the ends of the 95 % interval, empty where there is none."""


def check_ending(path: Path) -> None:
    """Refuse a name that can't be written, before anything is run.

    Raises
    ------
    InputError
        When the ending is unknown, the directory missing, or Parquet is asked for without pyarrow.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError("must end in .csv or .parquet", file=str(path), field="--results")
    if not path.parent.is_dir():
        raise InputError("lies in no directory that exists", file=str(path), field="--results")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError(
            "Parquet needs pyarrow, which is not installed; install it or end the name in .csv",
            file=str(path),
            field="--results",
        )


def write_results(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write the table in place of an earlier one.

    Raises
    ------
    InputError
        When the file can't be written.
    """
    rows = [_row(outcome) for outcome in sorted(outcomes, key=lambda outcome: outcome.cell.rank)]
    data = _csv(rows) if path.suffix == ".csv" else _parquet(rows)
    try:
        replace_file(path, data, durable=True)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(path)) from error


def _row(outcome: Outcome) -> dict[str, Any]:
    cell = outcome.cell
    row: dict[str, Any] = {name: getattr(cell, name) for name in (*TEXT, "seed")}
    known = outcome.error is None
    row |= {"processors": outcome.processors if known else None, "jobs": outcome.jobs if known else None}
    for name in METRICS:
        value, low, high = outcome.figures.get(name, (None, None, None))
        row |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return row | {"error": outcome.error}


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    # By name: an optional dependency that the type checker may or may not find.
    pyarrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    kinds = dict.fromkeys(COLUMNS, pyarrow.float64())
    kinds |= dict.fromkeys((*TEXT, "error"), pyarrow.string()) | dict.fromkeys(COUNTS, pyarrow.int64())
    table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(list(kinds.items())))
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data
