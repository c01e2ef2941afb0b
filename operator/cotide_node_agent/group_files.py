"""Control groups of pods as files: what is read of them, and which of their files limit their use.

One interface over both versions of the kernel's control groups and both of a kubelet's drivers::

    version 1   cpu/kubepods/burstable/podUID/cpu.cfs_quota_us, one hierarchy for each controller
    version 2   kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cpu.max, one for all

Called by `agent`; `open_group_files` finds out the version. Only `undo_journal` writes. Sources: the kernel's
admin-guide/cgroup-v1 and cgroup-v2, scheduler/sched-bwc and accounting/psi.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from cotide_core.errors import CotideError

QUOTA_LEAST_MICROSECONDS: Final = 1_000
"""The kernel refuses less."""
SHARES_LEAST: Final = 2
"""Of version 1, where a request of one cpu is 1024."""
WEIGHT_LEAST: Final = 1
_POD: Final = re.compile(r"(?:.*-)?pod([0-9a-zA-Z_-]+?)(?:\.slice)?")
KUBEPODS: Final = ("kubepods", "kubepods.slice")
"""As the kubelet's two drivers name it."""
_TIERS: Final = ("besteffort", "burstable")


class GroupsUnreadable(CotideError):
    """Control groups are not where a kubelet would make them, or don't answer."""


class Throttling(NamedTuple):
    """How often and for how long a group's own quota held it back, since it was made."""

    periods: int
    seconds: float


class PodGroup(NamedTuple):
    """One pod's control group."""

    uid: str
    path: str
    """Below the root of the hierarchy, or of each of them."""
    tier: str
    """``besteffort``, ``burstable``, or empty for a guaranteed pod."""


Change = tuple[Path, str]
"""A file and the text to write into it."""
Before = Callable[[Path], str | None]
"""The text of a file before its first change; None for an unchanged file."""


class GroupFiles(Protocol):
    """What the agent knows of one version of control groups."""

    @property
    def version(self) -> int:
        """1 or 2."""
        ...

    @property
    def kubepods(self) -> str:
        """The group that holds all pods."""
        ...

    def pods(self) -> list[PodGroup]:
        """Return the groups of all present pods."""
        ...

    def cpus(self) -> int | None:
        """Return the number of cpus that pods may use at all; None if the kernel gives no number."""
        ...

    def counted(self, path: str) -> Path:
        """Return a group's folder in the hierarchy that the processor's counters know; it may not be there."""
        ...

    def cpu_seconds(self, path: str) -> float:
        """Return the cpu time that a group has used; an empty path means the whole node."""
        ...

    def throttling(self, path: str) -> Throttling:
        """Return how a group's own quota has held it back."""
        ...

    def stall_seconds(self, path: str) -> float | None:
        """Return how long at least one task of the group waited for a cpu; None if the kernel gives no figure."""
        ...

    def threads(self, path: str) -> list[int]:
        """Return the threads of a group and of those below it."""
        ...

    def quota(self, path: str, cpus: float, before: Before) -> list[Change]:
        """Return what to write, in this order, so that the group uses at most so much, and never more than its own
        quota.
        """
        ...

    def weight(self, path: str, requested_millicores: int | None) -> Change:
        """Return what to write for the weight of this request; None for the least one."""
        ...

    def memory(self, path: str, amount_bytes: int) -> Change | None:
        """Return what to write so that memory above the amount is reclaimed first, and nothing killed for it."""
        ...


def open_group_files(mount: Path, root: str = "") -> GroupFiles:
    """Return the control groups below a mount; ``root`` is the kubelet's ``cgroupRoot``.

    Raises
    ------
    GroupsUnreadable
        When neither version is there, or no kubelet has made groups for its pods.
    """
    if (mount / "cgroup.controllers").exists():
        return GroupFiles2(mount / root.lstrip("/"))
    if (mount / "cpuacct").is_dir() and (mount / "cpu").is_dir():
        return GroupFiles1(mount, root.lstrip("/"))
    raise GroupsUnreadable(f"{mount} holds no control groups of version 1 (cpu, cpuacct) or 2 (cgroup.controllers)")


