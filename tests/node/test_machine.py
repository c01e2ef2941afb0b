"""The machine itself: nothing of it is left, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from machine import GROUPS

MACHINE = Path(__file__).parent / "machine" / "machine.py"
SECONDS = 60.0


def groups(printed: Path) -> set[Path]:
    """Control groups of the machine that has written its name there: others may run beside it."""
    name = printed.read_text().strip() if printed.exists() else ""
    return {*GROUPS.glob(name), *GROUPS.glob(f"*/{name}")} if name else set()


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
        assert time.monotonic() < deadline, processes("86399")
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_of_a_machine_that_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    printed = tmp_path / "name"
    # Its own control groups hold a process, as those of pods do.
    within = "for g in /sys/fs/cgroup/*/$COTIDE_MACHINE_CGROUP /sys/fs/cgroup/$COTIDE_MACHINE_CGROUP; do \
      test -d $g && mkdir -p $g/a/b && (sleep 86399 & echo $! > $g/a/b/cgroup.procs); done; \
      echo $COTIDE_MACHINE_CGROUP > $0; exec sleep 86399"
    command = [sys.executable, str(MACHINE), "--", "sh", "-c", within, str(printed)]
    with subprocess.Popen(command, start_new_session=True) as started:
        until(lambda: len(processes("86399")) >= 2 and groups(printed))
        started.send_signal(number)
        until(lambda: not processes("86399") and not groups(printed))


def test_it_ends_with_the_exit_code_of_its_command_which_sees_no_other_process(tmp_path: Path) -> None:
    printed = tmp_path / "name"
    within = "echo $COTIDE_MACHINE_CGROUP > $0; test $(ls -d /proc/[0-9]* | wc -l) -lt 6 && exit 5"
    command = [sys.executable, str(MACHINE), "--", "sh", "-c", within, str(printed)]
    assert subprocess.run(command, check=False, timeout=SECONDS).returncode == 5
    assert printed.read_text().strip()
    assert not groups(printed)
