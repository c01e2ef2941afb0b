"""One program of a published Go module: found in our cache, or built there once, with the module's manifests beside it.

Called by `kueue_program` and `cluster_api_program`, which say which. The module's own go.mod and go.sum say what it is
built from, and its checksum here says that it is this module.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from binaries import NotToBeHad, cached, compiled, find_go, last_line


@dataclass(frozen=True, slots=True)
class ModuleProgram:
    """One version of a program.

    Attributes
    ----------
    name : of its folder in the cache and of its file. title : in words.
    checksum : as the checksum database of Go modules has it.
    package : in the module's folder. minutes : of processor time that a build takes.
    """

    name: str
    title: str
    module: str
    version: str
    checksum: str
    package: str
    minutes: int

    @property
    def folder(self) -> Path:
        return cached().parent.parent / self.name / self.version

    @property
    def program(self) -> Path:
        return self.folder / self.name

    @property
    def manifests(self) -> Path:
        """The kustomization that its release is made from."""
        return self.folder / "config" / "default"

    def complete(self) -> bool:
        return os.access(self.program, os.X_OK) and self.manifests.is_dir()

    def find_or_build(self, emit: Callable[[str], None]) -> ModuleProgram:
        """Return the program; raises `NotToBeHad` where it is neither there nor can be built."""
        if not self.complete():
            self._build(find_go(emit), emit)
        if not self.complete():
            raise NotToBeHad(f"no program in {self.folder} after a build")
        return self

    def _build(self, go: str, emit: Callable[[str], None]) -> None:
        folder = self.folder.parent
        folder.mkdir(parents=True, exist_ok=True)
        source = self._downloaded(go)
        log, begun = folder / f"{self.version}.log", time.monotonic()
        begin = f"building {self.title} {self.version} from source, once: about {self.minutes} CPU minutes"
        emit(f"{begin}, log in {log}")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "made"
            command = [go, "build", "-v", "-trimpath", "-mod=readonly", "-ldflags=-s -w", "-o", str(made / self.name)]
            compiled([*command, self.package], source, log, emit)
            # Not copytree's modes: what is in the module cache is read-only, and so would be the copy's folders.
            shutil.copytree(source / "config", made / "config", copy_function=shutil.copyfile)
            for one in (made, *made.rglob("*")):
                one.chmod(0o755 if one.is_dir() or one == made / self.name else 0o644)
            made.rename(self.folder)
        emit(f"built in {time.monotonic() - begun:.0f} s")

    def _downloaded(self, go: str) -> Path:
        """Return the module's folder in Go's own cache."""
        asked = f"{self.module}@{self.version}"
        done = subprocess.run([go, "mod", "download", "-json", asked], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotToBeHad(f"{asked} can't be downloaded: {last_line(done.stderr or done.stdout)}")
        module = json.loads(done.stdout)
        if module["Sum"] != self.checksum:
            raise NotToBeHad(f"{asked} has the checksum {module['Sum']}, and not {self.checksum}")
        return Path(module["Dir"])