class GroupFiles1:
    """Version 1: a hierarchy for each controller."""

    version = 1

    def __init__(self, mount: Path, root: str) -> None:
        self._cpu, self._usage, self._memory = (mount / text / root for text in ("cpu", "cpuacct", "memory"))
        self.kubepods = _kubepods(self._cpu)
        self._counted = mount / "perf_event" / root
        self._cpus = mount / "cpuset" / root / self.kubepods / "cpuset.effective_cpus"

    def pods(self) -> list[PodGroup]:
        """Return the groups of all present pods."""
        return list(_pods(self._cpu))

    def cpus(self) -> int | None:
        """Return the number of cpus that pods may use at all."""
        return _cpus(self._cpus)

    def counted(self, path: str) -> Path:
        """Return a group's folder in the hierarchy that the processor's counters know."""
        return self._counted / path

    def cpu_seconds(self, path: str) -> float:
        """Return the cpu time that a group has used."""
        return int(_read(self._usage / path / "cpuacct.usage")) / 1e9

    def throttling(self, path: str) -> Throttling:
        """Return how a group's own quota has held it back."""
        figures = _figures(self._cpu / path / "cpu.stat")
        return Throttling(figures.get("nr_throttled", 0), figures.get("throttled_time", 0) / 1e9)

    def stall_seconds(self, path: str) -> float | None:
        """Return None: version 1 has no pressure of a group (its file, if there is one, stays at 0)."""
        del path
        return None

    def threads(self, path: str) -> list[int]:
        """Return the threads of a group and of those below it."""
        return _threads(self._cpu / path, "tasks")

    def quota(self, path: str, cpus: float, before: Before) -> list[Change]:
        """Return what to write; with version 1 the kernel gives a container at most the quota of its pod, at any
        moment.
        """
        pod = self._one_quota(self._cpu / path, cpus, before)
        below = [
            (self._one_quota(file.parent, cpus, before), int(_read(file)))
            for file in sorted((self._cpu / path).glob("*/cpu.cfs_quota_us"))
        ]
        limited = [(change, own) for change, own in below if own > 0]
        lowered = [change for change, own in limited if int(change[1]) <= own]
        return [*lowered, pod, *(change for change, own in limited if int(change[1]) > own)]

    def _one_quota(self, folder: Path, cpus: float, before: Before) -> Change:
        file, period = folder / "cpu.cfs_quota_us", int(_read(folder / "cpu.cfs_period_us"))
        own = int(before(file) or _read(file))
        quota = max(QUOTA_LEAST_MICROSECONDS, int(cpus * period))
        return file, str(min(own, quota) if own > 0 else quota)

    def weight(self, path: str, requested_millicores: int | None) -> Change:
        """Return what to write: 1024 for a cpu, as a kubelet does."""
        shares = SHARES_LEAST if requested_millicores is None else requested_millicores * 1024 // 1000
        return self._cpu / path / "cpu.shares", str(min(262144, max(SHARES_LEAST, shares)))

    def memory(self, path: str, amount_bytes: int) -> Change | None:
        """Return what to write: the soft limit, above which memory is taken first when the node lacks some."""
        file = self._memory / path / "memory.soft_limit_in_bytes"
        return (file, str(amount_bytes // 4096 * 4096)) if file.exists() else None


class GroupFiles2:
    """Version 2: one hierarchy for all controllers."""

    version = 2

    def __init__(self, root: Path) -> None:
        self._root = root
        self.kubepods = _kubepods(root)

    def pods(self) -> list[PodGroup]:
        """Return the groups of all present pods."""
        return list(_pods(self._root))

    def cpus(self) -> int | None:
        """Return the number of cpus that pods may use at all."""
        return _cpus(self._root / self.kubepods / "cpuset.cpus.effective")

    def counted(self, path: str) -> Path:
        """Return a group's folder: there is one hierarchy."""
        return self._root / path

    def cpu_seconds(self, path: str) -> float:
        """Return the cpu time that a group has used."""
        return _figures(self._root / path / "cpu.stat").get("usage_usec", 0) / 1e6

    def throttling(self, path: str) -> Throttling:
        """Return how a group's own quota has held it back."""
        figures = _figures(self._root / path / "cpu.stat")
        return Throttling(figures.get("nr_throttled", 0), figures.get("throttled_usec", 0) / 1e6)

    def stall_seconds(self, path: str) -> float | None:
        """Return the ``some`` of the group's cpu pressure."""
        try:
            text = _read(self._root / path / "cpu.pressure")
        except GroupsUnreadable:
            return None
        found = re.search(r"^some .*total=(\d+)", text, re.MULTILINE)
        return int(found[1]) / 1e6 if found else None

    def threads(self, path: str) -> list[int]:
        """Return the threads of a group and of those below it."""
        return _threads(self._root / path, "cgroup.threads")

    def quota(self, path: str, cpus: float, before: Before) -> list[Change]:
        """Return what to write; containers below keep their own, and the tightest holds."""
        file = self._root / path / "cpu.max"
        own, period = (before(file) or _read(file)).split()
        quota = max(QUOTA_LEAST_MICROSECONDS, int(cpus * int(period)))
        return [(file, f"{quota if own == 'max' else min(int(own), quota)} {period}")]

    def weight(self, path: str, requested_millicores: int | None) -> Change:
        """Return what to write: shares of version 1 as runtimes turn them into weights."""
        file = self._root / path / "cpu.weight"
        if requested_millicores is None:
            return file, str(WEIGHT_LEAST)
        shares = min(262144, max(SHARES_LEAST, requested_millicores * 1024 // 1000))
        return file, str(1 + ((shares - 2) * 9999) // 262142)

    def memory(self, path: str, amount_bytes: int) -> Change | None:
        """Return what to write: the limit above which the group's memory is taken back, without killing."""
        file = self._root / path / "memory.high"
        return (file, str(amount_bytes // 4096 * 4096)) if file.exists() else None


def _kubepods(root: Path) -> str:
    for name in KUBEPODS:
        if (root / name).is_dir():
            return name
    raise GroupsUnreadable(f"{root} holds neither {' nor '.join(KUBEPODS)}: is this the kubelet's cgroupRoot?")


def _pods(root: Path) -> Iterator[PodGroup]:
    for kubepods in (root / name for name in KUBEPODS):
        if not kubepods.is_dir():
            continue
        tiers = {kubepods: ""}
        for tier in _TIERS:
            tiers |= {kubepods / tier: tier, kubepods / f"kubepods-{tier}.slice": tier}
        for folder, tier in tiers.items():
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                found = _POD.fullmatch(path.name)
                if found and path.is_dir():
                    yield PodGroup(found[1].replace("_", "-"), str(path.relative_to(root)), tier)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise GroupsUnreadable(f"{file}: {error}") from error


def _cpus(file: Path) -> int | None:
    """Count a list such as ``0-3,8``, which is five cpus; None where there is no such list, or it is empty."""
    try:
        ends = [[int(text) for text in part.split("-")] for part in _read(file).strip().split(",")]
    except (GroupsUnreadable, ValueError):
        return None
    return sum(end[-1] - end[0] + 1 for end in ends)


def _figures(file: Path) -> Mapping[str, int]:
    lines = (line.split() for line in _read(file).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}


def _threads(folder: Path, name: str) -> list[int]:
    found: list[int] = []
    # Not rglob, which raises if a container ends while it looks; vanished folders are skipped here.
    for group, below, files in os.walk(folder):
        below.sort()
        if name not in files:
            continue
        try:
            found += map(int, Path(group, name).read_text(encoding="ascii").split())
        except OSError:  # the container ended meanwhile
            continue
    return found
