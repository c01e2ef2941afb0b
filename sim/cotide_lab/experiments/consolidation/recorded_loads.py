"""`RecordedLoad`: machines or pods with their requests and their use in steps of five minutes.

Built from the public sets for `traces`. PlanetLab is set up as in Beloglazov and Buyya 2012: four kinds of virtual
machines in turn on hosts of two kinds. Memory is the exception: the trace does not record it, and it would decide
alone. Azure's machines draw 1, 2 or 4 cores by the seed, and so little memory that cpu binds. OpenB and Alibaba 2017
record requests and times of pods, but no use. Each pod receives the record of an Azure machine by the seed, and the
report states this. Requested memory counts as always in use.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats, Integers
from cotide_files.bounded_text import bounded_lines
from cotide_sim.traces.load.load_series import SLOT_SECONDS, open_text
from cotide_sim.traces.load.vm_load import PLANETLAB_SLOTS, read_azure_cpu, read_planetlab_cpu

SETS: Final = ("planetlab", "azure", "openb", "alibaba2017")
DAY: Final = 288
"""Slots of a day."""
KINDS: Final = ((2500, 870), (2000, 1740), (1000, 1740), (500, 613))
"""MIPS and MB of virtual machines, in turn (Beloglazov and Buyya 2012, section 7.1, as in their CloudSim examples)."""
HOSTS: Final = ((2 * 1860, 4096), (2 * 2660, 4096))
"""MIPS and MB of the hosts, HP ProLiant ML110 G4 and G5, in turn (the same)."""
LARGE_HOST: Final = (16_000, 64_000)
"""Millicores and MB of a host of the other sets (chosen)."""
QUARTER_HOST: Final = (16_000, 16_000)
"""A quarter of a machine of the Alibaba 2017 trace: of its 64 cores, and of its memory in parts of 64,000 (chosen)."""
OPENB_STRETCHES: Final = 6
"""Stretches of four days of OpenB, ordered by load (chosen: pods fill thirty days)."""
SMALL_HOST: Final = (8_000, 32_000)
"""The same for Azure's 70 machines (chosen: they fill some twenty hosts)."""
AZURE_SLOTS: Final = 3 * DAY
TUNING_SLOTS: Final = 14 * DAY
"""The first two weeks of Azure: constants and settings are chosen on them, and reports leave them out."""
FIRST_TUNING_SEED: Final = 100
"""Seeds from here on read the tuning data; those below read the reported data."""
TUNING_PARTS: Final = 2
"""Days of PlanetLab and stretches of OpenB that are kept for choosing, the last ones."""
BORROWED: Final = "use borrowed from Azure's machines"


@dataclass(frozen=True)
class RecordedLoad:
    """The machines and their hosts.

    Attributes
    ----------
    name, note : of the set, and its unrecorded data.
    asked : (M, 2) requested cpu and memory of each.
    used : (M, S) cpu that each uses in each slot; nan where it does not run.
    hosts : (N, 2) cpu and memory of each host.
    """

    name: str
    note: str
    asked: Integers
    used: Floats
    hosts: Integers

    @property
    def slots(self) -> int:
        """S."""
        return int(self.used.shape[1])


def read_recorded(name: str, data: Path, seed: int) -> RecordedLoad:
    """Read one set; the seed chooses the day or week, and draws the unrecorded data.

    Raises
    ------
    InputError
        When a file is missing or broken.
    """
    return {"planetlab": _planetlab, "azure": _azure, "openb": _openb, "alibaba2017": _alibaba}[name](data, seed)


def _planetlab(data: Path, seed: int) -> RecordedLoad:
    series = read_planetlab_cpu(data)
    days = sorted({host.split("/")[0] for host in series.hosts})
    day = days[_part(seed, len(days))]
    rows = [row for row, host in enumerate(series.hosts) if host.split("/")[0] == day]
    kinds = np.array(KINDS, np.int64)[np.arange(len(rows)) % len(KINDS)]
    hosts = np.array(HOSTS, np.int64)[np.arange(len(rows)) % len(HOSTS)]
    used = series.load[rows][:, :PLANETLAB_SLOTS] * kinds[:, :1]
    # Memory is chosen there, not recorded, and so large that it would bind before cpu on every host.
    kinds[:, 1] = 1
    return RecordedLoad("planetlab", day, kinds, used, hosts)


