"""The machines of a trace as vectors of resources: from its machine file, or so many of a given size.

Called by `cotide simulate --machines`. First step of the flow: text to values. Invariant: amounts are whole numbers in
the units of `RESOURCES`, rounded down, so that no machine holds more than it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_core.limits import MAX_EXACT_INT
from cotide_core.units import counted
from cotide_files.bounded_text import read_bounded
from cotide_files.rows import Row, stream_rows

CPU: Final = "cpu"
MEMORY: Final = "memory"
GPU: Final = "gpu"
RESOURCES: Final[Mapping[str, Mapping[str, tuple[float, str]]]] = {
    "alibaba2017": {CPU: (1000.0, "cores"), MEMORY: (1e6, "shares of the largest machine's memory")},
    "openb": {CPU: (1000.0, "cores"), MEMORY: (1024.0, "GiB"), GPU: (1000.0, "GPUs")},
}
"""By format: its resources, the whole units in one unit of a user, and their name: millicores, millionths of the
largest machine's memory, MiB, thousandths of a GPU."""
FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "alibaba2017": ("alibaba2017_server_event.csv", "server_event.csv"),
    "openb": ("openb_node_list_all_node.csv", "openb_node_list_gpu_node.csv"),
}
"""Machine files that a trace may have in its folder."""
MAX_EVENTS: Final = 64 << 20
"""Bytes of a file of server events; chosen: the public one has a hundredth."""
SERVER_COLUMNS: Final = ("timestamp", "machine", "event", "detail", "cpus", "memory", "disk")
"""Columns of Alibaba 2017's server_event.csv, which has no header."""
DEVICE: Final = 1000
"""Units of one device that jobs may share: thousandths of a GPU."""
DEVICES_MAX: Final = 62
"""Bits of the number that holds a job's devices on a machine."""
KINDS_MAX: Final = 62
"""Bits of a job's number of allowed kinds."""
COUNT_MAX: Final = 200_000
"""More machines than any trace here has; chosen, so that a typing error is reported at once."""


class Asked(NamedTuple):
    """What a row of a trace asks for: so many pieces of a vector, in whole units.

    Attributes
    ----------
    kinds : of machines, empty for any.
    devices : how many devices of its machine a piece takes, and how many units of each; a row with devices is one
    piece.
    """

    pieces: int
    need: tuple[int, ...]
    kinds: tuple[str, ...] = ()
    devices: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Machines:
    """N machines.

    Attributes
    ----------
    resources : names of the R resources.
    capacity : (N, R) whole units.
    devices : (N,) devices of `DEVICE` units each, from 0 to `DEVICES_MAX`.
    kind : (N,) indices in ``kinds``.
    kinds : names, empty for no kind in particular.
    source : where they are from, in words.
    """

    resources: tuple[str, ...]
    capacity: Integers
    devices: Integers
    kind: Integers
    kinds: tuple[str, ...]
    source: str

    def __len__(self) -> int:
        return len(self.capacity)

    def spread(self, count: int) -> Machines:
        """Return ``count`` of them, taken evenly over the list, over and over where there are fewer."""
        rows = np.arange(count) * len(self) // count if count <= len(self) else np.arange(count) % len(self)
        source = f"{count:,} of {self.source}"
        return replace(
            self, capacity=self.capacity[rows], devices=self.devices[rows], kind=self.kind[rows], source=source
        )

    def columns(self) -> Integers:
        """Return (N, R + D) the capacity, then one column for each device: `DEVICE`, or 0 where a machine has fewer."""
        numbers = np.arange(int(self.devices.max(initial=0)))
        return np.hstack([self.capacity, DEVICE * (numbers < self.devices[:, None]).astype(np.int64)])


def units_of(form: str, amounts: Mapping[str, float]) -> tuple[int, ...]:
    """Return amounts that a job asks for as whole units of a format's resources, rounded up."""
    scales = RESOURCES[form]
    # What is left of a whole number by multiplication is no reason for one unit more.
    return tuple(math.ceil(amounts.get(name, 0.0) * scale - 1e-6) for name, (scale, _) in scales.items())


