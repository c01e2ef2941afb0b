"""A published program beside a real API server: what its release applies, and itself as a process that says ready.

Called by `kueue_beside` and `cluster_api_beside`, which say what is left out and how it is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from control_plane import ControlPlane
from module_program import ModuleProgram
from processes import Process

DEADLINE_SECONDS: Final = 120.0
"""Chosen: such programs start within ten seconds on an idle machine."""
Json = dict[str, Any]


def released(plane: ControlPlane, program: ModuleProgram, left_out: Collection[str]) -> list[Json]:
    """Return what the release of a program applies, but for some kinds."""
    command = [plane.kubectl, "kustomize", str(program.manifests)]
    built = subprocess.run(command, capture_output=True, text=True, check=True)
    return [one for one in yaml.safe_load_all(built.stdout) if one and one["kind"] not in left_out]


def client_configurations(document: Json) -> list[Json]:
    """Return where a document says whom the API server asks."""
    asked = [webhook["clientConfig"] for webhook in document.get("webhooks") or ()]
    conversion = document.get("spec", {}).get("conversion") if document["kind"] == "CustomResourceDefinition" else None
    if conversion is not None:
        asked.append(conversion["webhook"]["clientConfig"])
    return asked


def apply_all(plane: ControlPlane, documents: Sequence[Json], file: Path) -> None:
    """Write documents into a file and apply them as an administrator."""
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    admin = str(plane.folder / "admin.kubeconfig")
    command = [plane.kubectl, "--kubeconfig", admin, "apply", "--server-side", "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def running(
    plane: ControlPlane, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """Run a program that must not end by itself."""
    process = plane.pen.start(name, list(command), environment)
    try:
        yield process
        assert process.exit_code is None, process.text()[-3000:]
    finally:
        process.end(signal.SIGTERM)


class Patience:
    """Looks again until a program has had its time, or ended."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._deadline = time.monotonic() + DEADLINE_SECONDS

    async def wait(self) -> None:
        """Pause before the next look."""
        assert time.monotonic() < self._deadline, self._process.text()[-3000:]
        assert self._process.exit_code is None, self._process.text()[-3000:]
        await asyncio.sleep(0.1)


async def until_ready(port: int, process: Process) -> None:
    """Wait until it says so, which it does once its webhooks listen."""
    patience = Patience(process)
    async with aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            await patience.wait()
