"""Kueue, found in our cache or built once from its published module, with the manifests of that version.

Called by the fixtures of ``tests/real/kueue``, which never build, and as a program by ``make test-kueue``, which does::

    PYTHONPATH=tests/controlplane python tests/controlplane/kueue_program.py

It prints the folder; exit code 77 and one line where there is no way. The module's own go.mod and go.sum say what it is
built from, and its checksum here says that it is this module.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from binaries import NotToBeHad, cached, find_go, last_line, print_folder, progress, tell_on_stderr

VERSION: Final = "v0.15.0"
MODULE: Final = f"sigs.k8s.io/kueue@{VERSION}"
CHECKSUM: Final = "h1:9Khzc2ne6/eWuZx5o+R4KlVBzh3kZkTIMzpPC2e8Spg="
"""As the checksum database of Go modules has it."""
PACKAGE: Final = "./cmd/kueue"


@dataclass(frozen=True, slots=True)
class KueueProgram:
    """One version of Kueue."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / "kueue"

    @property
    def manifests(self) -> Path:
        """The kustomization that its release is made from."""
        return self.folder / "config" / "default"

    def complete(self) -> bool:
        return os.access(self.program, os.X_OK) and self.manifests.is_dir()


def find() -> KueueProgram | None:
    """Return what is there already, or None."""
    found = KueueProgram(cached().parent.parent / "kueue" / VERSION)
    return found if found.complete() else None


def find_or_build(tell: Callable[[str], None]) -> KueueProgram:
    """Return the program; raises `NotToBeHad` where it is neither there nor can be built."""
    found = find()
    if found is not None:
        return found
    go, folder = find_go(tell), cached().parent.parent / "kueue"
    folder.mkdir(parents=True, exist_ok=True)
    source = _downloaded(go)
    log, begun = folder / f"{VERSION}.log", time.monotonic()
    tell(f"building Kueue {VERSION} from source, once: about 5 CPU minutes, log in {log}")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / "made"
        command = [go, "build", "-v", "-trimpath", "-mod=readonly", "-ldflags=-s -w", "-o", str(made / "kueue")]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
        with (
            log.open("w", encoding="utf-8") as sink,
            subprocess.Popen(
                [*command, PACKAGE], cwd=source, env=environment, stderr=subprocess.PIPE, text=True
            ) as building,
        ):
            assert building.stderr is not None
            for line in progress(building.stderr, begun, tell):
                sink.write(line)
        if building.returncode != 0:
            raise NotToBeHad(f"go build failed: {last_line(log.read_text(encoding='utf-8'))} (log in {log})")
        # Not copytree's modes: what is in the module cache is read-only, and so would be the copy's folders.
        shutil.copytree(source / "config", made / "config", copy_function=shutil.copyfile)
        for one in (made, *made.rglob("*")):
            one.chmod(0o755 if one.is_dir() or one.name == "kueue" else 0o644)
        made.rename(folder / VERSION)
    tell(f"built in {time.monotonic() - begun:.0f} s")
    found = find()
    if found is None:
        raise NotToBeHad(f"no program in {folder} after a build")
    return found


def _downloaded(go: str) -> Path:
    """Return the module's folder in Go's own cache."""
    done = subprocess.run([go, "mod", "download", "-json", MODULE], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotToBeHad(f"{MODULE} can't be downloaded: {last_line(done.stderr or done.stdout)}")
    module = json.loads(done.stdout)
    if module["Sum"] != CHECKSUM:
        raise NotToBeHad(f"{MODULE} has the checksum {module['Sum']}, and not {CHECKSUM}")
    return Path(module["Dir"])


def main() -> int:
    """Print the folder of the program."""
    return print_folder(lambda: find_or_build(tell_on_stderr).folder, "the tests beside Kueue")


if __name__ == "__main__":
    sys.exit(main())
