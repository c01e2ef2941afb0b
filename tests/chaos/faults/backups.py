"""A backup of the server's data, and the day on which it is put back: versions go back, and what came since never was.

Used by `run_context`. The checker and the environment are put back with the data, so that all of it is judged anew
from there: bindings, ends and deletions since the backup did not happen, and the requests of before and after are not
compared with each other. Users apply once more what they had asked for since, and kubelets follow what is there.

Until an operator learns of it, it acts on what it believed. What it then does wrong is excused as long as a process
lives that was shown something later than the backup; that each of them learns of it and ends is part of what the run
must come to. Who was shown nothing of the sort (it had not listed yet, or its watches were still to be opened) knows of
nothing that never was.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from environment import Environment
from invariant_checker import InvariantChecker
from replica import Replica
from write_record import WriteRecord

from cotide_kube.credentials import Credentials

REMEMBERED: Final = ("pods", "nodes", "jobs", "marks", "taken", "bound", "succeeded", "version", "_on")
"""What a checker knows that goes back with the data."""


class Site(Protocol):
    """A server that can be hurt."""

    name: str
    saved: int
    """The version of the backup."""

    def credentials(self) -> Credentials: ...

    async def restart_api(self, down_seconds: float) -> None: ...

    async def restart_store(self, down_seconds: float) -> None: ...

    async def compact(self) -> None: ...

    async def save(self, remember: Callable[[], None]) -> None:
        """Take a backup; ``remember`` is called when the checker has seen just what is in it."""

    async def restore(self, rewind: Callable[[], Awaitable[None]]) -> None:
        """Put it back; ``rewind`` is called when the server is away, and nothing tells the checker."""


@dataclass
class Backups:
    """The backup of one run."""

    site: Site
    checker: InvariantChecker
    environment: Environment
    record: WriteRecord
    replicas: Sequence[Replica] = ()
    restored: int = 0
    _kept: dict[str, Any] | None = field(default=None)

    async def save(self) -> None:
        await self.site.save(self._remember)

    def _remember(self) -> None:
        self._kept = {name: copy.deepcopy(getattr(self.checker, name)) for name in REMEMBERED}

    async def restore(self) -> None:
        """Go back to the backup; without one nothing happens."""
        if self._kept is not None:
            await self.site.restore(self._rewind)

    def anyone_knows(self) -> bool:
        """Whether an operator lives that was shown what never was."""
        return any(len(replica.ends) < replica.last_to_end for replica in self.replicas)

    async def _rewind(self) -> None:
        assert self._kept is not None
        await self.environment.forget()
        checker = self.checker
        checker.lost_successes = {
            (checker.jobs[job]["metadata"]["uid"], index) for job, index in checker.succeeded if job in checker.jobs
        }
        kept = copy.deepcopy(self._kept)
        # Who was about to take a pod away does not know of it any more: it works on like any other.
        kept["taken"] -= {pod.uid for pod in kept["pods"].values() if not pod.leaving}
        for name, value in kept.items():
            setattr(self.checker, name, value)
        self.record.begin_anew()
        self.restored += 1
        self.checker.history.append(f"{self.checker.version} RESTORED")
        for replica in self.replicas:
            replica.positions = {}
            if replica.proxy is not None and replica.proxy.observed.version > self.site.saved:
                replica.last_to_end = replica.starts
        self.checker.excuses = self.anyone_knows()
        self.environment.follow_anew()
