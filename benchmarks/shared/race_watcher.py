"""Who was created and bound when, seen from one watch; and what processes cost.

Used by `real_race`. One watcher times every scheduler alike: creation and binding are the moments at which its watch
showed them, on one clock, so that the way from the server to the watcher is in both and falls out.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient

SILENCE_SECONDS: Final = 3600.0
TICKS: Final = os.sysconf("SC_CLK_TCK")


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Object


class PodWatch:
    """Moments of every pod of one collection, from its first sight to its node.

    Attributes
    ----------
    created, bound : monotonic seconds by pod name.
    nodes : node by pod name.
    faults : what must never be seen: a pod that moved.
    reopened : how often the watch was closed and opened again.
    """

    def __init__(self, client: KubeClient, path: str) -> None:
        self._client, self._path = client, path
        self._decode = msgspec.json.Decoder(_Event).decode
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.faults: list[str] = []
        self.reopened = 0
        self._version = ""
        self._names: frozenset[str] = frozenset()
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []

    async def run(self) -> None:
        """Watch until cancelled.

        A server that is short of time closes the watch of who does not keep up; it goes on behind the last event, so
        that nothing is missed.
        """
        listed = await self._client.get(self._path, {"limit": "1"})
        self._version = listed["metadata"]["resourceVersion"]
        now = time.monotonic  # the clock of uvloop's loop, which itself counts whole milliseconds
        while True:
            params = {"resourceVersion": self._version, "timeoutSeconds": "7200", "allowWatchBookmarks": "true"}
            async for lines in self._client.watch(self._path, params, SILENCE_SECONDS):
                seen = now()
                for line in lines:
                    self._take(self._decode(line), seen)
                for item in list(self._awaited):
                    if len(self.bound) >= item[0]:
                        self._awaited.remove(item)
                        if not item[1].done():
                            item[1].set_result(None)
            self.reopened += 1

    def look_for(self, names: Iterable[str]) -> None:
        """Begin anew, with these pods: of earlier ones the last events may still be on their way."""
        self._names = frozenset(names)
        self.created, self.bound, self.nodes = {}, {}, {}

    async def until_bound(self, count: int, seconds: float) -> bool:
        """Wait until so many pods are bound; False when that takes too long."""
        if len(self.bound) >= count:
            return True
        reached = asyncio.get_running_loop().create_future()
        self._awaited.append((count, reached))
        try:
            async with asyncio.timeout(seconds):
                await reached
        except TimeoutError:
            return False
        return True

    def _take(self, event: _Event, seen: float) -> None:
        if event.type == "ERROR":
            raise ClusterError("the watch of the race fell too far behind")
        self._version = event.object.metadata.resource_version or self._version
        if event.type in ("DELETED", "BOOKMARK"):
            return
        name, node = event.object.metadata.name, event.object.spec.node_name
        if name not in self._names:
            return
        self.created.setdefault(name, seen)
        if node:
            self.bound.setdefault(name, seen)
            if self.nodes.setdefault(name, node) != node:
                self.faults.append(f"{name} was on {self.nodes[name]} and is on {node}")


def cpu_seconds(processes: Mapping[str, int]) -> dict[str, float]:
    """Return the processor seconds that processes have used, their threads included, by name."""
    return {name: _cpu_seconds(pid) for name, pid in processes.items()}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return what was used from one reading to the next."""
    return {name: round(after[name] - before[name], 2) for name in before}


def memory_bytes(pid: int) -> dict[str, int]:
    """Return the resident memory of a process now and at its highest."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    found = {
        key: int(rest.split()[0]) * 1024
        for key, _, rest in (line.partition(":") for line in lines)
        if key in ("VmRSS", "VmHWM")
    }
    return {"now": found["VmRSS"], "highest": found["VmHWM"]}


def machine() -> dict[str, Any]:
    """Return what the race ran on."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "processor": cpu,
        "memory_gib": round(memory / 2**30),
        "kernel": os.uname().release,
    }
