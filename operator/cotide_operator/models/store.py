"""Model files to forecasters in use: found, loaded aside, checked, swapped, and the previous one kept.

A models directory holds one model in itself, or one per sub-directory (each with ``manifest.json``); the newest that
can be used of each kind is used, and files that change are taken up without a restart. The engine learns of a swap by
a `ModelsChanged` event and finds the forecaster here, by id (`ModelCatalogue`). Invariant: a model is in the
catalogue before an event names it and stays there after the next one replaced it, so that no decision ever misses its
model; a broken file changes nothing but a log line and a metric.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cotide_core.errors import ModelError
from cotide_core.events import Event, ModelsChanged
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.forecasts import CompletionForecaster, QosForecaster
from cotide_operator.models.service_applicability import ServiceApplicability, applicability_of
from cotide_operator.observability.ledger_file import write_files
from cotide_operator.observability.metrics import Metrics

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


class ModelStore:
    """The catalogue of the engine, and the keeper of its files.

    Parameters
    ----------
    directory : Path, optional
        Where model files are; None for heuristics only.
    tell : callable
        Puts a `ModelsChanged` event into the loop's next cycle.
    keep : callable, optional
        Told of each model taken into use (the ledger keeps a copy).
    kept_models : int, optional
        Directories of models of one kind, saved by us, that stay; None for all. The one in use and the one before stay
        in any case, and so does what somebody else put there: its name is no id of a model.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        tell: Callable[[Event], None],
        telemetry: Metrics,
        keep: Callable[[str, Mapping[str, bytes]], None] | None = None,
        kept_models: int | None = None,
    ) -> None:
        self.directory = directory
        self._tell = tell
        self._telemetry = telemetry
        self._keep = keep
        self._kept_models = kept_models
        self._heuristics = HeuristicCatalogue()
        self._qos: dict[str, QosForecaster] = {}
        self._completion: dict[str, CompletionForecaster] = {}
        self.current: dict[str, Loaded] = {}
        self._previous: dict[str, Loaded] = {}
        """The model that was in use before, by kind."""
        self.decides_for: tuple[str, ...] | None = None
        """Services for which the QoS model decides; None for all."""
        self.trust_of: Callable[[str], str] | None = None
        """How a service's forecasts stand, where they are scored by service."""
        self._seen: dict[Path, Signature] = {}
        self._complaint = ""

    def qos(self, model_id: str) -> QosForecaster:
        """Return the QoS forecaster of this id; the heuristic for an empty one."""
        return self._qos[model_id] if model_id in self._qos else self._heuristics.qos(model_id)

    def applicability(
        self, service: str, requests_per_second: float | None, limit_milliseconds: float
    ) -> ServiceApplicability:
        """Return what the QoS model in use, or the heuristic, knows of a service; see `applicability_of`."""
        current = self.current.get(QOS)
        forecaster = self.qos("" if current is None else current.model_id)
        seen = applicability_of(forecaster, service, requests_per_second, limit_milliseconds)
        decides = current is not None and (self.decides_for is None or service in self.decides_for)
        trust = "" if self.trust_of is None else self.trust_of(service)
        return replace(seen, decides=decides, trust=trust)

    def previous_qos(self) -> QosForecaster | None:
        """Return the QoS model that was in use before; None where there was none."""
        before = self._previous.get(QOS)
        return before.model if before is not None and isinstance(before.model, QosForecaster) else None

    def decide_for(self, services: tuple[str, ...]) -> None:
        """Let the QoS model decide for these services from the next cycle on, and the heuristic for all others."""
        if services != self.decides_for:
            self.decides_for = services
            self._tell_models()

    async def roll_back(self, kind: str) -> None:
        """Return to the model of a kind that was in use before; what we saved of the present one is deleted."""
        gone = self.current.pop(kind, None)
        if gone is None:
            return
        self._telemetry.model_info.remove(*_info(gone))
        before = self._previous.pop(kind, None)
        if before is not None:
            self.current[kind] = before
            self._telemetry.model_info.labels(*_info(before)).set(1)
        if self.directory is not None:
            await asyncio.to_thread(shutil.rmtree, self.directory / gone.model_id, ignore_errors=True)
        self._tell_models()
        await self.look()

    def completion(self, model_id: str) -> CompletionForecaster:
        """Return the completion forecaster of this id; the heuristic for an empty one."""
        known = self._completion
        return known[model_id] if model_id in known else self._heuristics.completion(model_id)

    async def watch(self, poll_seconds: float) -> None:
        """Look for changed files until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(poll_seconds)

    async def look(self) -> None:
        """Take up what changed in the directory since the last look; reading and loading happen off the loop."""
        if self.directory is None:
            return
        loaded, faults = await asyncio.to_thread(self._read_changed, self.directory)
        for fault in faults:
            self._telemetry.model_reloads.labels("refused").inc()
            _LOG.warning("model not taken up, what was in use before stays in use: %s", fault)
        self._use(loaded)
        if loaded and self._kept_models is not None:
            await asyncio.to_thread(self._prune, self.directory, self._kept_models)

    def save(self, files: Files) -> None:
        """Write a freshly trained model into the directory; the next `look` takes it up.

        Raises
        ------
        ModelError
            When there is no directory, or it can't be written.
        """
        if self.directory is None:
            raise ModelError("there is no models directory to save into")
        from cotide_predictors import serialisation  # only where there are models

        target = self.directory / serialisation.model_id(files)
        if target.exists():
            return
        try:
            write_files(target, files)
        except OSError as error:
            raise ModelError(f"the models directory {self.directory} can't be written: {error.strerror}") from error

    def _use(self, loaded: list[Loaded]) -> None:
        changed = False
        for one in loaded:
            before = self.current.get(one.kind)
            if before is not None and before.model_id == one.model_id:
                continue
            if isinstance(one.model, QosForecaster):
                self._qos[one.model_id] = one.model
            else:
                self._completion[one.model_id] = one.model
            if self._keep is not None:
                self._keep(one.model_id, one.files)
            self.current[one.kind] = one
            self._telemetry.model_reloads.labels("taken").inc()
            if before is not None:
                self._previous[one.kind] = before
                self._telemetry.model_info.remove(*_info(before))
            self._telemetry.model_info.labels(*_info(one)).set(1)
            _LOG.info("%s model %s is in use", one.kind, one.model_id[:12])
            changed = True
        if changed:
            self._tell_models()
            self._forget_old()

    def _tell_models(self) -> None:
        ids = {kind: one.model_id for kind, one in self.current.items()}
        qos = ids.get(QOS, "")
        self._tell(ModelsChanged(qos, ids.get(COMPLETION, ""), self.decides_for if qos else None))

    def _forget_old(self) -> None:
        """Keep the current model of each kind and the one before."""
        known: tuple[dict[str, QosForecaster] | dict[str, CompletionForecaster], ...] = (self._qos, self._completion)
        for models in known:
            while len(models) > 2:
                del models[next(iter(models))]

    def _prune(self, directory: Path, most: int) -> None:
        """In a thread: delete old models that we saved, and what a save that failed left behind."""
        used = {one.model_id for one in self.current.values()} | {one.model_id for one in self._previous.values()}
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

    def _read_changed(self, directory: Path) -> tuple[list[Loaded], list[str]]:
        """In a thread: read each model that changed, the newest usable one of each kind last decided by time."""
        faults: list[str] = []
        try:
            found = _candidates(directory)
        except FileNotFoundError:
            # Usual on a first start: a training will make it, or somebody will mount it.
            if self._complaint != "missing":
                _LOG.info("there is no directory %s yet: until models come, the heuristics are in force", directory)
            self._complaint = "missing"
            return [], []
        except OSError as error:
            fault = f"{directory} can't be read: {error.strerror}"
            fresh = fault != self._complaint
            self._complaint = fault
            return [], [fault] if fresh else []
        self._complaint = ""
        signatures = dict(found)
        if signatures == self._seen:
            return [], []
        changed = {path for path, signature in found if self._seen.get(path) != signature}
        self._seen = signatures
        newest: dict[str, Loaded] = {}
        for path, _ in found:  # newest first
            kind = _kind(path)
            if kind in newest:
                continue
            try:
                newest_here = _load(path)
            except (ModelError, OSError) as error:
                if path in changed:
                    faults.append(f"{path}: {error}")
                continue
            newest[newest_here.kind] = newest_here
        return list(newest.values()), faults


def _candidates(directory: Path) -> list[tuple[Path, Signature]]:
    """Return model directories with what tells a change, the newest first."""
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
    except (OSError, ValueError):
        return ""
    return str(document.get("kind", "")) if isinstance(document, dict) else ""


def _load(folder: Path) -> Loaded:
    from cotide_predictors import serialisation  # only where there are models

    files = {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}
    model = serialisation.from_files(files)
    kind = QOS if isinstance(model, QosForecaster) else COMPLETION
    return Loaded(kind, serialisation.model_id(files), model, files)


def _info(one: Loaded) -> tuple[str, str, str]:
    document = json.loads(one.files[MANIFEST])
    return one.kind, one.model_id, str(document.get("schema_version", ""))
