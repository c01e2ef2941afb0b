"""Cycles that services need for an instruction, by the processor's counters, where these are readable.

More than usual means that a neighbour takes away caches or memory bandwidth, which no share of a cpu shows. The idea is
that of CPI2, as Google runs it. One pair of counters for each service's control group and cpu::

    perf_event_open(cycles, group, cpu) <- perf_event_open(instructions, group, cpu)     counted together

Called by `agent`, for its metrics: the law does not use it. Needs CAP_PERFMON, a processor that shows its counters (few
virtual machines do) and, with control groups of version 1, the hierarchy ``perf_event``. Sources: perf_event_open(2),
the kernel's uapi/linux/perf_event.h. Invariant: if one of these is missing, no counter is opened, one log line notes
it, and nothing fails. The counters of a pod that is gone are closed at the next look.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import platform
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cotide_node_agent.group_files import PodGroup

_LOG = logging.getLogger(__name__)

HARDWARE: Final = 0
CYCLES: Final = 0
INSTRUCTIONS: Final = 1
SYSCALLS: Final = {"x86_64": 298, "aarch64": 241}
"""The number of perf_event_open."""
ATTRIBUTE: Final = struct.Struct("IIQQQQQIIQ")
"""The first version of perf_event_attr: type, size, config, period, sample type, read format, flags, and three."""
READ_FORMAT: Final = 8
"""PERF_FORMAT_GROUP: how many counters, and each value."""
FIGURES: Final = struct.Struct("QQQ")
OF_A_GROUP, CLOSED_ON_EXEC = 4, 8
MAX_COUNTERS: Final = 2000
"""Chosen: two for each service and cpu; pods beyond it are not counted."""
INSTRUCTIONS_LEAST: Final = 10_000_000
"""In one look. Chosen: fewer depend more on the former contents of the cache than on neighbours."""
USUAL_SAMPLES: Final = 300
"""Looks after which new values count for about two thirds of the usual value; chosen: five minutes."""
KNOWN_SAMPLES: Final = 30
"""Looks before a service has a usual value; chosen."""

Opener = Callable[[int, int, int, int], int]
"""Config, control group's descriptor, cpu and the leader's descriptor (or -1) -> the counter's descriptor."""


class _Counted(NamedTuple):
    cycles: int
    instructions: int


class _Usual:
    """A service's mean over the looks while it was active."""

    def __init__(self) -> None:
        self.mean, self.samples = 0.0, 0

    def ratio(self, found: float) -> float | None:
        """Return the found value divided by the usual one, before it becomes part of it."""
        known = found / self.mean if self.samples >= KNOWN_SAMPLES else None
        self.samples += 1
        self.mean += (found - self.mean) / min(self.samples, USUAL_SAMPLES)
        return known


class CycleMeter:
    """Compares each look with the last one.

    Parameters
    ----------
    folder_of : by a pod's path, its control group in the hierarchy that counters know.
    cpus : of the node.
    opener : raises OSError if a counter is not available.
    """

    def __init__(self, folder_of: Callable[[str], Path], cpus: Sequence[int], opener: Opener | None = None) -> None:
        self._folder_of, self._cpus = folder_of, cpus
        self._open = opener or open_counter
        self._leaders: dict[str, list[tuple[int, int]]] = {}
        self._last: dict[str, _Counted] = {}
        self._usual: dict[str, _Usual] = {}
        self.permitted = True
        """False once a counter was not available: no more are opened."""

    def look(self, services: Iterable[PodGroup]) -> float | None:
        """Return the services' highest cycles an instruction, relative to the usual value of each; None if none is
        known.
        """
        if not self.permitted:
            return None
        there = {pod.path for pod in services}
        for path in self._leaders.keys() - there:
            self._close(path)
        ratios = []
        for path in sorted(there):
            if path not in self._leaders and not self._begin(path):
                continue
            now = self._read(path)
            if now is None:
                continue
            before, self._last[path] = self._last.get(path), now
            done = now.instructions - before.instructions if before else 0
            if before is None or done < INSTRUCTIONS_LEAST:
                continue
            ratio = self._usual.setdefault(path, _Usual()).ratio((now.cycles - before.cycles) / done)
            ratios += [] if ratio is None else [ratio]
        return max(ratios, default=None)

    def close(self) -> None:
        """Give all counters back."""
        for path in list(self._leaders):
            self._close(path)

    def _begin(self, path: str) -> bool:
        opened = 2 * sum(map(len, self._leaders.values()))
        if opened + 2 * len(self._cpus) > MAX_COUNTERS:
            return False
        pairs: list[tuple[int, int]] = []
        try:
            group = os.open(self._folder_of(path), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # It ended meanwhile, or there is no such hierarchy.
            return False
        try:
            for cpu in self._cpus:
                leader = self._open(CYCLES, group, cpu, -1)
                pairs.append((leader, -1))
                pairs[-1] = leader, self._open(INSTRUCTIONS, group, cpu, leader)
        except OSError as error:
            for descriptor in (number for pair in pairs for number in pair if number >= 0):
                os.close(descriptor)
            # For a group that ended meanwhile the kernel gives the same error as for a counter that the processor
            # lacks.
            if error.errno != errno.EMFILE and self._folder_of(path).exists():
                self.permitted = False
                _LOG.info("cycles an instruction are not measured: the processor's counters answer %s", error.strerror)
                self.close()
            return False
        finally:
            os.close(group)
        self._leaders[path] = pairs
        return True

    def _read(self, path: str) -> _Counted | None:
        cycles = instructions = 0
        for leader, _ in self._leaders[path]:
            figures = os.read(leader, FIGURES.size)
            if len(figures) < FIGURES.size:  # The kernel has no room for this counter at the moment.
                return None
            _, some, done = FIGURES.unpack(figures)
            cycles, instructions = cycles + some, instructions + done
        return _Counted(cycles, instructions)

    def _close(self, path: str) -> None:
        for pair in self._leaders.pop(path):
            for number in pair:
                with contextlib.suppress(OSError):
                    os.close(number)
        self._last.pop(path, None)
        self._usual.pop(path, None)


def open_counter(config: int, group: int, cpu: int, leader: int, kind: int = HARDWARE) -> int:
    """Open one counter of a control group on a cpu; a group of -1 is our own process on any cpu.

    Raises
    ------
    OSError
        As in perf_event_open(2): ENOENT without such a counter, EACCES or EPERM without the right.
    """
    number = SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    attribute = ctypes.create_string_buffer(
        ATTRIBUTE.pack(kind, ATTRIBUTE.size, config, 0, 0, READ_FORMAT, 0, 0, 0, 0), ATTRIBUTE.size
    )
    flags = CLOSED_ON_EXEC | (OF_A_GROUP if group >= 0 else 0)
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(
        ctypes.c_long(number), attribute, ctypes.c_int(max(group, 0)), ctypes.c_int(cpu), ctypes.c_int(leader),
        ctypes.c_ulong(flags),
    )  # fmt: skip
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)
