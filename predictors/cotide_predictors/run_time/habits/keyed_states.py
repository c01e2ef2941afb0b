"""Rows of numbers by key, bounded in number: the live forecasters' knowledge of each owner and each namespace.

Used by `live_filters`, `live_smoothing` and `live_regression`. Invariant: of too many keys the least recently learned
goes, within the limits of `namespace_shares`. A row holds the last numbers that were put under its key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.habits.likeness import KEY_BYTES, NAMESPACE_BYTES
from cotide_predictors.run_time.habits.namespace_shares import NamespaceShares

MOST_OWNERS: Final = 20_000
"""Chosen, as of the mixture: the largest rows are 488 bytes, some 12 MB in all."""
MOST_NAMESPACES_KEPT: Final = 2_000
"""Chosen: the largest rows are 5 KB, 10 MB in all."""


class KeyedStates:
    """Rows of one width.

    Parameters
    ----------
    low, high : (width,) limits of each number of a row, checked when a store is read.
    most_keys : largest number of keys.
    may_miss : whether a number may be nan, where it is unknown.
    """

    def __init__(self, low: Floats, high: Floats, most_keys: int, *, may_miss: bool = False) -> None:
        self._low, self._high = low, high
        self._most_keys = most_keys
        self._may_miss = may_miss
        self._rows: dict[bytes, Floats] = {}
        self._shares = NamespaceShares()

    def get(self, key: bytes) -> Floats | None:
        """Return a key's row, read only; None where nothing was learned."""
        return self._rows.get(key)

    def put(self, key: bytes, row: Floats) -> None:
        """Keep a row, as the latest; a row that holds an invalid number is forgotten instead."""
        if self._rows.pop(key, None) is not None and not self._is_sound(row):
            self._shares.forgotten(key)
        if not self._is_sound(row):
            return
        if len(self._rows) >= self._most_keys:
            forgotten = self._shares.to_forget(next(iter(self._rows)), key)
            del self._rows[forgotten]
            self._shares.forgotten(forgotten)
        self._rows[key] = row
        self._shares.learned(key)

    def retain(self, namespaces: Collection[bytes]) -> None:
        """Keep the rows of these namespaces only."""
        self.replace({key: row for key, row in self._rows.items() if key[:NAMESPACE_BYTES] in namespaces})

    def arrays(self, most_bytes: int | None = None) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        """Return (n, KEY_BYTES) keys and (n, width) rows, the last learned at the end.

        Parameters
        ----------
        most_bytes : of both; then rows are of half the precision, and of the latest keys alone.
        """
        width, kind = len(self._low), np.float64 if most_bytes is None else np.float32
        most = self._most_keys if most_bytes is None else max(1, most_bytes // (KEY_BYTES + 4 * width))
        kept = list(self._rows.items())[-most:]
        keys = np.frombuffer(b"".join(key for key, _ in kept), np.uint8).reshape(len(kept), KEY_BYTES)
        return keys, np.array([row for _, row in kept], kind).reshape(len(kept), width)

    def checked(self, keys: NDArray[Any], rows: NDArray[Any]) -> dict[bytes, Floats]:
        """Return rows by key of untrusted arrays.

        Raises
        ------
        ValueError
            One sentence that names the fault.
        """
        if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != KEY_BYTES or len(keys) > self._most_keys:
            raise ValueError(f"keys of shape {keys.shape} and type {keys.dtype}")
        if rows.dtype not in (np.float64, np.float32) or rows.shape != (len(keys), len(self._low)):
            raise ValueError(f"rows of shape {rows.shape} and type {rows.dtype}")
        found = {key.tobytes(): row.astype(np.float64) for key, row in zip(keys, rows, strict=True)}
        if len(found) != len(keys):
            raise ValueError("a key is there twice")
        if not all(self._is_sound(row) for row in found.values()):
            raise ValueError("a number is not finite, too small or too large")
        return found

    def replace(self, rows: dict[bytes, Floats]) -> None:
        """Hold exactly these rows, as `checked` returned them."""
        self._rows, self._shares = rows, NamespaceShares()
        for key in rows:
            self._shares.learned(key)

    def __len__(self) -> int:
        return len(self._rows)

    def _is_sound(self, row: Floats) -> bool:
        missing = np.isnan(row) if self._may_miss else np.zeros(len(row), np.bool_)
        return bool((missing | ((row >= self._low) & (row <= self._high))).all())


class OwnersAndNamespaces:
    """The tables of a live forecaster: one by owner, and one by namespace for unknown owners."""

    def __init__(self, owners: KeyedStates, namespaces: KeyedStates) -> None:
        self._owners, self._namespaces = owners, namespaces

    @property
    def tables(self) -> dict[str, KeyedStates]:
        """Return the tables."""
        return {"owners": self._owners, "namespaces": self._namespaces}

    def retain(self, namespaces: Collection[bytes]) -> None:
        """Keep what was learned in these namespaces only."""
        for table in self.tables.values():
            table.retain(namespaces)

    def __len__(self) -> int:
        return len(self._owners)
