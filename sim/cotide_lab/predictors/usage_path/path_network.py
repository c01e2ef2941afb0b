"""A trained network as arrays: forecasts with numpy alone, saved as npz without pickle.

Called by the lab; only training needs JAX. Invariant: the bytes of a network give the same
forecasts as the network, and a file of other arrays is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotide_core.errors import ModelError
from cotide_core.kernels.array_types import Floats, Narrow
from cotide_lab.predictors.usage_path.attention_network import VARIANTS, Variant, forward, shapes_of
from cotide_lab.predictors.usage_path.inputs import PAST_SLOTS, WINDOW, filled_forward, windows_of
from cotide_predictors.persistence.model_files import read_arrays, write_arrays

ROWS_AT_ONCE: Final = 2000
"""Series in one pass (chosen: its arrays stay in the cache)."""
_LARGEST_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PathNetwork:
    """A trained network.

    Attributes
    ----------
    variant : a row of Table 7.4. parameters : arrays by name, as in `shapes_of`.
    """

    variant: Variant
    parameters: dict[str, Narrow]

    def forecast(self, history: Floats, origin_slot: int | None = None) -> Floats:
        """Return (n, 12) the next slots of n series.

        Parameters
        ----------
        history : (n, t) slots before the origin, nan where there is no record; a history shorter than a day and an hour
            is extended with its first value.
        origin_slot : number of the origin's slot from a midnight of the first weekday; default t.
        """
        slot = history.shape[1] if origin_slot is None else origin_slot
        past = filled_forward(history[:, -PAST_SLOTS:])
        missing = PAST_SLOTS - past.shape[1]
        if missing > 0:
            past = np.concatenate([np.repeat(past[:, :1], missing, axis=1), past], axis=1)
        found = np.empty((len(history), WINDOW))
        for begin in range(0, len(history), ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            windows = windows_of(past[rows], np.full(len(past[rows]), slot, dtype=np.int64))
            scaled = forward(np, self.parameters, self.variant, windows.inputs)
            found[rows] = np.maximum(windows.mean + windows.deviation * scaled, 0.0)
        return found

    def to_bytes(self) -> bytes:
        """Return the network as an npz file."""
        arrays: dict[str, Any] = {f"parameter_{name}": array for name, array in self.parameters.items()}
        return write_arrays({"variant": np.array(self.variant), **arrays})

    @classmethod
    def from_bytes(cls, data: bytes) -> PathNetwork:
        """Return the network of an npz file.

        Raises
        ------
        ModelError
            When it is not such a file, or its arrays are not those of the variant it names.
        """
        if len(data) > _LARGEST_BYTES:
            raise ModelError(f"a path network is below {_LARGEST_BYTES} bytes, this has {len(data)}")
        found = read_arrays(data, "the path network")
        name = str(found.pop("variant", ""))
        variant = next((known for known in VARIANTS if known == name), None)
        if variant is None:
            raise ModelError(f"names the variant {name!r}; there are {', '.join(VARIANTS)}")
        parameters = {name.removeprefix("parameter_"): array for name, array in found.items()}
        if {name: array.shape for name, array in parameters.items()} != shapes_of(variant):
            raise ModelError(f"the arrays are not those of {variant}")
        if not all(array.dtype == np.float32 and np.isfinite(array).all() for array in parameters.values()):
            raise ModelError("the arrays must be finite numbers of 32 bits")
        return cls(variant, parameters)
