"""Pretrained models of series as baselines: adapters that load weights only from a folder of this machine.

Called by `task` through the registry. None of the libraries is a dependency of Cotide: a user with weights installs the
library that runs them. The adapters read folders with ``config.json`` and ``model.safetensors``; other formats of
weights are pickles, which run code. Invariants: no hub is contacted. A forecaster sees only the slots before its origin
and is never trained here, so that a series teaches it nothing.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.usage_path.inputs import DAY_SLOTS, WINDOW, filled_forward

CONTEXT_SLOTS: Final = 3 * DAY_SLOTS
"""Latest slots in a model's input (chosen: three days, which all three take)."""
WEIGHTS: Final = "model.safetensors"
CONFIG: Final = "config.json"
UPPER: Final = 0.9
"""Quantile of each slot; the highest one is the peak."""

Quantiles = Callable[[Floats], tuple[Floats, Floats]]
"""(n, t) slots to (n, 12) medians and (n, 12) p90s."""


class Pretrained:
    """A model that was trained elsewhere.

    Parameters
    ----------
    name : of `ADAPTERS`.

    Attributes
    ----------
    folder : of its weights; set before `fit`.
    """

    folder: Path | None = None

    def __init__(self, name: str) -> None:
        self._name = name
        self._quantiles: Quantiles | None = None

    def fit(self, history: Floats) -> None:
        """Load the model; the history teaches it nothing.

        Raises
        ------
        InputError
            Without weights, or without the library that runs them.
        """
        del history
        if self.folder is None:
            raise InputError(f"not run: no weights of {self._name} were given", field="--weights")
        digest_of(self.folder)
        adapter = ADAPTERS[self._name]
        try:
            self._quantiles = adapter(self.folder)
        except ModuleNotFoundError as error:
            raise InputError(f"not run: {self._name} needs {error.name}, which is not installed") from error

    def forecast(self, history: Floats) -> Floats:
        """Return the medians."""
        return self._asked(history)[0]

    def peak(self, history: Floats) -> Floats:
        """Return (n,) the highest p90 of the twelve slots."""
        found: Floats = self._asked(history)[1].max(axis=1)
        return found

    def _asked(self, history: Floats) -> tuple[Floats, Floats]:
        if self._quantiles is None:
            raise ValueError("queried before it was fitted")
        median, upper = self._quantiles(filled_forward(history[:, -CONTEXT_SLOTS:]))
        return np.maximum(median, 0.0), np.maximum(upper, 0.0)


def digest_of(folder: Path) -> str:
    """Return the sha256 of a folder's model.

    Raises
    ------
    InputError
        When the folder has no weights in a known format.
    """
    found = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        try:
            found.update((folder / name).read_bytes())
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"{name} can't be read: {reason}", file=str(folder), field="--weights") from error
    return found.hexdigest()


def parse_weights(given: tuple[str, ...]) -> dict[str, Path]:
    """Return folders by name of ``NAME=FOLDER``.

    Raises
    ------
    InputError
        At text without this form, an unknown name, or a folder without weights.
    """
    found: dict[str, Path] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals or name not in ADAPTERS:
            raise InputError(f"{text!r} is not NAME=FOLDER with {', '.join(ADAPTERS)} as the name", field="--weights")
        digest_of(Path(folder))
        found[name] = Path(folder).resolve()
    return found


def _chronos(folder: Path) -> Quantiles:
    """Chronos-Bolt and Chronos-2 (`chronos-forecasting`): a tensor of quantiles for all series, or one for each."""
    torch, library = importlib.import_module("torch"), importlib.import_module("chronos")
    pipeline = library.BaseChronosPipeline.from_pretrained(str(folder), device_map="cpu")

    def quantiles(history: Floats) -> tuple[Floats, Floats]:
        series = [torch.as_tensor(row, dtype=torch.float32) for row in history]
        found, _ = pipeline.predict_quantiles(series, prediction_length=WINDOW, quantile_levels=[0.5, UPPER])
        rows = np.stack([_numbers(output).reshape(WINDOW, 2) for output in found])
        return rows[:, :, 0], rows[:, :, 1]

    return quantiles


def _tirex(folder: Path) -> Quantiles:
    """TiRex-2 (`tirex2`): of each series (variates, quantiles, slots) at 0.1 to 0.9."""
    torch, library = importlib.import_module("torch"), importlib.import_module("tirex2")
    model = library.load_model(str(folder), device="cpu")

    def quantiles(history: Floats) -> tuple[Floats, Floats]:
        series = [
            library.TimeseriesType(
                target=torch.as_tensor(row[None, :], dtype=torch.float32), past_covariates=None, future_covariates=None
            )
            for row in history
        ]
        found = model.forecast(series, prediction_length=WINDOW, output_type="numpy")
        rows = np.stack([_numbers(output).reshape(9, WINDOW) for output in found])
        return rows[:, 4], rows[:, 8]

    return quantiles


def _timesfm(folder: Path) -> Quantiles:
    """TimesFM 2.5 (`timesfm`): points, and of each slot the mean and the quantiles at 0.1 to 0.9."""
    library = importlib.import_module("timesfm")
    model = library.TimesFM_2p5_200M_torch.from_pretrained(str(folder), local_files_only=True, torch_compile=False)
    model.compile(
        library.ForecastConfig(
            max_context=CONTEXT_SLOTS,
            max_horizon=128,  # number of series that it decodes at once
            normalize_inputs=True,
            use_continuous_quantile_head=True,
            infer_is_positive=True,
            fix_quantile_crossing=True,
        )
    )

    def quantiles(history: Floats) -> tuple[Floats, Floats]:
        _, found = model.forecast(horizon=WINDOW, inputs=list(history))
        rows = _numbers(found).reshape(len(history), -1, 10)[:, :WINDOW]
        return rows[:, :, 5], rows[:, :, 9]

    return quantiles


def _numbers(found: Any) -> Floats:
    return np.asarray(found, dtype=np.float64)


ADAPTERS: Final[Mapping[str, Callable[[Path], Quantiles]]] = MappingProxyType(
    {"chronos": _chronos, "tirex": _tirex, "timesfm": _timesfm}
)
"""By name; each loads a folder."""
SUMMARIES: Final = MappingProxyType(
    {
        "chronos": ("Chronos-Bolt or Chronos-2, from --weights", "Ansari and others 2024"),
        "tirex": ("TiRex-2, from --weights", "Auer and others 2025"),
        "timesfm": ("TimesFM 2.5, from --weights", "Das and others 2024"),
    }
)
"""Summary and source by name."""
