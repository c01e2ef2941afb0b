"""Builds the project's image from its Dockerfile with buildah, on a machine without Docker and without a registry.

The base image that the Dockerfile names is imitated: this Python, the libraries that it loads, and a shell, under the
same name. Everything else is the Dockerfile's own: what it installs comes from the package index by hash. The image is
written as an OCI archive into the cache and made again when what goes into it has changed. As a program, by
``make test-image``::

    PYTHONPATH=tests/controlplane python tests/node/machine/image_build.py

It prints the archive; exit code 77 and one line where there is no way.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import images
from binaries import SKIP_CODE, NotToBeHad, tell_on_stderr
from node_programs import NodePrograms, find_or_download

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = (
    "Dockerfile", ".dockerignore", "pyproject.toml", "constraints.txt", "requirements.lock", "README.md", "LICENSE",
)  # fmt: skip
FOLDERS: Final = ("operator", "predictors")
NAME: Final = "cotide:dev"
"""As deploy/overlays/kind names it."""
LIBRARIES: Final = Path("/usr/lib/x86_64-linux-gnu")
NOT_NEEDED: Final = {"__pycache__", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tkinter", "turtledemo"}
"""Folders of Python's library that a slim image lacks, too, or that only development needs."""
LOADED_LATE: Final = (
    "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libm.so.6",
)  # fmt: skip
"""What wheels expect of any system (manylinux) beside what Python itself loads."""
WITHIN: Final = """
mount -t overlay overlay -o "lowerdir=$1:$2" "$2"
shift 2
exec "$@"
"""
"""In a mount namespace of its own buildah finds its libraries where its own subprocesses look for them, too."""


def archive() -> Path:
    """Return the archive's path in the cache, by what goes into it."""
    digest = hashlib.sha256(sys.version.encode())
    for path in [ROOT / one for one in SOURCES] + sorted(
        one for folder in FOLDERS for one in (ROOT / folder).rglob("*") if one.is_file() and one.suffix != ".pyc"
    ):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "cotide" / "node" / f"image-{digest.hexdigest()[:12]}.tar"


def find_or_build() -> Path:
    """Return the archive of the image; raises `NotToBeHad` where it can't be built."""
    found = archive()
    if found.exists():
        return found
    programs = find_or_download(tell_on_stderr)
    if os.geteuid() != 0:
        raise NotToBeHad("building an image without a registry needs root")
    for older in found.parent.glob("image-*.tar"):
        older.unlink()
    tell_on_stderr(f"building the image into {found}, once: about three minutes")
    with tempfile.TemporaryDirectory(dir=found.parent) as scratch:
        work = Path(scratch)
        base = re.findall(r"^ARG PYTHON=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)[0]
        name = f"docker.io/library/python:{base}"
        content = python_archive(name, programs)
        (work / "base.tar").write_bytes(content)
        (work / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}), "utf-8")
        policy = ["--signature-policy", str(work / "policy.json")]
        buildah = _Buildah(programs, work)
        try:
            buildah.run("pull", *policy, f"oci-archive:{work}/base.tar")
            buildah.run("bud", *policy, "--isolation", "chroot", "--pull-never", "--tag", NAME, str(ROOT))
            buildah.run("push", *policy, f"localhost/{NAME}", f"oci-archive:{work}/image.tar:{NAME}")
        finally:
            buildah.run("rmi", "--all", "--force")
        (work / "image.tar").rename(found)
    return found


class _Buildah:
    def __init__(self, programs: NodePrograms, work: Path) -> None:
        program = str(programs.root / "usr/bin/buildah")
        store = ["--root", str(work / "store"), "--runroot", str(work / "run"), "--storage-driver", "overlay"]
        libraries = work / "libraries"
        libraries.mkdir()
        for folder in (programs.root / "usr/lib/x86_64-linux-gnu", programs.root / "lib/x86_64-linux-gnu"):
            for one in folder.glob("lib*.so*"):
                (libraries / one.name).write_bytes(one.read_bytes())
        within = ["unshare", "--mount", "sh", "-ec", WITHIN, "sh", str(libraries), str(LIBRARIES)]
        self._command = [*within, program, *store]

    def run(self, *arguments: str) -> None:
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines()[-8:]
            raise NotToBeHad(f"buildah {arguments[0]} failed: {' / '.join(lines)}")


def python_archive(name: str, programs: NodePrograms) -> bytes:
    """Return an archive of an image that stands in for python:...-slim."""
    return images.oci_archive(name, _python(programs), ["python"], ["SSL_CERT_FILE=/etc/ssl/certs/ca.crt"])


def _python(programs: NodePrograms) -> dict[str, bytes | str]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    program, library = base / "bin" / version, base / "lib" / version
    files: dict[str, bytes | str] = dict(images.busybox(programs.busybox))
    files |= {"usr/local/bin/python": version, "usr/local/bin/python3": version, "etc/group": b"root:x:0:\n"}
    files |= {f"usr/local/bin/{version}": program.read_bytes()}
    named = [LIBRARIES / name for name in LOADED_LATE]
    shared = [program, *named]
    for folder, inner, names in os.walk(library):
        inner[:] = [one for one in inner if one not in NOT_NEEDED and not one.startswith("config-")]
        for one in (Path(folder, name) for name in names):
            files[f"usr/local/lib/{version}/{one.relative_to(library)}"] = one.read_bytes()
            shared += [one] if one.suffix == ".so" else []
    for one in (library / "site-packages").glob("pip*/**/*"):
        if one.is_file() and one.suffix != ".pyc":
            files[f"usr/local/lib/{version}/{one.relative_to(library)}"] = one.read_bytes()
    for one in shared:
        files |= images.loaded_by(one)
    files |= {f"lib/x86_64-linux-gnu/{one.name}": one.read_bytes() for one in named}
    authorities = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    return {**files, "etc/ssl/certs/ca.crt": authorities.read_bytes()}


def main() -> int:
    """Print the archive's path."""
    try:
        sys.stdout.write(f"{find_or_build()}\n")
    except NotToBeHad as reason:
        sys.stderr.write(f"the tests of the image are skipped: {reason}\n")
        return SKIP_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())
