"""docs/guide/adoption.md: every command of the page, in its order, on a cluster with real nodes and the real image."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from control_plane import ControlPlane
from repository import ROOT

PAGE: Final = ROOT / "docs" / "guide" / "adoption.md"
SECONDS: Final = 60.0
"""For what the API server takes in late, as an admission policy, and for a busy machine's ledger; chosen."""
PLACED: Final = re.compile(r"^placed +[4-9] pods", re.MULTILINE)


def blocks() -> list[list[str]]:
    """The page's console blocks, each as lines."""
    text = PAGE.read_text(encoding="utf-8")
    return [block.splitlines() for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def shown(block: list[str]) -> list[tuple[str, list[str]]]:
    """Commands of a block, each with the output that the page shows for it."""
    found: list[tuple[str, list[str]]] = []
    for line in block:
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


class Shell:
    """One shell's variables and folder, as a reader's are; kubectl and cotide stand on its PATH."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        for name in ("deploy", "examples"):
            (folder / name).symlink_to(ROOT / name)
        programs = f"{Path(plane.kubectl).parent}:{Path(sys.executable).parent}"
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(plane.folder / "admin.kubeconfig"),
        }
        self._folder, self._variables = folder, ""

    def run(self, command: str) -> tuple[int, str]:
        """Run a command; what it assigns is there for those after it."""
        assigned = re.match(r"(\w+)=", command)
        name = assigned[1] if assigned else ""
        tail = f'; printf %s "${name}"' if name else " 2>&1"
        done = subprocess.run(
            ["bash", "-c", self._variables + command + tail],
            capture_output=True, text=True, check=False, cwd=self._folder, env=self._environment, timeout=400,
        )  # fmt: skip
        if name:
            self._variables += f"{name}={shlex.quote(done.stdout)}\n"
        return done.returncode, done.stdout


@pytest.fixture
def reader(installed: ControlPlane, tmp_path: Path) -> Shell:
    return Shell(installed, tmp_path)


def test_each_command_of_the_page_does_what_the_page_shows(reader: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    said: dict[str, str] = {}
    copied = ""
    for command, output in [one for block in blocks() for one in shown(block)]:
        refused = any(line.startswith(("Error", "The ")) for line in output)
        deadline = time.monotonic() + SECONDS
        code, text = reader.run(command)
        while refused and code == 0 and time.monotonic() < deadline:
            code, text = reader.run(command)
        # Decisions are written once a second, and a busy machine decides late: a reader copies the ledger again.
        while command.startswith("cotide report") and not PLACED.search(text) and time.monotonic() < deadline:
            time.sleep(1.0)
            assert reader.run(f"rm -r ledger && {copied}")[0] == 0, copied
            code, text = reader.run(command)
        copied = command
        with capsys.disabled():
            print(f"$ {command}\n{text}", end="", flush=True)
        assert (code != 0) is refused, (command, text)
        said[command] = text
    report = next(text for command, text in said.items() if command.startswith("cotide report"))
    assert PLACED.search(report), report
    events = next(text for command, text in said.items() if "get events" in command)
    assert events.count("pod/handed-over-") == 4, events
    explained = next(text for command, text in said.items() if command.startswith("cotide explain"))
    assert "because a batch/v1 Job owns it" in explained, explained
