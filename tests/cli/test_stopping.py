"""What runs until it is told ends within seconds, whatever it waits for; a second signal ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotide_cli.commands import operator_command
from cotide_cli.stopping import StoppedError, interrupted_when_told, run_until_told
from cotide_core.errors import InputError

LONG = 60.0
"""Seconds that nobody waits."""


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """A shell that starts the tests in the background has them ignore Ctrl-C, which a program then does, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def told(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_work_that_ends_by_itself_returns_its_outcome_and_signals_are_as_before() -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

    async def work() -> int:
        return await asyncio.to_thread(lambda: 7)

    assert run_until_told(work()) == 7
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_work_is_cancelled_and_undoes_what_it_must_while_a_call_of_its_own_still_hangs(number: int, code: int) -> None:
    released, undone = threading.Event(), []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(told, number)
        try:
            await asyncio.to_thread(released.wait, LONG)
        finally:
            undone.append(await asyncio.to_thread(lambda: "uncordoned"))

    began = time.monotonic()
    with pytest.raises(StoppedError) as stopped:
        run_until_told(work())
    released.set()
    assert (undone, stopped.value.exit_code) == (["uncordoned"], code)
    assert time.monotonic() - began < LONG / 2


def test_what_blocks_outside_of_a_loop_is_interrupted_and_unwound() -> None:
    undone = []
    threading.Timer(0.05, told, (signal.SIGTERM,)).start()

    def blocks() -> None:
        with interrupted_when_told():
            try:
                threading.Event().wait(LONG)
            finally:
                undone.append("cleared")

    with pytest.raises(StoppedError, match="stopped by SIGTERM"):
        blocks()
    assert undone == ["cleared"]


def test_a_failure_while_it_is_undone_is_told() -> None:
    async def work() -> None:
        asyncio.get_running_loop().call_soon(told)
        try:
            await asyncio.sleep(LONG)
        finally:
            raise ValueError("still cordoned")

    with pytest.raises(ValueError, match="still cordoned"):
        run_until_told(work())


HANGS = """
import asyncio, threading, time
from cotide_cli.commands import operator_command
from cotide_cli.stopping import interrupted_when_told, run_until_told
from cotide_core.errors import InputError

def hang():
    threading.Event().wait(60)

async def work():
    try:
        print("begun", flush=True)
        await asyncio.to_thread(hang)
    finally:
        print("undoes", flush=True)
        await asyncio.to_thread(hang)

def blocks():
    with interrupted_when_told("one node", {seconds}):
        try:
            print("begun", flush=True)
            hang()
        finally:
            print("undoes", flush=True)
            hang()

{call}
"""


@pytest.mark.parametrize("call", ['run_until_told(work(), "one node", {seconds})', "blocks()"])
@pytest.mark.parametrize("twice", [False, True])
def test_the_process_ends_when_undoing_hangs_too_and_at_once_at_a_second_signal(call: str, twice: bool) -> None:
    seconds = LONG if twice else 0.3
    script = HANGS.format(seconds=seconds, call=call.format(seconds=seconds))
    # Who runs these tests in the background of a script has SIGINT ignored, which a child would inherit.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        signal.signal(signal.SIGINT, inherited)
        assert running.stdout is not None
        assert running.stdout.readline() == b"begun\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == b"undoes\n"
        if twice:
            running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=LONG / 2)
    assert running.returncode == 130
    assert said == b"cotide: ended without waiting for calls that do not answer; one node\n"


def test_ctrl_c_while_libraries_are_still_being_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")  # as Python does wherever it is interrupted
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    asked = [sys.executable, "-m", "cotide_cli", "version"]
    done = subprocess.run(asked, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "cotide: interrupted\n")


def test_an_operator_that_is_stopped_while_it_loads_waits_for_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = threading.Event()
    monkeypatch.setattr(operator_command, "_load", lambda *_: loaded.wait(LONG))

    async def stopped() -> object:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_soon(stop.set)
        return await operator_command._unless_stopped(stop, None, {})

    began = time.monotonic()
    assert asyncio.run(stopped()) is None
    loaded.set()
    assert time.monotonic() - began < LONG / 2


def test_a_mistake_in_the_configuration_is_told_where_nobody_stops_the_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(*_: object) -> None:
        raise InputError("is wrong")

    async def stopped() -> object:
        return await operator_command._unless_stopped(asyncio.Event(), None, {})

    monkeypatch.setattr(operator_command, "_load", mistaken)
    with pytest.raises(InputError, match="is wrong"):
        asyncio.run(stopped())
