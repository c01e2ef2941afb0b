"""Sources of training samples: measured tables, CSV files of samples, or a recorded ledger.

Called by `cotide train` and `cotide evaluate`. Reads files and hands core values on. Invariant: every sample comes from
one row or one ledger entry; an invalid entry is an `InputError` that names file, line and column.

CSV of QoS samples, one measured mix a row, any column order::

    requests_per_second, other_requests_per_second, limit_ms, cpu_pressure, latency_p95_ms, jobs [, service]

``jobs`` lists the batch pods on the node as ``type:count:input_bytes`` (bytes summed over the count), with ``;``
between types; empty for none. ``service`` is the Workload that was measured, as ``namespace/name``; without it the
samples count for any service. CSV of completion samples, one finished job a row::

    type, input_bytes, requests_per_second, cpu_pressure, seconds
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import numpy as np

from cotide_cli.inputs.ledger_input import ledger_file, ledger_lines
from cotide_core.errors import InputError, LedgerError
from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_core.recording.samples import samples_from_ledger
from cotide_files.columns import Table, read_table
from cotide_sim.traces.colocation import tables as colocation


def colocation_directory(path: Path) -> Path:
    """Return the directory of the tables: the path itself, or ``colocation`` inside it."""
    inside = path / "colocation"
    return inside if inside.is_dir() else path


def qos_from_tables(path: Path, table: str) -> QosSamples:
    """Read QoS samples from a directory of measured tables."""
    return colocation.qos_samples(colocation_directory(path), cast("colocation.QosTable", table))


def completion_from_tables(path: Path, table: str, *, lone_runs: bool) -> CompletionSamples:
    """Read completion samples from a directory of measured tables."""
    wanted = cast("colocation.CompletionTable", table)
    return colocation.completion_samples(colocation_directory(path), wanted, lone_runs=lone_runs)


def from_ledger(path: Path) -> tuple[QosSamples, CompletionSamples]:
    """Return the samples of a recorded run; ``path`` is the ledger's directory or file.

    Raises
    ------
    InputError
        When it can't be read, or is not a ledger.
    """
    file = ledger_file(path)
    try:
        with ledger_lines(file) as lines:
            return samples_from_ledger(lines)
    except LedgerError as error:
        raise InputError(str(error), file=str(file)) from error


def qos_from_csv(path: Path) -> QosSamples:
    """Read a CSV file of QoS samples (format in this module's docstring)."""
    rates = ("requests_per_second", "other_requests_per_second", "cpu_pressure")
    positive = ("limit_ms", "latency_p95_ms")
    table = read_table(path, numbers=(*rates, *positive), texts=("jobs",), absent=("service",))
    for name in positive:
        _require_positive(table, name)
    jobs = [_jobs(cell, str(path), line) for cell, line in zip(table.texts["jobs"], table.lines, strict=True)]
    types = tuple(sorted({name for row in jobs for name, _, _ in row}))
    counts, sizes = np.zeros((2, len(table), len(types)))
    for index, row in enumerate(jobs):
        for name, count, size in row:
            counts[index, types.index(name)] += count
            sizes[index, types.index(name)] += size
    numbers = table.numbers
    services = tuple(sorted(set(table.texts["service"]))) or ("",)
    mixes = MixBatch(
        requests_per_second=numbers["requests_per_second"],
        other_requests_per_second=numbers["other_requests_per_second"],
        limit_milliseconds=numbers["limit_ms"],
        cpu_pressure=numbers["cpu_pressure"],
        types=types,
        counts=counts,
        input_bytes=sizes,
        services=services,
        service=np.array([services.index(name) for name in table.texts["service"]], np.int64),
    )
    return QosSamples(mixes, numbers["latency_p95_ms"])


def completion_from_csv(path: Path) -> CompletionSamples:
    """Read a CSV file of completion samples (format in this module's docstring)."""
    columns = ("input_bytes", "requests_per_second", "cpu_pressure", "seconds")
    table = read_table(path, numbers=columns, texts=("type",))
    _require_positive(table, "seconds")
    input_bytes, rates, pressure, seconds = (table.numbers[name] for name in columns)
    return CompletionSamples(table.texts["type"], input_bytes, rates, pressure, seconds)


def _require_positive(table: Table, name: str) -> None:
    for value, line in zip(table.numbers[name].tolist(), table.lines, strict=True):
        if value <= 0:
            raise InputError(f"{value:g} must be > 0", file=str(table.path), line=line, field=name)


def _jobs(cell: str, file: str, line: int) -> list[tuple[str, float, float]]:
    """Return (type, count, input bytes) of each entry of a ``jobs`` cell."""
    found = []
    for entry in filter(None, (part.strip() for part in cell.split(";"))):
        # From the right: a type's name may hold a colon, its numbers may not.
        parts = entry.rsplit(":", 2)
        try:
            name, count, size = parts[0], float(parts[1]), float(parts[2])
        except (IndexError, ValueError):
            message = f"{entry!r} is not type:count:input_bytes"
            raise InputError(message, file=file, line=line, field="jobs") from None
        if not (math.isfinite(count) and math.isfinite(size) and count > 0 and size >= 0):
            raise InputError(f"{entry!r} needs a count > 0 and a size >= 0", file=file, line=line, field="jobs")
        found.append((name, count, size))
    return found
