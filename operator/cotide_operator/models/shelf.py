"""The models of one directory: found, loaded separately, checked; the ones in use and the ones before.

Owned by `store.ModelStore`: one for the pool's models, and one for each namespace with own models. Invariant: a broken
file only causes one report.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotide_core.errors import ModelError
from cotide_core.forecasts import CompletionForecaster, QosForecaster

_LOG = logging.getLogger(__name__)

_ID: Final = re.compile(r"[0-9a-f]{64}")
MANIFEST: Final = "manifest.json"
QOS: Final = "qos"
COMPLETION: Final = "completion"
Files = dict[str, bytes]
Signature = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that was read and checked."""

    kind: str
    model_id: str
    model: QosForecaster | CompletionForecaster
    files: Files


class Shelf:
    """Models of one directory.

    Attributes
    ----------
    current : in use, by kind.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.current: dict[str, Loaded] = {}
        self._previous: dict[str, Loaded] = {}
        self._seen: dict[Path, Signature] = {}
        self._unread: set[Path] = set()
        """Paths that could not be read at the last look: each look tries again, and the error is reported once."""
        self._last_warning = ""

    def in_use_or_before(self) -> list[Loaded]:
        """Return the models that present decisions may name."""
        return [*self._previous.values(), *self.current.values()]

    def use(self, one: Loaded) -> Loaded | None:
        """Take a model into use; return the one before it."""
        before = self.current.get(one.kind)
        if before is not None:
            self._previous[one.kind] = before
        self.current[one.kind] = one
        return before

    def before(self, kind: str) -> Loaded | None:
        """Return the model that was in use before; None when there was none."""
        return self._previous.get(kind)

    def roll_back(self, kind: str) -> Loaded | None:
        """Return to the previous model, or to none; return the removed one."""
        gone = self.current.pop(kind, None)
        before = self._previous.pop(kind, None)
        if before is not None:
            self.current[kind] = before
        return gone

    def prune(self, most: int) -> None:
        """In a thread: delete old models that Cotide saved, and the remains of failed saves."""
        directory, used = self.directory, {loaded.model_id for loaded in self.in_use_or_before()}
        count: Counter[str] = Counter()
        try:
            for path, _ in _candidates(directory):  # newest first
                if path == directory or path.is_symlink() or not _ID.fullmatch(path.name):
                    continue
                kind = _kind(path)
                count[kind] += 1
                if count[kind] > most and path.name not in used:
                    shutil.rmtree(path)
                    _LOG.info("deleted the old %s model %s", kind, path.name[:12])
        except OSError as error:
            _LOG.warning("old models in %s could not be deleted: %s", directory, error.strerror)

    def read_changed(self) -> tuple[list[Loaded], list[str]]:
        """In a thread: read each model that changed, the newest usable one of each kind last decided by time."""
        faults: list[str] = []
        directory = self.directory
        try:
            found = _candidates(directory)
        except FileNotFoundError:
            # Usual on a first start: a training will make it, or a person will mount it.
            if self._last_warning != "missing":
                _LOG.info("there is no directory %s yet: until models come, the heuristics are in force", directory)
            self._last_warning = "missing"
            return [], []
        except OSError as error:
            fault = f"{directory} can't be read: {error.strerror}"
            fresh = fault != self._last_warning
            self._last_warning = fault
            return [], [fault] if fresh else []
        self._last_warning = ""
        signatures = dict(found)
        if signatures == self._seen:
            return [], []
        changed = {path for path, signature in found if self._seen.get(path) != signature}
        self._seen = signatures
        newest: dict[str, Loaded] = {}
        unread, self._unread = self._unread, set()
        for path, _ in found:  # newest first
            kind = _kind(path)
            if kind in newest:
                continue
            try:
                newest_here = _load(path)
            except ModelError as error:
                if path in changed:
                    faults.append(f"{path}: {error}")
                continue
            except OSError as error:  # not a fault of the model: the next read may succeed
                self._unread.add(path)
                del self._seen[path]
                if path not in unread:
                    faults.append(f"{path}: {error}")
                continue
            newest[newest_here.kind] = newest_here
        return list(newest.values()), faults


def _candidates(directory: Path) -> list[tuple[Path, Signature]]:
    """Return model directories with a mark of their version, the newest first."""
    folders = [directory] if (directory / MANIFEST).exists() else sorted(directory.iterdir())
    found: list[tuple[int, Path, Signature]] = []
    for folder in folders:
        # Names that begin with a dot are half-written, or the kubelet's own links behind a mounted ConfigMap.
        if folder.name.startswith(".") and folder != directory:
            continue
        manifest = folder / MANIFEST
        if not manifest.is_file():
            continue
        stats = [(file.name, file.stat()) for file in sorted(folder.iterdir()) if file.is_file()]
        signature = tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
        found.append((manifest.stat().st_mtime_ns, folder, signature))
    found.sort(key=lambda one: (-one[0], one[1].name))
    return [(folder, signature) for _, folder, signature in found]


def _kind(folder: Path) -> str:
    try:
        document = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):  # the loader reports the fault
        return ""
    return str(document.get("kind", "")) if isinstance(document, dict) else ""


def _load(folder: Path) -> Loaded:
    from cotide_predictors import serialisation  # only where there are models

    files = {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}
    model = serialisation.from_files(files)
    kind = QOS if isinstance(model, QosForecaster) else COMPLETION
    return Loaded(kind, serialisation.model_id(files), model, files)
