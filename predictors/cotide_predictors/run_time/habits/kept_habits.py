"""What was learned of run times, as bytes that outlive a process: npz without pickle, under a manifest with its sha256.

Called by the operator, and kept in its stores (a directory, or a ConfigMap). The files hold digests, no names. Files
are read as untrusted, since every writer of the store can write anything. Invariant: a file that cannot be read in full
is refused as a whole, with one sentence. Each forecaster has a file of its own name. A forecaster takes up its file
even where another configuration wrote it. Older files of the mixture hold one set of weights for all namespaces. Their
past runs are taken up, and each namespace begins with the first weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import ModelError
from cotide_predictors.persistence import model_files
from cotide_predictors.persistence.model_files import write_arrays
from cotide_predictors.run_time.habits import namespace_weights
from cotide_predictors.run_time.habits.keyed_states import KeyedStates
from cotide_predictors.run_time.habits.likeness import KEY_BYTES, NAMESPACE_BYTES
from cotide_predictors.run_time.habits.live_forecaster import TabledForecaster
from cotide_predictors.run_time.habits.live_mixture import LONGEST, MOST_KEYS, MixtureState, RunTimeMixture
from cotide_predictors.run_time.habits.namespace_weights import Learned
from cotide_predictors.run_time.habits.pod_run_times import (
    MOST_NAMESPACES,
    REMEMBERED_RUNS,
    Accuracies,
    Contender,
    PodRunTimes,
)
from cotide_predictors.run_time.kernels.run_habits import KEYS, LAGS

KIND: Final = "run-time-habits"
MAX_RATIO: Final = 1e9
"""Largest ratio of a run to its forecast that is accepted from a file (chosen: beyond any two times that the bins
hold).
"""
DIGEST_BYTES: Final = 120_000
"""Of a table in a digest (chosen: two forecasters' tables fit into a ConfigMap)."""
SHARED_WEIGHTS: Final = "weights"
"""An array of mixtures that were kept with one set of weights for all namespaces."""

Arrays = Mapping[str, NDArray[Any]]


def file_of(name: str) -> str:
    """Return the file of a forecaster."""
    return f"{name}.npz"


def arrays_of(
    contender: Contender, most_keys: int | None = None, most_bytes: int | None = None
) -> dict[str, NDArray[Any]]:
    """Return a forecaster's state and its accuracies by namespace as they are now.

    Parameters
    ----------
    most_keys : of the mixture of each kind, and of namespaces with accuracies, the last learned; None for all.
    most_bytes : of each table, and of the mixture's weights; None for all.
    """
    scored = list(contender.accuracies.items())
    scored = scored if most_keys is None else scored[-most_keys:]
    arrays: dict[str, NDArray[Any]] = {
        "namespaces": _bytes(tuple(name for name, _ in scored), NAMESPACE_BYTES),
        "accuracies": np.array([accuracies for _, accuracies in scored], np.float64).reshape(
            -1, len(Accuracies._fields)
        ),
    }
    if isinstance(contender.forecaster, RunTimeMixture):
        return arrays | _mixture_arrays(contender.forecaster, most_keys, most_bytes)
    for name, table in _tables(contender).items():
        keys, rows = table.arrays(most_bytes)
        arrays |= {f"{name}_keys": keys, f"{name}_rows": rows}
    return arrays


def kept(run_times: PodRunTimes, most_keys: int | None = None, halvings: int = 0) -> dict[str, Arrays]:
    """Return the arrays of all forecasters by file; a digest is shared by them.

    Parameters
    ----------
    most_keys : of a digest; None for all that was learned. halvings : times that a digest is made half as large.
    """
    if most_keys is None:
        return {file_of(contender.name): arrays_of(contender) for contender in run_times.contenders}
    share, most_bytes = most_keys // len(run_times.contenders) >> halvings, DIGEST_BYTES >> halvings
    return {
        file_of(contender.name): arrays_of(contender, max(1, share), most_bytes) for contender in run_times.contenders
    }


def to_files(arrays: Mapping[str, Arrays], words: Mapping[str, object] | None = None) -> dict[str, bytes]:
    """Return arrays by file as files, with texts in the manifest; may run in another thread."""
    return model_files.pack(KIND, words or {}, {name: write_arrays(array) for name, array in arrays.items()})


def restore(run_times: PodRunTimes, files: Mapping[str, bytes]) -> model_files.Document:
    """Restore the existing forecasters from files of `to_files`; return the manifest.

    Raises
    ------
    ModelError
        One sentence that names the fault; the state is unchanged then.
    """
    document = model_files.unpack(files)
    if document.get("kind") != KIND:
        raise ModelError("the files hold no run times")
    taken: list[Callable[[], None]] = []
    for contender in run_times.contenders:
        name = file_of(contender.name)
        if name not in document["files"]:
            continue
        arrays = model_files.read_arrays(files[name], name)
        try:
            taken.append(_taking_up(contender, arrays))
        except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
            raise ModelError(f"{name} has invalid contents: {error}") from error
    for take_up in taken:
        take_up()
    return document


def _taking_up(contender: Contender, arrays: Arrays) -> Callable[[], None]:
    """Return the function that puts checked arrays in force."""
    accuracies = _accuracies(arrays)
    forecaster = contender.forecaster
    if isinstance(forecaster, RunTimeMixture):
        state, weights = _state(arrays), _weights(arrays)

        def take_up() -> None:
            forecaster.restore(state)
            forecaster.weights.replace(weights)
            contender.accuracies = accuracies

        return take_up
    tables = _tables(contender)
    checked = {
        name: keyed_states.checked(arrays[f"{name}_keys"], arrays[f"{name}_rows"])
        for name, keyed_states in tables.items()
    }

    def take_up_tables() -> None:
        for name, table in tables.items():
            table.replace(checked[name])
        contender.accuracies = accuracies

    return take_up_tables


def _tables(contender: Contender) -> dict[str, KeyedStates]:
    return cast(TabledForecaster, contender.forecaster).tables


def _mixture_arrays(mixture: RunTimeMixture, most_keys: int | None, most_bytes: int | None) -> dict[str, NDArray[Any]]:
    state = mixture.state(most_keys)
    arrays: dict[str, NDArray[Any]] = {
        "ratios": state.ratios if most_keys is None else state.ratios.astype(np.float32),
        **mixture.weights.arrays(most_bytes),
    }
    for kind in range(KEYS):
        arrays[f"keys{kind}"] = _bytes(state.keys[kind], KEY_BYTES)
        arrays[f"runs{kind}"] = state.runs[kind].astype(np.int32)
    return arrays


def _state(arrays: Arrays) -> MixtureState:
    keys = tuple(_keys(arrays[f"keys{kind}"], KEY_BYTES, MOST_KEYS) for kind in range(KEYS))
    runs = tuple(
        _checked(arrays[f"runs{kind}"], (len(keys[kind]), LAGS), LONGEST).astype(np.int64) for kind in range(KEYS)
    )
    return MixtureState(keys, runs, _checked(arrays["ratios"], (len(keys[-1]), LAGS), MAX_RATIO))


def _weights(arrays: Arrays) -> dict[bytes, Learned]:
    if SHARED_WEIGHTS in arrays:
        return {}
    learners = _keys(arrays["learners"], NAMESPACE_BYTES, namespace_weights.MOST_NAMESPACES)
    return namespace_weights.read(arrays, learners)


def _accuracies(arrays: Arrays) -> dict[bytes, Accuracies]:
    namespaces = _keys(arrays["namespaces"], NAMESPACE_BYTES, MOST_NAMESPACES)
    numbers = _checked(arrays["accuracies"], (len(namespaces), len(Accuracies._fields)), REMEMBERED_RUNS)
    if (numbers[:, 1:] > 1.0 + 1e-9).any():
        raise ValueError("an accuracy is above 1")
    return {name: Accuracies(*row) for name, row in zip(namespaces, numbers.tolist(), strict=True)}


def _bytes(keys: tuple[bytes, ...], size: int) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), size)


def _keys(array: NDArray[Any], size: int, most: int) -> tuple[bytes, ...]:
    if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != size or len(array) > most:
        raise ValueError(f"keys of shape {array.shape} and type {array.dtype}")
    keys = tuple(row.tobytes() for row in array)
    if len(set(keys)) != len(keys):
        raise ValueError("a key is there twice")
    return keys


def _checked(array: NDArray[Any], shape: tuple[int, ...], most: float) -> NDArray[np.float64]:
    if array.shape != shape:
        raise ValueError(f"shape {array.shape}, not {shape}")
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all() or (numbers < 0).any() or (numbers > most + 1e-9).any():
        raise ValueError("a number is not finite, below 0 or too large")
    return numbers
