"""A race that is ended says so in one line at most, wherever it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import real_race

from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_sim.apiserver.testing import server_in_thread


@contextlib.contextmanager
def plane_that_is_gone(_: Any, folder: Path, *, fsync: bool) -> Iterator[Any]:
    """A control plane whose server has ended, as that of a group of processes that was ended as a whole."""
    del fsync
    with server_in_thread() as server:
        path = server.write_kubeconfig(folder / "kubeconfig")
    yield SimpleNamespace(admin=load_credentials(str(path), None), started_in_seconds=0.0)


async def reads(plane: Any, *_: object) -> NoReturn:
    async with KubeClient(plane.admin, timeout_seconds=5.0) as client:
        await client.list("/api/v1/nodes")
    raise AssertionError("nobody answers")


async def is_ended(*_: object) -> None:
    """As `run` hears it."""
    mine = asyncio.current_task()
    assert mine is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, mine.cancel)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60.0)


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setattr(sys, "argv", ["real_race.py", "--racers", "bare"])
    monkeypatch.setattr(real_race, "control_plane", plane_that_is_gone)
    monkeypatch.setattr(real_race, "of_release", lambda *_: None)
    before = signal.getsignal(signal.SIGTERM)
    yield monkeypatch
    signal.signal(signal.SIGTERM, before)


def test_where_the_api_server_is_ended_while_it_is_read_the_race_ends_in_one_line(raced: pytest.MonkeyPatch) -> None:
    raced.setattr(real_race, "run", reads)
    with pytest.raises(
        SystemExit, match=r"^race: ended, since the API server is gone or refuses: .*\bnodes\b"
    ) as ended:
        real_race.main()
    assert "\n" not in str(ended.value)


def test_sigterm_ends_it_with_the_code_of_a_shell_and_no_line(raced: pytest.MonkeyPatch) -> None:
    raced.setattr(real_race, "run", is_ended)
    with pytest.raises(SystemExit) as ended:
        real_race.main()
    assert ended.value.code == 143
