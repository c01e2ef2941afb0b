"""Where samples, trust, models and run times outlive the pod: a directory of a volume, or ConfigMaps, two a learner.

Called by `qos_learning` and `run_time_habits` of the replica that leads. A directory holds everything; ConfigMaps hold
a digest, since one may have 1 MiB. Invariant: a store is read in full or not at all, and a write that fails changes
nothing but a line in the log: learning goes on in memory.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import shutil
import threading
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

from cotide_core.errors import ClusterError, ModelError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient, Object
from cotide_operator.observability.ledger_file import write_files

Files = dict[str, bytes]

LEARNED: Final = ".learned"
"""Beside the models, with a name that no model has."""
SAMPLES: Final = "samples"
MODEL: Final = "model"
PHASES: Final = "phases"
"""Written by `usage.phase_learning`."""
PARTS: Final = (SAMPLES, MODEL, PHASES)
"""Of a learner."""
RUN_TIMES: Final = "run-times"
"""Of all: it tells namespaces apart itself."""
BEFORE: Final = ".before"
FRESH: Final = ".fresh"
"""Ends of names, behind a dot, of what a part held until it is replaced and of what it will hold."""
DIGEST_SAMPLES: Final = 4_000
"""Samples in a ConfigMap (chosen: some 200 KiB with the usual mixes)."""
MAX_READS: Final = 5
"""Of a directory that is replaced each time while it is read (chosen: it is replaced once in minutes)."""
MOST_BYTES: Final = 900_000
"""Of a ConfigMap's data as sent; etcd takes 1.5 MiB, the API server 1 MiB of data."""
MOST_UNPACKED: Final = 64 * 2**20
"""Bytes that what is read may unpack to (chosen: far above any model)."""
NAME: Final = "cotide-learned"
LABELS: Final = {"app.kubernetes.io/name": "cotide-operator", "app.kubernetes.io/component": "learned"}
SELECTOR: Final = ",".join(f"{key}={value}" for key, value in LABELS.items())


class StoreSilent(ModelError):
    """A store gave no answer: what it holds is not known, and must not be overwritten."""


class TooLarge(ModelError):
    """A part is larger than its store takes."""


class LearnedStore(Protocol):
    """Keeps named sets of files over restarts."""

    @property
    def most_samples(self) -> int | None:
        """Samples that fit; None for any number."""
        ...

    async def learners(self) -> list[str]:
        """Return whose samples are kept. Raises StoreSilent where nobody can tell."""
        ...

    async def load(self, part: str, learner: str) -> Files | None:
        """Return the files of a learner's part; None for none.

        Raises
        ------
        StoreSilent
            When there is no answer.
        ModelError
            When what is there is not what was written.
        """
        ...

    async def save(self, part: str, learner: str, files: Mapping[str, bytes]) -> None:
        """Replace the files of a learner's part.

        Raises
        ------
        TooLarge
            When they are more than the store takes.
        ModelError
            When they can't be written.
        """
        ...

    async def delete(self, learner: str) -> None:
        """Delete what is kept of a learner. Raises ModelError where it can't be deleted."""
        ...


class DirectoryStore:
    """Parts as sub-directories of a directory, each replaced by a rename once the new one is written in full."""

    most_samples: Final = None

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writing = threading.Lock()
        """What is kept at the end may meet a write that is under way in another thread, in the same folders."""

    async def learners(self) -> list[str]:
        """Return the learners that have a folder."""
        return await asyncio.to_thread(self._learners)

    async def load(self, part: str, learner: str) -> Files | None:
        """Read a part; one that was half replaced when the process died is found in its other folder."""
        return await asyncio.to_thread(self._load, _name(part, learner))

    async def save(self, part: str, learner: str, files: Mapping[str, bytes]) -> None:
        """Write a part aside and rename."""
        await asyncio.to_thread(self._save, _name(part, learner), files)

    async def delete(self, learner: str) -> None:
        """Delete the folders of a learner, with what a write that was cut short left of them."""
        for part in PARTS:
            await asyncio.to_thread(self._delete, _name(part, learner))

    def _delete(self, part: str) -> None:
        for name in (part, f".{part}{BEFORE}", f".{part}{FRESH}"):
            try:
                shutil.rmtree(self._directory / name)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ModelError(f"{self._directory / name} can't be deleted: {error.strerror}") from error

    def _learners(self) -> list[str]:
        try:
            names = [path.name for path in sorted(self._directory.iterdir())]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreSilent(f"{self._directory} can't be read: {error.strerror}") from error
        # One that was half replaced when the process died is there, too: `load` finds it.
        halved = [name[1:].removesuffix(BEFORE) for name in names if name.startswith(".") and name.endswith(BEFORE)]
        return _learners_of({*names, *halved})

    def _load(self, part: str) -> Files | None:
        directories = self._directory / part, self._directory / f".{part}{BEFORE}"
        for _ in range(MAX_READS):
            for directory in directories:
                try:
                    files = _read_whole(directory)
                except OSError as error:
                    raise StoreSilent(f"{directory} can't be read: {error.strerror}") from error
                if files is not None:
                    return files
            # An earlier leader may be writing its last: what was there a moment ago has not gone, it was replaced.
            if not any(directory.exists() for directory in directories):
                return None
        raise StoreSilent(f"{directories[0]} is replaced whenever it is read")

    def _save(self, part: str, files: Mapping[str, bytes]) -> None:
        with self._writing:
            self._replace(part, files)

    def _replace(self, part: str, files: Mapping[str, bytes]) -> None:
        target, before = self._directory / part, self._directory / f".{part}{BEFORE}"
        fresh = self._directory / f".{part}{FRESH}"
        try:
            # All of it first: on a full disk nothing that is kept may be moved, and deleted at the next try.
            shutil.rmtree(fresh, ignore_errors=True)
            write_files(fresh, files, durable=True)
            if target.exists():
                shutil.rmtree(before, ignore_errors=True)
                target.rename(before)
            fresh.rename(target)
            shutil.rmtree(before, ignore_errors=True)
        except OSError as error:
            raise ModelError(f"{target} can't be written: {error.strerror}") from error


