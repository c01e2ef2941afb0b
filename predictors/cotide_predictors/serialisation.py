"""Models to bytes and back; the only entry of model files.

Called by training commands and by the operator's model store, which do the reading and writing. Invariant: a restored
model predicts exactly as before, or `ModelError` states in one sentence why it cannot be used.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotide_core.errors import ModelError
from cotide_predictors.completion import completion_model as completion
from cotide_predictors.completion.completion_model import CompletionModel
from cotide_predictors.persistence import model_files
from cotide_predictors.qos import qos_model as qos
from cotide_predictors.qos.qos_model import QosModel
from cotide_predictors.qos.services_model import SERVICES_FILE, ServicesQosModel
from cotide_predictors.qos.training_gate import check_document


def to_files(model: QosModel | ServicesQosModel | CompletionModel) -> dict[str, bytes]:
    """Return file names and contents: ``manifest.json`` and its payloads (UBJ, npz)."""
    return model.to_files()


def model_id(files: Mapping[str, bytes]) -> str:
    """Return the sha256 that identifies a model: that of its manifest, which holds those of its payloads."""
    return model_files.fingerprint(files)


def from_files(files: Mapping[str, bytes]) -> QosModel | ServicesQosModel | CompletionModel:
    """Return the model of these files.

    Raises
    ------
    ModelError
        On a wrong checksum, schema version, kind or feature list, a missing file, or a QoS model without a held-out
        score.
    """
    document = model_files.unpack(files)
    kind = document.get("kind")
    expected = {qos.KIND: qos.BOOSTER_FILE, completion.KIND: completion.FOREST_FILE}
    if kind not in expected:
        raise ModelError(f"{model_files.MANIFEST} has kind {kind!r}; known are {' and '.join(expected)}")
    if expected[kind] not in document["files"]:
        raise ModelError(f"{model_files.MANIFEST} of a {kind} model does not name {expected[kind]}")
    try:
        if kind == qos.KIND:
            check_document(document)
            if SERVICES_FILE in document["files"]:
                return ServicesQosModel.from_document(document, dict(files))
            return QosModel.from_document(document, dict(files))
        return CompletionModel.from_document(document, dict(files))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelError(f"{model_files.MANIFEST} of a {kind} model lacks or misstates a part: {error}") from error
