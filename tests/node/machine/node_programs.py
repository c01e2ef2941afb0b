"""The programs of a real node that Kubernetes does not build: a container runtime, network plugins, a shell.

Looked for in our cache; where one is missing, Debian's packages are downloaded with apt and unpacked there, and nothing
is installed. Called by the fixtures of ``tests/node`` and, as a program, by ``make test-node``::

    PYTHONPATH=tests/controlplane python tests/node/machine/node_programs.py

It prints the folder; exit code 77 and one line where there is no way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from binaries import NotToBeHad, print_folder, tell_on_stderr

PACKAGES: Final = (
    "containerd", "runc", "containernetworking-plugins", "busybox-static", "memcached", "libevent-2.1-7", "libseccomp2",
    "buildah", "libgpgme11", "libassuan0", "libdevmapper1.02.1",
)  # fmt: skip
"""Of Debian 12: containerd 1.6.20, runc 1.1.5, plugins 1.1.1, busybox 1.35.0, memcached 1.6.18, buildah 1.28.2."""
LAYOUT: Final = 2
"""Changed when `PACKAGES` or the folder's layout change."""


@dataclass(frozen=True, slots=True)
class NodePrograms:
    """Where the programs are."""

    root: Path

    @property
    def containerd(self) -> Path:
        return self.root / "usr/bin/containerd"

    @property
    def ctr(self) -> Path:
        return self.root / "usr/bin/ctr"

    @property
    def path(self) -> str:
        """Folders for PATH, in which containerd finds its shim and runc."""
        return f"{self.root}/usr/bin:{self.root}/usr/sbin"

    @property
    def network_plugins(self) -> Path:
        return self.root / "usr/lib/cni"

    @property
    def busybox(self) -> Path:
        return self.root / "bin/busybox"

    @property
    def memcached(self) -> Path:
        return self.root / "usr/bin/memcached"

    @property
    def libraries(self) -> Path:
        """Shared libraries that came along."""
        return self.root / "usr/lib/x86_64-linux-gnu"

    def complete(self) -> bool:
        programs = (self.containerd, self.ctr, self.busybox, self.memcached, self.network_plugins / "bridge")
        return all(os.access(program, os.X_OK) for program in (*programs, self.root / "usr/sbin/runc"))


def find_or_download(emit: Callable[[str], None]) -> NodePrograms:
    """Return the programs; raises `NotToBeHad` where they are neither there nor can be downloaded."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cotide" / "node"
    found = NodePrograms(home / f"debian-{LAYOUT}")
    if found.complete():
        return found
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NotToBeHad("there is no container runtime in the cache, and no apt to download Debian's")
    home.mkdir(parents=True, exist_ok=True)
    emit(f"downloading {', '.join(PACKAGES)} into {home}, once")
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        _run(["apt-get", "download", "--quiet", *PACKAGES], Path(scratch))
        unpacked = Path(scratch) / "root"
        for package in Path(scratch).glob("*.deb"):
            _run(["dpkg", "-x", str(package), str(unpacked)], Path(scratch))
        if not NodePrograms(unpacked).complete():
            raise NotToBeHad(f"Debian's packages lack a program: {', '.join(PACKAGES)}")
        unpacked.rename(found.root)
    return found


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise NotToBeHad(f"{' '.join(command[:2])} failed: {lines[-1]}")


def main() -> int:
    """Print the folder of the programs."""
    return print_folder(lambda: find_or_download(tell_on_stderr).root, "the tests on real nodes")


if __name__ == "__main__":
    sys.exit(main())