class ConfigMapStore:
    """Parts as ConfigMaps of the operator's namespace, compressed."""

    most_samples: Final = DIGEST_SAMPLES

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"

    async def learners(self) -> list[str]:
        """Return the learners that have a ConfigMap."""
        try:
            found = await self._client.list(self._path, {"labelSelector": SELECTOR})
        except ClusterError as error:
            raise StoreSilent(f"ConfigMaps of {self._namespace} can't be listed: {error}") from error
        names = [str(item["metadata"]["name"]) for item in found]
        return _learners_of([name.removeprefix(f"{NAME}-") for name in names if name.startswith(f"{NAME}-")])

    async def delete(self, learner: str) -> None:
        """Delete the ConfigMaps of a learner."""
        for part in PARTS:
            try:
                await self._client.delete(f"{self._path}/{NAME}-{_name(part, learner)}")
            except ClusterError as error:
                if not (isinstance(error, ApiError) and error.status == 404):
                    raise ModelError(f"a ConfigMap of {self._namespace} can't be deleted: {error}") from error

    async def load(self, part: str, learner: str) -> Files | None:
        """Read a ConfigMap."""
        name = f"{NAME}-{_name(part, learner)}"
        try:
            found = await self._client.get(f"{self._path}/{name}")
        except ClusterError as error:
            if isinstance(error, ApiError) and error.status == 404:
                return None
            raise StoreSilent(f"ConfigMap {self._namespace}/{name} can't be read: {error}") from error
        data = found.get("binaryData") or {}
        try:
            return {file: _unpack(base64.b64decode(text, validate=True)) for file, text in data.items()}
        except (binascii.Error, zlib.error, ValueError, TypeError, AttributeError) as error:
            raise ModelError(f"ConfigMap {self._namespace}/{name} does not hold what we wrote: {error}") from error

    async def save(self, part: str, learner: str, files: Mapping[str, bytes]) -> None:
        """Create or replace a ConfigMap."""
        name = f"{NAME}-{_name(part, learner)}"
        data = {file: base64.b64encode(zlib.compress(content, 9)).decode() for file, content in files.items()}
        size = sum(map(len, data.values()))
        if size > MOST_BYTES:
            raise TooLarge(f"{size} bytes are too many for ConfigMap {self._namespace}/{name}: mount a volume")
        body: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self._namespace, "labels": dict(LABELS)},
            "binaryData": data,
        }
        try:
            await self._replace_or_create(name, body)
        except ClusterError as error:
            raise ModelError(f"ConfigMap {self._namespace}/{name} can't be written: {error}") from error

    async def _replace_or_create(self, name: str, body: Object) -> None:
        try:
            await self._client.replace(f"{self._path}/{name}", body)
        except ApiError as error:
            if error.status != 404:
                raise
            await self._client.create(self._path, body)


def _read_whole(directory: Path) -> Files | None:
    """Return the files of a folder; None where it is not there, or another took its place meanwhile."""
    try:
        before = directory.stat().st_ino
        files = {file.name: file.read_bytes() for file in sorted(directory.iterdir()) if file.is_file()}
        return files if directory.stat().st_ino == before else None
    except FileNotFoundError:
        return None


def _name(part: str, learner: str) -> str:
    """Return the name of a learner's part; no namespace has a dot in it."""
    return f"{part}.{learner}" if learner else part


def _learners_of(names: Iterable[str]) -> list[str]:
    """Return the learners whose samples are among parts with these names."""
    parts = [name.partition(".") for name in names]
    return sorted(learner for part, _, learner in parts if part == SAMPLES)


def _unpack(packed: bytes) -> bytes:
    step = zlib.decompressobj()
    content = step.decompress(packed, MOST_UNPACKED)
    if step.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {MOST_UNPACKED} bytes")
    if not step.eof:
        raise ValueError("it ends too early")
    return content