def _azure(data: Path, seed: int) -> RecordedLoad:
    series = read_azure_cpu(data, "avg")
    known = _known_slots(series.load.shape[1], seed)
    number = seed % (len(known) // AZURE_SLOTS)
    first = known.start + number * AZURE_SLOTS
    cores = np.random.default_rng(seed).choice([1, 2, 4], len(series.hosts))
    # Chosen: memory is not recorded, and must not decide in place of cpu, which is.
    asked = np.column_stack([cores * 1000, cores * 500])
    used = series.load[:, first : first + AZURE_SLOTS] * asked[:, :1]
    hosts = np.tile(np.array(SMALL_HOST, np.int64), (len(asked), 1))
    return RecordedLoad("azure", f"three days from day {first // DAY + 1}", asked, used, hosts)


def _known_slots(slots: int, seed: int) -> range:
    """Return the slots of Azure that a seed may read."""
    return range(TUNING_SLOTS) if seed >= FIRST_TUNING_SEED else range(TUNING_SLOTS, slots)


def _part(seed: int, parts: int) -> int:
    """Return the parts of a set that a seed reads."""
    if seed >= FIRST_TUNING_SEED:
        return parts - 1 - seed % TUNING_PARTS
    return seed % (parts - TUNING_PARTS)


def _openb(data: Path, seed: int) -> RecordedLoad:
    path = data / "alibaba" / "openb_pod_list_default.csv"
    rows = _rows(path)
    names = rows[0]
    columns = [names.index(text) for text in ("creation_time", "deletion_time", "cpu_milli", "memory_mib")]
    table = np.array([[float(row[at] or "nan") for at in columns] for row in rows[1:]])
    table = table[~np.isnan(table).any(axis=1) & (table[:, 2] <= LARGE_HOST[0]) & (table[:, 3] <= LARGE_HOST[1])]
    return _with_borrowed("openb", data, table, seed, 4 * DAY, LARGE_HOST, _part(seed, OPENB_STRETCHES))


def _alibaba(data: Path, seed: int) -> RecordedLoad:
    path = data / "alibaba" / "alibaba2017_batch_task.csv.gz"
    found = []
    for row in _rows(path):
        if len(row) == 8 and row[5] == "Terminated" and row[6] and row[7]:
            begin, end, count = float(row[0]), float(row[1]), min(int(row[4]), 8)
            # Cores are hundredths in this table, memory a share of the largest machine.
            asked = (float(row[6]) * 10, max(1.0, float(row[7]) * 4 * QUARTER_HOST[1]))
            if end - begin >= 6 * SLOT_SECONDS and begin > 0:
                found += [(begin, end, *asked)] * count
    table = np.array(found)
    drawn = np.random.default_rng(seed).choice(len(table), min(len(table), 1500), replace=False)
    return _with_borrowed("alibaba2017", data, table[np.sort(drawn)], seed, DAY, QUARTER_HOST)


def _with_borrowed(
    name: str, data: Path, table: Floats, seed: int, slots: int, host: tuple[int, int], rank: int = 0
) -> RecordedLoad:
    """Take one of the busiest stretches of some slots, and assign each pod the record of one of Azure's machines.

    ``rank``: 0 for the busiest one, 1 for the busiest of those that do not overlap with it, and so on.
    """
    begin, end = table[:, 0] // SLOT_SECONDS, np.ceil(table[:, 1] / SLOT_SECONDS)
    changes = np.zeros(int(end.max()) + 2)
    np.add.at(changes, begin.astype(int), table[:, 2])
    np.add.at(changes, end.astype(int), -table[:, 2])
    busy = np.cumsum(np.concatenate([[0.0], np.cumsum(changes)]))
    windows = busy[slots:] - busy[:-slots] if len(busy) > slots else np.zeros(1)
    for _ in range(rank):
        taken = int(np.argmax(windows))
        windows[max(0, taken - slots + 1) : taken + slots] = -1.0
    first = int(np.argmax(windows))
    inside = (begin < first + slots) & (end > first)
    begin = np.maximum(begin[inside] - first, 0).astype(int)
    end = np.minimum(end[inside] - first, slots).astype(int)
    asked = np.ceil(table[inside][:, 2:]).astype(np.int64)
    every = read_azure_cpu(data, "avg").load
    known = _known_slots(every.shape[1], seed)
    shares = every[:, known.start : known.stop]
    generator = np.random.default_rng(seed)
    used = np.full((len(asked), slots), np.nan)
    for row, (start, stop) in enumerate(zip(begin, end, strict=True)):
        machine, offset = generator.integers(len(shares)), generator.integers(shares.shape[1] - slots)
        used[row, start:stop] = shares[machine, offset + start : offset + stop] * asked[row, 0]
    # Twice the hosts that the busiest slot would fill: first fit never needs more.
    runs = ~np.isnan(used)
    busiest = max(float((asked[:, at] @ runs).max()) / host[at] for at in range(2))
    hosts = np.tile(np.array(host, np.int64), (2 + 2 * int(np.ceil(busiest)), 1))
    return RecordedLoad(name, BORROWED, asked, used, hosts)


def _rows(path: Path) -> list[list[str]]:
    try:
        with open_text(path) as stream:
            return [row for row in csv.reader(bounded_lines(stream, str(path))) if row]
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(path)) from error
