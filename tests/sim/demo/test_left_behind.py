"""However the demo ends, none of its processes is left: not after SIGKILL, and not in the first moment of a child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DEADLINE_SECONDS = 60.0
MARK = "COTIDE_TEST_MARK"
PARENT = """
import asyncio, sys
from pathlib import Path
from cotide_sim.demo.processes import Child

async def run():
    folder = Path(sys.argv[1])
    arguments = ["apiserver", "--port", "0", "--kubeconfig-out", str(folder / "kubeconfig")]
    async with Child("apiserver", arguments, folder):
        (folder / "started").touch()
        await asyncio.sleep(600)

asyncio.run(run())
"""
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to see who is left")


class Processes:
    """All processes that came, directly or not, from one that a test started."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, MARK: self._mark}
        nowhere = subprocess.DEVNULL
        return subprocess.Popen(
            [sys.executable, *command], env=environment, stdout=nowhere, stderr=nowhere, start_new_session=True
        )

    def alive(self) -> set[int]:
        found = set()
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            try:
                marked = f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # it ended meanwhile, or is nobody's business
                continue
            if marked:
                found.add(int(folder.name))
        return found

    def end(self) -> None:
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.end()


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("moment", ["started", "kubeconfig"])
def test_a_child_ends_with_its_parent_at_any_moment(processes: Processes, tmp_path: Path, moment: str) -> None:
    parent = processes.start("-c", PARENT, str(tmp_path))
    until("the child is there", (tmp_path / moment).exists)
    assert len(processes.alive()) == 2
    parent.kill()
    parent.wait(DEADLINE_SECONDS)
    until("nobody is left", lambda: not processes.alive())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_demo_that_is_killed_leaves_nobody(processes: Processes, tmp_path: Path, number: signal.Signals) -> None:
    demo = processes.start("-m", "cotide_cli", "demo", "--nodes", "2", "--ledger", str(tmp_path / "ledger"))
    until("its children are there", lambda: len(processes.alive()) >= 3)
    demo.send_signal(number)
    demo.wait(DEADLINE_SECONDS)
    until("nobody is left", lambda: not processes.alive())
