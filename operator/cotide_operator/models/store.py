"""From model files to forecasters in use: found, loaded separately, checked, swapped; the previous one is kept.

A models directory holds one model in itself, or one per sub-directory (each with ``manifest.json``); the newest usable
one of each kind is used, and changed files are loaded without a restart. Models of a namespace's own pods are stored
the same way in ``namespaces/NAME``. A `ModelsChanged` event announces a swap to the engine, which finds the forecaster
here, by id (`ModelCatalogue`). Invariants: a model is in the catalogue before an event names it and stays there after
its replacement, so that every decision finds its model. A broken file only causes a log line and a metric.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cotide_core.errors import ModelError
from cotide_core.events import Event, ModelsChanged, OwnModels
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.forecasting.own_models import namespace_in
from cotide_core.forecasts import CompletionForecaster, QosForecaster
from cotide_core.recording.samples import POOL
from cotide_operator.models.service_applicability import ServiceApplicability, applicability_of
from cotide_operator.models.shelf import COMPLETION, MANIFEST, QOS, Files, Loaded, Shelf
from cotide_operator.observability.ledger_file import write_files
from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)

NAMESPACES: Final = "namespaces"
"""Folder of the models directory with a folder for each namespace that has models of its own."""


class ModelStore:
    """The catalogue of the engine, and the keeper of its files.

    Parameters
    ----------
    directory : Path, optional
        Where model files are; None for heuristics only.
    tell : callable
        Puts a `ModelsChanged` event into the loop's next cycle.
    keep : callable, optional
        Receives each model that comes into use (the ledger keeps a copy).
    kept_models : int, optional
        Directories of models of one kind, saved by Cotide, that stay; None for all. The one in use and the one before
        always stay. Directories from other sources stay, too: their names are not ids of models.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        emit: Callable[[Event], None],
        metrics: Metrics,
        keep: Callable[[str, Mapping[str, bytes]], None] | None = None,
        kept_models: int | None = None,
    ) -> None:
        self.directory = directory
        self._emit = emit
        self._metrics = metrics
        self._keep = keep
        self._kept_models = kept_models
        self._heuristics = HeuristicCatalogue()
        self._qos: dict[str, QosForecaster] = {}
        self._completion: dict[str, CompletionForecaster] = {}
        self._shelves: dict[str, Shelf] = {} if directory is None else {POOL: Shelf(directory)}
        """By learner: a namespace, or `POOL` for all namespaces without own models."""
        self._decides: dict[str, tuple[str, ...]] | None = None
        """By learner, the services that a QoS model decides for; None for all."""
        self.trust_of: Callable[[str], str] | None = None
        """State of a service's forecasts, where they are scored by service."""
        self._one_at_a_time = asyncio.Lock()
        """One look after the other. Of two concurrent looks, the second would find nothing new and end before the first
        has loaded the model that its caller saved. A look that has read a deleted model would load it again."""
        self.changed: Callable[[], None] = lambda: None
        """Called when other models are in use, or decide for other services: statuses show it."""

    @property
    def current(self) -> dict[str, Loaded]:
        """The models of the pool that are in use, by kind."""
        shelf = self._shelves.get(POOL)
        return {} if shelf is None else shelf.current

    def current_of(self, kind: str, namespace: str = POOL) -> Loaded | None:
        """Return the model of a kind, of the pool or of a namespace; None when there is none."""
        shelf = self._shelves.get(namespace)
        return None if shelf is None else shelf.current.get(kind)

    def own_namespaces(self) -> list[str]:
        """Return the namespaces that have models of their own."""
        return sorted(name for name in self._shelves if name != POOL)

    def qos(self, model_id: str) -> QosForecaster:
        """Return the QoS forecaster of this id; the heuristic for an empty id."""
        return self._qos[model_id] if model_id in self._qos else self._heuristics.qos(model_id)

    def applicability(
        self, service: str, requests_per_second: float | None, limit_milliseconds: float
    ) -> ServiceApplicability:
        """Return the applicability of the QoS model in use, or of the heuristic, to a service; see
        `applicability_of`."""
        current = self.current_of(QOS, namespace_in(service)) or self.current_of(QOS)
        forecaster = self.qos("" if current is None else current.model_id)
        seen = applicability_of(forecaster, service, requests_per_second, limit_milliseconds)
        decides = current is not None and (self.decides_for is None or service in self.decides_for)
        trust = "" if self.trust_of is None else self.trust_of(service)
        return replace(seen, decides=decides, trust=trust)

    @property
    def decides_for(self) -> tuple[str, ...] | None:
        """Services that a QoS model decides for, sorted; None for all."""
        if self._decides is None:
            return None
        return tuple(sorted(service for services in self._decides.values() for service in services))

    def score_only(self) -> None:
        """Let the heuristic decide for every service that `decide_for` does not name; call it before the first
        decision."""
        self._decides = {}

    def decide_for(self, learner: str, services: tuple[str, ...]) -> None:
        """Let the QoS model decide for exactly these services of a learner, from the next cycle on."""
        if self._decides is not None and self._decides.get(learner, ()) != services:
            self._decides[learner] = services
            self._emit_engine()

    def previous_qos(self, namespace: str = POOL) -> QosForecaster | None:
        """Return the QoS model that was in use before; None when there was none."""
        shelf = self._shelves.get(namespace)
        before = None if shelf is None else shelf.before(QOS)
        return before.model if before is not None and isinstance(before.model, QosForecaster) else None

    async def roll_back(self, kind: str, namespace: str = POOL) -> None:
        """Return to the previous model of a kind; the saved files of the present one are deleted."""
        async with self._one_at_a_time:
            shelf = self._shelves.get(namespace)
            gone = None if shelf is None else shelf.roll_back(kind)
            if shelf is None or gone is None:
                return
            self._metrics.model_info.remove(*_info(gone))
            if kind in shelf.current:
                self._metrics.model_info.labels(*_info(shelf.current[kind])).set(1)
            await asyncio.to_thread(shutil.rmtree, shelf.directory / gone.model_id, ignore_errors=True)
            self._emit_engine()
        await self.look()

    def completion(self, model_id: str) -> CompletionForecaster:
        """Return the completion forecaster of this id; the heuristic for an empty id."""
        known = self._completion
        return known[model_id] if model_id in known else self._heuristics.completion(model_id)

    async def watch(self, poll_seconds: float) -> None:
        """Look for changed files until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(poll_seconds)

    async def look(self) -> None:
        """Load changes in the directory since the last look; reading and loading happen off the loop."""
        if self.directory is not None:
            async with self._one_at_a_time:
                await self._look(self.directory)

    async def _look(self, directory: Path) -> None:
        for path in await asyncio.to_thread(_own_folders, directory):
            self._shelves.setdefault(path.name, Shelf(path))
        changed = False
        for name, shelf in list(self._shelves.items()):
            loaded, faults = await asyncio.to_thread(shelf.read_changed)
            for fault in faults:
                self._metrics.model_reloads.labels("refused").inc()
                _LOG.warning("model not loaded, the one before stays in use: %s", fault)
            changed |= self._use(name, shelf, loaded)
            if loaded and self._kept_models is not None:
                await asyncio.to_thread(shelf.prune, self._kept_models)
        if changed:
            self._emit_engine()

    async def forget_own(self, namespace: str) -> None:
        """Delete the models of a namespace that is gone."""
        async with self._one_at_a_time:
            shelf = self._shelves.pop(namespace, None)
            if shelf is None:
                return
            try:
                await asyncio.to_thread(shutil.rmtree, shelf.directory)
            except OSError as error:
                _LOG.warning("the models in %s could not be deleted: %s", shelf.directory, error.strerror)
        for loaded in shelf.current.values():
            self._metrics.model_info.remove(*_info(loaded))
        _LOG.info("deleted the models of namespace %s, which is gone", namespace)
        self._emit_engine()

    def save(self, files: Files, namespace: str = POOL) -> None:
        """Write a newly trained model, of the pool or of a namespace, into the directory; the next `look` loads it.

        Raises
        ------
        ModelError
            When there is no directory, or the directory can't be written.
        """
        if self.directory is None:
            raise ModelError("there is no models directory to save into")
        from cotide_predictors import serialisation  # only where there are models

        folder = self.directory if namespace == POOL else self.directory / NAMESPACES / namespace
        target = folder / serialisation.model_id(files)
        if target.exists():
            return
        try:
            write_files(target, files, durable=True)
        except OSError as error:
            raise ModelError(f"the models directory {self.directory} can't be written: {error.strerror}") from error

    def _use(self, namespace: str, shelf: Shelf, loaded: list[Loaded]) -> bool:
        changed = False
        owner = "" if namespace == POOL else f" of namespace {namespace}"
        for one in loaded:
            before = shelf.current.get(one.kind)
            if before is not None and before.model_id == one.model_id:
                continue
            if isinstance(one.model, QosForecaster):
                self._qos[one.model_id] = one.model
            else:
                self._completion[one.model_id] = one.model
            if self._keep is not None:
                self._keep(one.model_id, one.files)
            shelf.use(one)
            self._metrics.model_reloads.labels("taken").inc()
            if before is not None:
                self._metrics.model_info.remove(*_info(before))
            self._metrics.model_info.labels(*_info(one)).set(1)
            _LOG.info("%s model %s%s is in use", one.kind, one.model_id[:12], owner)
            changed = True
        return changed

    def _emit_engine(self) -> None:
        ids = {
            name: {kind: loaded.model_id for kind, loaded in shelf.current.items()}
            for name, shelf in self._shelves.items()
        }
        own = tuple(
            OwnModels(name, ids[name].get(QOS, ""), ids[name].get(COMPLETION, ""))
            for name in self.own_namespaces()
            if ids[name]
        )
        pool = ids.get(POOL, {})
        learned = any(QOS in found for found in ids.values())
        decides_for = self.decides_for if learned else None
        self._emit(ModelsChanged(pool.get(QOS, ""), pool.get(COMPLETION, ""), own, decides_for))
        self._forget_old()
        self.changed()

    def _forget_old(self) -> None:
        """Keep the current model of each kind and the one before."""
        kept = {loaded.model_id for shelf in self._shelves.values() for loaded in shelf.in_use_or_before()}
        self._qos = {model_id: model for model_id, model in self._qos.items() if model_id in kept}
        self._completion = {model_id: model for model_id, model in self._completion.items() if model_id in kept}


def _own_folders(directory: Path) -> list[Path]:
    """In a thread: return the folders of namespaces."""
    try:
        folders = [path for path in sorted((directory / NAMESPACES).iterdir()) if path.is_dir()]
    except OSError:
        return []  # no namespace has any, or the directory itself can't be read, which is reported elsewhere
    return [path for path in folders if not path.name.startswith(".")]


def _info(one: Loaded) -> tuple[str, str, str]:
    document = json.loads(one.files[MANIFEST])
    return one.kind, one.model_id, str(document.get("schema_version", ""))
