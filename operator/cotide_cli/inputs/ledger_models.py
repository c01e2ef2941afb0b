"""The models next to a ledger, by the identities that it names.

Used by `report_command` and `replay_command`. Invariant: a model with other content than its identity is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cotide_core.errors import ModelError
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.forecasts import CompletionForecaster, QosForecaster

MODELS_NAME: Final = "models"


class ModelDirectory:
    """The models next to a ledger, loaded when the engine first asks for one.

    Parameters
    ----------
    directory : holds one directory per model, named by its sha256.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._heuristics = HeuristicCatalogue()
        self._loaded: dict[str, QosForecaster | CompletionForecaster] = {}

    def qos(self, model_id: str) -> QosForecaster:
        """Return the QoS model of this id; the heuristic for an empty one."""
        if model_id in ("", "heuristic"):
            return self._heuristics.qos(model_id)
        model = self._model(model_id)
        if not isinstance(model, QosForecaster):
            raise ModelError(f"{self._directory / model_id}: the ledger names it as a QoS model, which it is not")
        return model

    def completion(self, model_id: str) -> CompletionForecaster:
        """Return the completion model of this id; the heuristic for an empty one."""
        if model_id in ("", "heuristic"):
            return self._heuristics.completion(model_id)
        model = self._model(model_id)
        if not isinstance(model, CompletionForecaster):
            raise ModelError(
                f"{self._directory / model_id}: the ledger names it as a completion model, which it is not"
            )
        return model

    def _model(self, model_id: str) -> QosForecaster | CompletionForecaster:
        if model_id not in self._loaded:
            self._loaded[model_id] = self._load(model_id)
        return self._loaded[model_id]

    def _load(self, model_id: str) -> QosForecaster | CompletionForecaster:
        from cotide_predictors import serialisation

        if not model_id.isalnum():
            raise ModelError(f"the ledger names a model {model_id!r}, which is no sha256")
        directory = self._directory / model_id
        try:
            files = {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}
        except OSError as error:
            raise ModelError(
                f"{directory}: the ledger names this model, but it can't be read: {error.strerror}"
            ) from error
        try:
            found = serialisation.model_id(files)
            if found != model_id:
                raise ModelError(f"its files have the sha256 {found[:12]}...: they were changed or belong elsewhere")
            return serialisation.from_files(files)
        except ModelError as error:
            raise ModelError(f"{directory}: {error}") from error
