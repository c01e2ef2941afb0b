"""Container images without an image tool: a tar of an OCI layout, for ``ctr images import``, or what a registry serves.

Called by `real_nodes` and `registry`. Source of the format: the OCI image layout and image specifications, version 1.0.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ANNOTATION: Final = "io.containerd.image.name"
"""By which containerd names what it imports."""
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True, slots=True)
class OciImage:
    """An image of one layer: the digest of its manifest, and contents by digest, the manifest among them."""

    digest: str
    blobs: Mapping[str, bytes]


def busybox(program: Path) -> dict[str, bytes | str]:
    """Return the files of an image with a shell: contents by path, or the target of a link as text."""
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    files: dict[str, bytes | str] = {f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
    return {"bin/busybox": program.read_bytes(), "etc/passwd": b"root:x:0:0::/:/bin/sh\n", **files}


def dynamic(program: Path, libraries: Path) -> dict[str, bytes | str]:
    """Return a program and the shared libraries that it loads, at the paths where it looks for them."""
    return {f"usr/bin/{program.name}": program.read_bytes(), **loaded_by(program, libraries)}


def loaded_by(program: Path, libraries: Path | None = None) -> dict[str, bytes | str]:
    """Return the shared libraries that a program or library loads, looked for in one more folder on request."""
    environment = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False, env=environment).stdout
    files: dict[str, bytes | str] = {}
    for line in listed.splitlines():
        words = line.split()
        path = next((word for word in reversed(words) if word.startswith("/")), None)
        if path is not None:
            asked = words[0] if words[0].startswith("/") else f"/lib/x86_64-linux-gnu/{words[0]}"
            files[asked.lstrip("/")] = Path(path).read_bytes()
    return files


def oci_image(
    files: Mapping[str, bytes | str],
    command: Sequence[str],
    environment: Sequence[str] = (),
    entry_point: Sequence[str] = (),
) -> OciImage:
    """Return an image of one layer that runs a command unless a pod names another one; with an entry point, the command
    is its arguments."""
    layer = _layer(files)
    packed = gzip.compress(layer, compresslevel=1, mtime=0)  # it never leaves this machine
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            **({"Entrypoint": list(entry_point)} if entry_point else {}),
            "Cmd": list(command),
            "Env": ["PATH=/bin:/usr/bin:/usr/local/bin", *environment],
        },
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    blobs = {_digest(packed): packed}
    described = _blob(blobs, config)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **described},
        "layers": [
            {
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": _digest(packed),
                "size": len(packed),
            }
        ],
    }
    return OciImage(_blob(blobs, manifest)["digest"], blobs)


def oci_archive(
    name: str,
    files: Mapping[str, bytes | str],
    command: Sequence[str],
    environment: Sequence[str] = (),
    entry_point: Sequence[str] = (),
) -> bytes:
    """Return an archive with one image of one layer; ``name`` as a pod writes it, with its registry and tag."""
    image = oci_image(files, command, environment, entry_point)
    top = {
        "mediaType": MANIFEST,
        "digest": image.digest,
        "size": len(image.blobs[image.digest]),
        "platform": {"architecture": "amd64", "os": "linux"},
        "annotations": {ANNOTATION: name},
    }
    index = {"schemaVersion": 2, "manifests": [top]}
    written: dict[str, bytes | str] = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps(index).encode(),
        **{f"blobs/{digest.replace(':', '/')}": content for digest, content in image.blobs.items()},
    }
    return _layer(written)


def _blob(blobs: dict[str, bytes], document: Mapping[str, Any]) -> dict[str, Any]:
    content = json.dumps(document).encode()
    blobs[_digest(content)] = content
    return {"digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _layer(files: Mapping[str, bytes | str]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for folder in sorted(
            {str(parent) for path in files for parent in Path(path).parents if str(parent) != "."} | {"tmp"}
        ):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size, entry.mode = len(content), 0o755
                archive.addfile(entry, io.BytesIO(content))
    return sink.getvalue()
