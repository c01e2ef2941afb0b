"""Weights of processes on the cores that they share, as a kubelet sets them: by cgroup, or otherwise by niceness.

Used by `local_machine`. Version 1 (``cpu.shares``) and 2 (``cpu.weight``); groups are made inside the group of this
process. Invariants: a group is removed with its campaign; when no group may be made, niceness gives the same
proportion.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path
from typing import Final, Self

SHARES_OF_A_CORE: Final = 1024
"""``cpu.shares`` of a container that requests 1000m (kubelet)."""
NICE_STEP: Final = 1.25
"""Each step of niceness changes a weight by this factor (sched(7))."""
LEAVE_SECONDS: Final = 1.0
"""Seconds to wait until all processes of a group are reaped; an empty remaining group does no harm (chosen)."""
_ROOT: Final = Path("/sys/fs/cgroup")


class CpuGroup:
    """One group, as a context; ``directory`` is None when no group may be made."""

    def __init__(self, name: str, millicores: int) -> None:
        self._name = f"cotide-{os.getpid()}-{name}"
        self._millicores = millicores
        self.directory: Path | None = None
        self._usage: Path | None = None

    def __enter__(self) -> Self:
        for own, file, weight in _hierarchies(self._millicores):
            directory = own / self._name
            try:
                # A group of an earlier window may still exist: its killed processes are reaped a moment later.
                directory.mkdir(exist_ok=True)
                (directory / file).write_text(f"{weight}\n")
            except OSError:
                with contextlib.suppress(OSError):
                    directory.rmdir()
                continue
            self.directory = directory
            break
        return self

    def __exit__(self, *_: object) -> None:
        if self.directory is not None:
            deadline = time.monotonic() + LEAVE_SECONDS
            while not _removed(self.directory) and time.monotonic() < deadline:
                time.sleep(0.01)

    def is_used(self) -> bool:
        """Whether a process is in it; True without a group, since there is no wait then."""
        if self.directory is None:
            return True
        try:
            return bool((self.directory / "cgroup.procs").read_text(encoding="ascii").strip())
        except OSError:
            return False

    def prefix(self, beside_millicores: int) -> str:
        """Return the shell command that puts the shell itself into the group, or makes it nice instead.

        Parameters
        ----------
        beside_millicores : the largest request on these cores: it stays at niceness 0.
        """
        if self.directory is not None:
            return f"echo $$ > {self.directory}/cgroup.procs; "
        steps = round(math.log(beside_millicores / self._millicores) / math.log(NICE_STEP))
        return f"renice -n {min(19, steps)} -p $$ > /dev/null; " if steps > 0 else ""


def _removed(directory: Path) -> bool:
    """Remove a group; False while it has a killed process that is not reaped yet."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _hierarchies(millicores: int) -> list[tuple[Path, str, int]]:
    """Return the possible places of a group: the directory of this process's group, the file of the weight, the
    weight."""
    shares = max(2, millicores * SHARES_OF_A_CORE // 1000)
    # As runc converts shares to weights: 2 to 262144 becomes 1 to 10000.
    weight = 1 + (shares - 2) * 9999 // 262142
    found = []
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if "cpu" in controllers.split(","):
            mounts = [_ROOT / controllers, _ROOT / "cpu"]
            found += [(mount / inside, "cpu.shares", shares) for mount in mounts if mount.is_dir()][:1]
        elif number == "0" and not controllers and (_ROOT / "cgroup.controllers").exists():
            found.append((_ROOT / inside, "cpu.weight", weight))
    return found
