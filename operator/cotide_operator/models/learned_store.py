"""Stores samples, trust, models and run times beyond the pod: a directory of a volume, or two ConfigMaps per learner.

Called by `qos_learning` and `run_time_habits` of the replica that leads. A directory holds everything; ConfigMaps hold
a digest, since one may have 1 MiB. Invariant: a store is read in full or not at all. A failed write only causes a log
line: learning continues in memory.
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
"""Folder next to the models, with a name that no model has."""
SAMPLES: Final = "samples"
MODEL: Final = "model"
PHASES: Final = "phases"
"""Written by `usage.phase_learning`."""
PARTS: Final = (SAMPLES, MODEL, PHASES)
"""Parts of a learner."""
RUN_TIMES: Final = "run-times"
"""Part of all namespaces: it separates them itself."""
BEFORE: Final = ".before"
FRESH: Final = ".fresh"
"""Suffixes, behind a dot, of the folders with a part's old and new contents during a replacement."""
DIGEST_SAMPLES: Final = 4_000
"""Samples in a ConfigMap (chosen: some 200 KiB with the usual mixes)."""
MAX_READS: Final = 5
"""Attempts to read a directory that is replaced during each read (chosen: it is replaced once in minutes)."""
MOST_BYTES: Final = 900_000
"""Largest data of a ConfigMap as sent; etcd takes 1.5 MiB, the API server 1 MiB of data."""
MOST_UNPACKED: Final = 64 * 2**20
"""Largest unpacked size of a part in bytes (chosen: far above any model)."""
NAME: Final = "cotide-learned"
LABELS: Final = {"app.kubernetes.io/name": "cotide-operator", "app.kubernetes.io/component": "learned"}
SELECTOR: Final = ",".join(f"{key}={value}" for key, value in LABELS.items())


class StoreSilent(ModelError):
    """A store gave no answer: its contents are unknown, and must not be overwritten."""


class TooLarge(ModelError):
    """A part is too large for its store."""


class LearnedStore(Protocol):
    """Keeps named sets of files over restarts."""

    @property
    def most_samples(self) -> int | None:
        """Return the number of samples that fit; None for any number."""
        ...

    async def learners(self) -> list[str]:
        """Return the learners with kept samples. Raises StoreSilent when that is unknown."""
        ...

    async def load(self, part: str, learner: str) -> Files | None:
        """Return the files of a learner's part; None for none.

        Raises
        ------
        StoreSilent
            When there is no answer.
        ModelError
            When the stored data differs from the written data.
        """
        ...

    async def save(self, part: str, learner: str, files: Mapping[str, bytes]) -> None:
        """Replace the files of a learner's part.

        Raises
        ------
        TooLarge
            When they are too large for the store.
        ModelError
            When they can't be written.
        """
        ...

    async def delete(self, learner: str) -> None:
        """Delete the kept data of a learner. Raises ModelError when it can't be deleted."""
        ...


class DirectoryStore:
    """Parts as sub-directories of a directory, each replaced by a rename once the new one is written in full."""

    most_samples: Final = None

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writing = threading.Lock()
        """The write at the end may overlap a running write of another thread in the same folders."""

    async def learners(self) -> list[str]:
        """Return the learners that have a folder."""
        return await asyncio.to_thread(self._learners)

    async def load(self, part: str, learner: str) -> Files | None:
        """Read a part; after a replacement that a crash interrupted, it is found in its other folder."""
        return await asyncio.to_thread(self._load, _name(part, learner))

    async def save(self, part: str, learner: str, files: Mapping[str, bytes]) -> None:
        """Write a part into a temporary folder and rename it."""
        await asyncio.to_thread(self._save, _name(part, learner), files)

    async def delete(self, learner: str) -> None:
        """Delete the folders of a learner, and the remains of interrupted writes."""
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
        # A part with an interrupted replacement counts, too: `load` finds it.
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
            # An earlier leader may be writing for the last time: the missing part is not gone, it was replaced.
            if not any(directory.exists() for directory in directories):
                return None
        raise StoreSilent(f"{directories[0]} is replaced during each read")

    def _save(self, part: str, files: Mapping[str, bytes]) -> None:
        with self._writing:
            self._replace(part, files)

    def _replace(self, part: str, files: Mapping[str, bytes]) -> None:
        target, before = self._directory / part, self._directory / f".{part}{BEFORE}"
        fresh = self._directory / f".{part}{FRESH}"
        try:
            # All files first: on a full disk, kept data must not be moved and then deleted at the next attempt.
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
            raise ModelError(f"ConfigMap {self._namespace}/{name} does not hold valid data: {error}") from error

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
    """Return the files of a folder; None when it does not exist, or was replaced meanwhile."""
    try:
        before = directory.stat().st_ino
        files = {file.name: file.read_bytes() for file in sorted(directory.iterdir()) if file.is_file()}
        return files if directory.stat().st_ino == before else None
    except FileNotFoundError:
        return None


def _name(part: str, learner: str) -> str:
    """Return the name of a learner's part; a namespace never contains a dot."""
    return f"{part}.{learner}" if learner else part


def _learners_of(names: Iterable[str]) -> list[str]:
    """Return the learners with samples among parts of these names."""
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