def alike(form: str, count: int, amounts: Mapping[str, float]) -> Machines:
    """Return ``count`` machines of one size, in the user's units.

    Raises
    ------
    InputError
        When a resource is unknown to the format, no cpu is named, or GPUs are not whole or too many.
    """
    scales = RESOURCES[form]
    for name in amounts:
        if name not in scales:
            raise InputError(f"{form} has no {name!r}; it has {', '.join(scales)}", field="--machine-capacity")
    if amounts.get(CPU, 0.0) <= 0:
        raise InputError("names no cpu above 0", field="--machine-capacity")
    row = [int(amounts.get(name, 0.0) * scale + 1e-6) for name, (scale, _) in scales.items()]
    words = ", ".join(f"{amounts[name]:g} {what}" for name, (_, what) in scales.items() if name in amounts)
    try:
        devices = devices_of(amounts.get(GPU, 0.0))
    except ValueError as error:
        raise InputError(f"gpu {error}", field="--machine-capacity") from None
    alike_rows, kinds = np.tile(np.array(row), (count, 1)), np.zeros(count, dtype=np.int64)
    source = f"{counted(count, 'machine')} of {words}"
    return Machines(tuple(scales), alike_rows, np.full(count, devices), kinds, ("",), source)


def devices_of(number: float) -> int:
    """Return a number of devices that a machine may have.

    Raises
    ------
    ValueError
        When it is no whole number, or above `DEVICES_MAX`.
    """
    if number != int(number):
        raise ValueError(f"{number:g} is not a whole number")
    if number > DEVICES_MAX:
        raise ValueError(f"{number:g} is above {DEVICES_MAX}, the most that a machine has here")
    return int(number)


def beside(form: str, trace: Path) -> Machines:
    """Return the machines of the file in the folder of a trace.

    Raises
    ------
    InputError
        When there is none, or it is broken.
    """
    for name in FILES[form]:
        path = trace.parent / name
        if path.exists():
            return read_machines(form, path)
    raise InputError(
        f"there is no {' or '.join(FILES[form])} beside it: name a machine file with --machines FILE, or a number of "
        "machines and --machine-capacity",
        file=str(trace),
    )


def read_machines(form: str, path: Path) -> Machines:
    """Read the machine file of a format.

    Raises
    ------
    InputError
        When it can't be read, is broken, or names no machine.
    """
    rows = _openb_nodes(path) if form == "openb" else _alibaba_servers(path)
    if not rows:
        raise InputError("names no machine", file=str(path))
    if max(max(amounts) for amounts, _ in rows) > MAX_EXACT_INT:
        raise InputError("a machine of it has more than is counted, 2^53 of a resource's units", file=str(path))
    kinds = sorted({kind for _, kind in rows})
    if len(kinds) > KINDS_MAX:
        raise InputError(f"{len(kinds)} kinds of machines are more than {KINDS_MAX}", file=str(path))
    capacity = np.array([amounts for amounts, _ in rows], dtype=np.int64)
    kind = np.array([kinds.index(name) for _, name in rows], dtype=np.int64)
    source = f"{counted(len(rows), 'machine')} of {path.name}"
    names = tuple(RESOURCES[form])
    gpus = capacity[:, names.index(GPU)] if GPU in names else np.zeros(len(rows), dtype=np.int64)
    return Machines(names, capacity, gpus // DEVICE, kind, tuple(kinds), source)


def _openb_nodes(path: Path) -> list[tuple[tuple[int, ...], str]]:
    columns = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
    rows = []
    for row in stream_rows(path, columns, what="OpenB nodes"):
        try:
            gpus = devices_of(row.optional_number("gpu") or 0.0)
        except ValueError as error:
            raise row.error("gpu", str(error)) from None
        amounts = (row.number("cpu_milli"), row.number("memory_mib"), DEVICE * gpus)
        rows.append((tuple(int(amount) for amount in amounts), row.text("model")))
    return rows


def _alibaba_servers(path: Path) -> list[tuple[tuple[int, ...], str]]:
    """Return the machines that were added, each as first seen; errors are left out: no job is moved here."""
    columns = {name: index for index, name in enumerate(SERVER_COLUMNS)}
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    try:
        lines = read_bounded(path, MAX_EVENTS).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {error}", file=str(path)) from error
    for number, line in enumerate(lines, start=1):
        cells = line.split(",")
        if len(cells) != len(SERVER_COLUMNS):
            raise InputError(
                f"{counted(len(cells), 'cell')} where Alibaba 2017's server events have {len(SERVER_COLUMNS)}",
                file=str(path),
                line=number,
            )
        row = Row(str(path), number, cells, columns)
        if row.text("event") == "add":
            amounts = (int(row.number("cpus") * 1000), int(row.number("memory") * 1e6 + 1e-6))
            found.setdefault(row.text("machine"), (amounts, ""))
    return list(found.values())
