"""The machine itself: nothing of it is left, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from machine import GROUPS, PREFIX

MACHINE = Path(__file__).parent / "machine" / "machine.py"
SECONDS = 60.0


def groups() -> set[Path]:
    return {*GROUPS.glob(f"{PREFIX}*"), *GROUPS.glob(f"*/{PREFIX}*")}


def processes(word: str) -> list[str]:
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = one.read_bytes()
        except OSError:
            continue
        if word.encode() in text:
            found.append(text.decode().replace("\0", " "))
    return found


def until(check: object) -> None:
    deadline = time.monotonic() + SECONDS
    while not check():  # type: ignore[operator]  # a closure of the test
        assert time.monotonic() < deadline, (processes("86399"), groups())
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_of_a_machine_that_is_killed(number: signal.Signals) -> None:
    before = groups()
    # Its own control groups hold a process, as those of pods do.
    within = "for g in /sys/fs/cgroup/*/$COTIDE_MACHINE_CGROUP /sys/fs/cgroup/$COTIDE_MACHINE_CGROUP; do \
      test -d $g && mkdir -p $g/a/b && (sleep 86399 & echo $! > $g/a/b/cgroup.procs); done; exec sleep 86399"
    with subprocess.Popen([sys.executable, str(MACHINE), "--", "sh", "-c", within], start_new_session=True) as started:
        until(lambda: len(processes("86399")) >= 2 and groups() > before)
        started.send_signal(number)
        until(lambda: not processes("86399") and groups() == before)


def test_it_ends_with_the_exit_code_of_its_command_which_sees_no_other_process() -> None:
    before = groups()
    command = [sys.executable, str(MACHINE), "--", "sh", "-c", "test $(ls -d /proc/[0-9]* | wc -l) -lt 6 && exit 5"]
    assert subprocess.run(command, check=False, timeout=SECONDS).returncode == 5
    assert groups() == before
