"""What was learned, as bytes that outlive a process: samples and trust, numbers as npz, texts as JSON, never pickle.

Called by the operator's stores (a directory, or a ConfigMap). Files as of a model: a manifest with the sha256 of the
payload. Files are read as untrusted, since every writer of the store can write anything. Invariant: a file that cannot
be read in full is refused as a whole, with one sentence.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import ModelError
from cotide_core.recording.samples import MeasuredMix
from cotide_predictors.learning.service_trust import SlotRecord, Trust
from cotide_predictors.persistence import model_files

KIND: Final = "learned"
ARRAYS: Final = "learned.npz"
MOST_SAMPLES: Final = 200_000
"""Largest number of samples in a file (ten times the default capacity)."""

Windows = Mapping[str, tuple[str, Sequence[SlotRecord]]]


def to_files(samples: Sequence[MeasuredMix], windows: Windows, model_id: str) -> dict[str, bytes]:
    """Return samples, trust by service, and the id of the model that earned it, as files."""
    services = sorted({sample.service for sample in samples} | set(windows))
    types = sorted({name for sample in samples for name, _, _ in sample.jobs})
    at = {name: index for index, name in enumerate(services)}
    column = {name: index for index, name in enumerate(types)}
    jobs = [(row, column[name], count, size) for row, sample in enumerate(samples) for name, count, size in sample.jobs]
    records = [(at[name], *record) for name, (_, window) in sorted(windows.items()) for record in window]
    arrays: dict[str, NDArray[Any]] = {
        "service": np.array([at[sample.service] for sample in samples], np.int32),
        "numbers": np.array(
            [(sample.rate, sample.other_rate, sample.limit, sample.pressure, sample.latency) for sample in samples],
            np.float32,
        ).reshape(len(samples), 5),
        "jobs": np.array(jobs, np.float64).reshape(len(jobs), 4),
        "records": np.array(records, np.float32).reshape(len(records), 1 + len(SlotRecord._fields)),
    }
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    body = {
        "services": services,
        "types": types,
        "trust": {name: state for name, (state, _) in sorted(windows.items())},
        "model": model_id,
    }
    return model_files.pack(KIND, body, {ARRAYS: stream.getvalue()})


def from_files(files: Mapping[str, bytes]) -> tuple[list[MeasuredMix], dict[str, tuple[str, list[SlotRecord]]], str]:
    """Return the arguments of `to_files`.

    Raises
    ------
    ModelError
        One sentence that names the fault.
    """
    document = model_files.unpack(files)
    if document.get("kind") != KIND or ARRAYS not in files:
        raise ModelError("the files hold no samples")
    arrays = model_files.read_arrays(files[ARRAYS], ARRAYS)
    try:
        services, types = list(map(str, document["services"])), list(map(str, document["types"]))
        trust = {str(name): Trust(state) for name, state in document["trust"].items()}
        samples = _samples(arrays, services, types)
        windows = _windows(arrays["records"], services, trust)
        return samples, windows, str(document["model"])
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ModelError(f"{ARRAYS} does not match its manifest: {error}") from error


def _samples(arrays: Mapping[str, NDArray[Any]], services: list[str], types: list[str]) -> list[MeasuredMix]:
    numbers, service = arrays["numbers"].astype(np.float64), arrays["service"]
    if len(numbers) > MOST_SAMPLES or len(service) != len(numbers) or numbers.shape[1:] != (5,):
        raise ValueError(f"{len(numbers)} samples of shape {numbers.shape[1:]}")
    good = np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers[:, [2, 4]] > 0).all()
    if not good or (service < 0).any():
        raise ValueError("a number is not finite, or below 0")
    jobs: list[list[tuple[str, int, int]]] = [[] for _ in range(len(numbers))]
    for row, column, count, size in arrays["jobs"].tolist():
        if min(row, column, count, size) < 0:
            raise ValueError("a job's number is below 0")
        jobs[int(row)].append((types[int(column)], int(count), int(size)))
    return [
        MeasuredMix(services[index], rate, other, limit, pressure, tuple(jobs[row]), latency)
        for row, (index, (rate, other, limit, pressure, latency)) in enumerate(
            zip(service.tolist(), numbers.tolist(), strict=True)
        )
    ]


def _windows(
    records: NDArray[Any],
    services: list[str],
    trust: Mapping[str, Trust],
) -> dict[str, tuple[str, list[SlotRecord]]]:
    if records.ndim != 2 or records.shape[1] != 1 + len(SlotRecord._fields):
        raise ValueError(f"records of shape {records.shape}")
    if not np.isfinite(records).all() or (records < 0).any() or (records[:, 1] <= 0).any():
        raise ValueError("a record is not finite, or below 0")
    windows: dict[str, tuple[str, list[SlotRecord]]] = {name: (str(state), []) for name, state in trust.items()}
    for index, *record in records.tolist():
        windows[services[int(index)]][1].append(SlotRecord(*record))
    return windows
