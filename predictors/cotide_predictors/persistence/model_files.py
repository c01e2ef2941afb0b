"""A model as files: a JSON manifest and numeric payloads, each payload under its sha256.

Called by the models (to name themselves) and by `serialisation`. Bytes in, bytes out; this module never touches a disk.
Invariant: the same model gives the same bytes, and a changed byte of any file is found on unpacking.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import ModelError

SCHEMA_VERSION: Final = 2
"""2 brought QoS models of many services; nothing else changed, so that models of version 1 remain readable."""
READABLE: Final = (1, 2)
MANIFEST: Final = "manifest.json"
_LIBRARIES: Final = (
    ("numpy", ("numpy",)),
    ("xgboost", ("xgboost-cpu", "xgboost")),
    ("scikit-learn", ("scikit-learn",)),
)

Document = dict[str, Any]
"""A JSON object; its values are checked where they are read."""


def pack(kind: str, body: Mapping[str, object], payloads: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a model: its payloads, and a manifest that names them with their sha256."""
    document: Document = {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        **body,
        "files": {
            name: {"sha256": hashlib.sha256(payload).hexdigest(), "bytes": len(payload)}
            for name, payload in sorted(payloads.items())
        },
        "libraries": {name: _version(candidates) for name, candidates in _LIBRARIES},
    }
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    return {MANIFEST: text.encode() + b"\n", **payloads}


def fingerprint(files: Mapping[str, bytes]) -> str:
    """Return the sha256 of the manifest, which in turn holds the sha256 of every payload."""
    if MANIFEST not in files:
        raise ModelError(f"the model has no {MANIFEST}")
    return hashlib.sha256(files[MANIFEST]).hexdigest()


class FiledModel:
    """A model that is identified by its files; `fit` empties ``_model_id``."""

    _model_id: str

    def to_files(self) -> dict[str, bytes]:
        """Return the model as files."""
        raise NotImplementedError

    @property
    def model_id(self) -> str:
        """The sha256 of the model's manifest."""
        if not self._model_id:
            self._model_id = fingerprint(self.to_files())
        return self._model_id


def unpack(files: Mapping[str, bytes]) -> Document:
    """Return the manifest after checking schema version, presence and sha256 of every payload.

    Raises
    ------
    ModelError
        One sentence that names the file and its fault.
    """
    if MANIFEST not in files:
        raise ModelError(f"the model has no {MANIFEST}")
    try:
        document = json.loads(files[MANIFEST])
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, a number of too many digits, nested too deep
        raise ModelError(f"{MANIFEST} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ModelError(f"{MANIFEST} is not a JSON object")
    version = document.get("schema_version")
    if version not in READABLE:
        known = " and ".join(map(str, READABLE))
        raise ModelError(f"{MANIFEST} has schema version {version!r}; this program reads versions {known}")
    named = document.get("files")
    if not isinstance(named, dict) or not named:
        raise ModelError(f"{MANIFEST} names no files")
    for name, entry in named.items():
        if name not in files:
            raise ModelError(f"the model file {name} is missing")
        expected = entry.get("sha256") if isinstance(entry, dict) else None
        found = hashlib.sha256(files[name]).hexdigest()
        if found != expected:
            raise ModelError(f"{name} has sha256 {found[:12]}..., but its manifest has {str(expected)[:12]}...")
    return document


def write_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return numeric arrays as npz bytes (never pickled)."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **dict(arrays))
    return stream.getvalue()


def read_arrays(payload: bytes, name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of npz bytes; an array that would need pickle is refused."""
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (
        ValueError, OSError, EOFError, KeyError, IndexError, TypeError, AttributeError, SyntaxError, OverflowError,
        MemoryError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        raise ModelError(f"{name} is not an npz of plain numbers: {error}") from error


def _version(candidates: tuple[str, ...]) -> str:
    for candidate in candidates:
        try:
            return metadata.version(candidate)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"
