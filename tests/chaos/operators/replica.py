"""One replica of the operator's Deployment: a process, started again whenever it ends, as a kubelet would.

Each process has a fault proxy of its own, which dies with it: what a dead operator had sent and the server had not
yet got never arrives, but where a lease holds everybody else up until it must have: there it may. Invariant: when `end`
returns, no process and no proxy of this replica is left.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from fault_proxy import FaultProxy, Trouble
from fork_server import Birth, ForkServer, Operator, troubles_of

from cotide_kube.credentials import Credentials

POLL_SECONDS: Final = 0.01
STATE_SECONDS: Final = 5.0
"""How long an operator may take to write its state; one that is busy dying writes none. Chosen."""
STOP_SECONDS: Final = 40.0
"""How long a clean stop may take: twice what the operator grants its parts; chosen for a busy machine."""
MOST_STARTS: Final = 40
RUNS: Final = "metrics, health and board"
"""What an operator says first, when its handlers of signals are there."""
LEASE_LOST: Final = re.compile(r"^cotide: the lease .*: stopping$", re.MULTILINE)
CRASHED: Final = 70
"""Exit code of an operator that ended with a traceback."""


class Replica:
    """Keeps one operator running."""

    def __init__(
        self,
        name: str,
        fork_server: ForkServer,
        folder: Path,
        upstream: Callable[[], Credentials],
        trouble: Trouble,
        birth: Callable[[str], Birth],
        *,
        outlived: bool = False,
    ) -> None:
        self.name, self._fork_server, self._folder = name, fork_server, folder
        self._upstream, self._trouble, self._birth = upstream, trouble, birth
        self._outlived = outlived
        """Whether requests that are on their way arrive although their sender is dead."""
        self._on_their_way: list[asyncio.Task[None]] = []
        self._wrong: dict[str, Any] = {"disk": "", "models": "", "nameless": False}
        self.operator: Operator | None = None
        self.proxy: FaultProxy | None = None
        self.starts = 0
        self.ends: list[int] = []
        """Exit codes in turn."""
        self.positions: dict[str, int] = {}
        """The queue as the operator that was killed last had it."""
        self.violations: list[str] = []
        self.on_ready: Callable[[Replica, dict[str, Any]], None] = lambda _replica, _state: None
        self.on_end: Callable[[], Awaitable[None]] | None = None
        """Awaited when an operator has ended, before another one is started."""
        self.last_to_end = 0
        """Which of those that were started is the last that was shown something which a restored backup has not."""
        self.away_until = 0.0
        """Monotonic second before which nobody starts it again."""
        self._ending = False
        self._keeper: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._keeper = asyncio.ensure_future(self._keep())

    async def _keep(self) -> None:
        while not self._ending and self.starts < MOST_STARTS:
            while time.monotonic() < self.away_until and not self._ending:
                await asyncio.sleep(POLL_SECONDS)
            proxy = FaultProxy(self._upstream, self._trouble, f"{self.name}-{self.starts + 1}")
            await proxy.open()
            try:
                if self._ending:  # told while it was opened: whoever is started now would never be ended
                    return
                self.proxy = proxy
                self.operator = operator = self._fork_server.start(self._birth(proxy.url), self._folder, self.name)
                self.starts += 1
                reported = False
                while operator.exit_code is None:
                    await asyncio.sleep(POLL_SECONDS)
                    if self.positions and not reported:
                        reported = await self._tell_when_ready(operator)
                self.ends.append(operator.exit_code)
                if self.on_end is not None:
                    await self.on_end()
                # Handlers of signals are there once it runs; before, SIGTERM simply ends it.
                unborn = operator.exit_code == -signal.SIGTERM and RUNS not in operator.said()
                if operator.exit_code not in (0, 1, -signal.SIGKILL) and not unborn:
                    self.violations.append(f"{self.name} ended with {operator.exit_code}:\n{operator.said()[-3000:]}")
            finally:
                self._on_their_way += await proxy.close(outlived=self._outlived)
        if not self._ending:
            self.violations.append(f"{self.name} was started {self.starts} times")

    async def _tell_when_ready(self, operator: Operator) -> bool:
        state = await self.state(operator)
        if not state or not state["ready"]:
            return False
        self.on_ready(self, state)
        return True

    async def state(self, operator: Operator | None = None) -> dict[str, Any]:
        """Ask the operator what it believes; empty when it does not say."""
        operator = operator or self.operator
        if operator is None or "deciding with policy" not in operator.said():
            return {}
        before = operator.state().get("dump", 0)
        operator.send(signal.SIGUSR1)
        deadline = time.monotonic() + STATE_SECONDS
        while operator.exit_code is None and time.monotonic() < deadline:
            found = operator.state()
            if found.get("dump", 0) > before:
                return found
            await asyncio.sleep(POLL_SECONDS)
        return {}

    @property
    def leading(self) -> bool:
        return (
            self.operator is not None
            and self.operator.exit_code is None
            and "deciding with policy" in self.operator.said()
        )

    @property
    def hears(self) -> bool:
        """Whether there is a process that handles signals."""
        return self.operator is not None and self.operator.exit_code is None and RUNS in self.operator.said()

    def go_wrong(self, **what: Any) -> None:
        """Let something be wrong with its machine, or right again; who is started meanwhile finds it so."""
        if what.items() <= self._wrong.items():
            return
        self._wrong.update(what)
        file = troubles_of(self._folder, self.name)
        aside = file.with_suffix(".new")
        aside.write_text(json.dumps(self._wrong), encoding="utf-8")
        aside.rename(file)
        self.send(signal.SIGHUP)

    def send(self, number: signal.Signals) -> None:
        if self.operator is not None:
            self.operator.send(number)

    async def end(self) -> None:
        """Stop it the clean way, for good."""
        self._ending = True
        assert self._keeper is not None
        operator = self.operator
        if operator is not None and operator.exit_code is None:
            ready = RUNS in operator.said()
            operator.send(signal.SIGCONT)
            operator.send(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            while operator.exit_code is None and time.monotonic() < deadline:
                await asyncio.sleep(POLL_SECONDS)
            if operator.exit_code is None:
                self.violations.append(f"{self.name} did not stop within {STOP_SECONDS:g} s")
                operator.send(signal.SIGKILL)
            elif operator.exit_code == -signal.SIGKILL and (operator.birth.kill_at or operator.birth.cpu_seconds):
                pass  # its point came while it stopped
            elif operator.exit_code == 1 and LEASE_LOST.search(operator.said()):
                pass  # it was about to end by itself, as one does that was frozen for longer than its lease
            elif ready and operator.exit_code != 0:
                self.violations.append(f"{self.name} was stopped and ended with {operator.exit_code}")
        await self._keeper
        await asyncio.gather(*self._on_their_way)

    async def abandon(self) -> None:
        """Kill it, for good: the run is over one way or another."""
        self._ending = True
        self.send(signal.SIGKILL)
        if self._keeper is not None:
            await asyncio.gather(self._keeper, *self._on_their_way, return_exceptions=True)
