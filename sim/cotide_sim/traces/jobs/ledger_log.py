"""A recorded Cotide ledger as a batch log: what batch and gratis pods asked for, and how long they ran.

Called by `any_log`: an operator asks what another policy would have done to last month. First step of the flow: events
to rows. Invariant: one row for each batch or gratis pod of the ledger, on the line of its first event.

Submission is the pod's creation; the run goes from its start to its end in the events. A pod that was evicted, deleted
or still ran at the end has no run time; an evicted pod's successor is a pod of its own, submitted when it was made. The
namespace is the user, the Job the group, its type the executable, gratis is queue 2 and batch queue 1.

The pool is what the nodes had together at most, less what online pods asked for on the average of the recorded time:
batch work can't use that whatever the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError, LedgerError
from cotide_core.events import Event, NodeDeleted, NodeUpserted, Pod, PodDeleted, PodPhase, PodUpserted
from cotide_core.recording.ledger import read_ledger
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY
from cotide_files.bounded_text import MAX_LEDGER, MAX_LEDGER_LINE, bounded_lines
from cotide_sim.traces.compressed import DAMAGED, open_bytes
from cotide_sim.traces.jobs.csv_log import UNKNOWN, from_first_submission
from cotide_sim.traces.jobs.pool import Demand, Pool
from cotide_sim.traces.jobs.swf import Field, OnBad, SwfLog
from cotide_sim.traces.jobs.swf_rows import COLUMNS, Fault

LEDGER_NAME: Final = "ledger.jsonl"
CPU_PER_PROCESSOR: Final = 100.0
QUEUES: Final = {WorkloadClass.BATCH: 1.0, WorkloadClass.GRATIS: 2.0}
STATUSES: Final = {PodPhase.SUCCEEDED: 1.0, PodPhase.FAILED: 0.0}


@dataclass(slots=True)
class _Recording:
    """What was seen so far.

    Attributes
    ----------
    latest, lines : of each batch or gratis pod by uid: as it was last, and where it was seen first.
    room : (cpu, memory) that nodes have, by name; most, nodes : their largest sum and number so far.
    held : (cpu, memory) asked for by online pods that are bound, by uid; area : their sum times seconds.
    """

    latest: dict[str, Pod] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    room: dict[str, tuple[float, float]] = field(default_factory=dict)
    most: tuple[float, float] = (0.0, 0.0)
    nodes: int = 0
    held: dict[str, tuple[float, float]] = field(default_factory=dict)
    area: tuple[float, float] = (0.0, 0.0)
    seconds: float = 0.0

    def pass_time(self, seconds: float) -> None:
        """Book what online pods held for so long."""
        cpu, memory = _sum(self.held.values())
        self.area = (self.area[0] + cpu * seconds, self.area[1] + memory * seconds)
        self.seconds += seconds

    def see(self, event: Event, line: int) -> None:
        """Take in one event."""
        match event:
            case NodeUpserted(node):
                amounts = dict(node.allocatable)
                self.room[node.name] = (float(amounts.get(CPU, 0)), float(amounts.get(MEMORY, 0)))
                self._grow()
            case NodeDeleted(name):
                self.room.pop(name, None)
            case PodUpserted(pod) if pod.workload_class is WorkloadClass.ONLINE:
                asked = dict(pod.requests)
                if pod.node is not None and pod.phase in (PodPhase.PENDING, PodPhase.RUNNING):
                    self.held[pod.uid] = (float(asked.get(CPU, 0)), float(asked.get(MEMORY, 0)))
                else:
                    self.held.pop(pod.uid, None)
            case PodUpserted(pod):
                self.latest[pod.uid] = pod
                self.lines.setdefault(pod.uid, line)
            case PodDeleted(_, uid):
                self.held.pop(uid, None)
            case _:
                pass

    def _grow(self) -> None:
        cpu, memory = _sum(self.room.values())
        self.most = (max(self.most[0], cpu), max(self.most[1], memory))
        self.nodes = max(self.nodes, len(self.room))

    def pool(self, demand: Demand) -> Pool:
        """Return what is left for batch work."""
        taken = tuple(amount / self.seconds if self.seconds > 0 else 0.0 for amount in self.area)
        left = {
            "cpu": max(CPU_PER_PROCESSOR, self.most[0] - taken[0]),
            "memory": max(0.0, self.most[1] - taken[1]),
        }
        nodes = f"{self.nodes:,} node{'' if self.nodes == 1 else 's'}"
        words = f"{nodes} less what online pods asked for on average, {taken[0] / 1000:,.1f} cores"
        return Pool(words, "a tenth of a core", CPU_PER_PROCESSOR, left, demand)


def read_ledger_log(path: Path, on_bad: OnBad, demand: Demand) -> tuple[SwfLog, str]:
    """Return the pods of a ledger, a directory or its ``ledger.jsonl``, and the conversion in words.

    Raises
    ------
    InputError
        When the ledger can't be read or holds no batch pod, or at a broken line where ``on_bad`` is ``fail``. With
        ``skip`` all lines after a broken one are left out, since the chain of hashes no longer covers them.
    """
    file = path / LEDGER_NAME if path.is_dir() else path
    seen = _Recording()
    faults = list(_record(file, seen))
    if faults and on_bad == "fail":
        raise InputError(faults[0].message, file=str(file), line=faults[0].line)
    if not seen.latest:
        reason = f": {faults[0].message} (line {faults[0].line})" if faults else ""
        raise InputError(f"holds no batch or gratis pod{reason}", file=str(file))
    pool = seen.pool(demand)
    users: dict[str, int] = {}
    groups: dict[str, int] = {}
    types: dict[str, int] = {}

    table = np.full((len(seen.latest), COLUMNS), UNKNOWN)
    for index, pod in enumerate(seen.latest.values()):
        row = table[index]
        started, ended = pod.started_seconds, pod.finished_seconds
        asked = dict(pod.requests)
        row[Field.JOB] = index + 1
        row[Field.SUBMIT] = pod.created_seconds
        if started is not None:
            row[Field.WAIT] = started - pod.created_seconds
            if ended is not None and pod.phase in STATUSES:
                row[Field.RUN] = ended - started
        amounts = {
            "cpu": float(asked.get(CPU, 0) + asked.get(RECLAIMED_CPU, 0)),
            "memory": float(asked.get(MEMORY, 0) + asked.get(RECLAIMED_MEMORY, 0)),
        }
        row[Field.REQUESTED] = pool.processors_for(amounts) or UNKNOWN
        if pod.requested_seconds is not None:
            row[Field.LIMIT] = pod.requested_seconds
        row[Field.STATUS] = STATUSES.get(pod.phase, UNKNOWN)
        row[Field.USER] = _number(users, pod.key.partition("/")[0])
        if pod.job is not None:
            row[Field.GROUP] = _number(groups, pod.job)
        if pod.type:
            row[Field.EXECUTABLE] = _number(types, pod.type)
        row[Field.QUEUE] = QUEUES[pod.workload_class]
    lines = np.array([seen.lines[uid] for uid in seen.latest], dtype=np.int64)
    header = (("MaxProcs", str(pool.processors)), ("Note", pool.sentence()))
    return from_first_submission(SwfLog(str(file), header, table, lines, tuple(faults))), pool.sentence()


def _record(file: Path, seen: _Recording) -> Iterator[Fault]:
    """Read the ledger into ``seen``; yield the fault at which reading had to stop, if any."""
    line = 1
    before: float | None = None
    try:
        with open_bytes(file) as lines:
            for entry in read_ledger(bounded_lines(lines, str(file), MAX_LEDGER, MAX_LEDGER_LINE)):
                line = entry.line + 1
                if before is not None:
                    seen.pass_time(max(0.0, entry.now - before))
                before = entry.now
                for event in entry.events:
                    seen.see(event, entry.line)
    except LedgerError as error:
        yield Fault(line, str(error).removeprefix(f"line {line}: ").removeprefix(f"line {line} "))
    except DAMAGED as error:
        yield Fault(line + 1, f"the compressed file is damaged or cut off here ({error})")
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(file)) from error


def _number(known: dict[str, int], name: str) -> float:
    """Return the number of a name, handing out the next one to a new name."""
    return float(known.setdefault(name, len(known) + 1))


def _sum(amounts: Iterable[tuple[float, float]]) -> tuple[float, float]:
    pairs = list(amounts)
    return sum(cpu for cpu, _ in pairs), sum(memory for _, memory in pairs)
