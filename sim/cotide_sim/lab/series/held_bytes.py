"""`held_bytes`: how much a forecaster keeps between two questions: what a series costs an operator in memory.

Called by `series.task`. Arrays count whole, also where only a view of them is kept; a model of a library counts as what
it would write. What Python itself needs for an object is left out: it differs between versions, and arrays are what
grows with the series. Invariant: nothing is counted twice, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

NUMBER_BYTES: Final = 8
"""Of a number that stands alone, in a list for example."""


def held_bytes(held: Any) -> int:
    """Return the bytes of all arrays, texts and numbers that can be reached from an object."""
    total = 0
    seen: set[int] = set()
    waiting = [held]
    while waiting:
        one = waiting.pop()
        while isinstance(one, np.ndarray) and isinstance(one.base, np.ndarray):
            one = one.base
        # Code has a name of its own: functions, compiled or not, classes and modules.
        if one is None or isinstance(one, bool) or hasattr(one, "__name__"):
            continue
        if isinstance(one, int | float | np.generic):
            total += NUMBER_BYTES
            continue
        if id(one) in seen:
            continue
        seen.add(id(one))
        own = _own_bytes(one)
        total += own or 0
        if own is None:
            waiting += _parts(one)
    return total


def _own_bytes(one: Any) -> int | None:
    """Return the bytes of what holds no other parts; None where its parts are to be asked."""
    if isinstance(one, str | bytes | bytearray):
        return len(one)
    if isinstance(one, np.ndarray) and one.dtype == object:
        return None
    size = getattr(one, "nbytes", None)
    if isinstance(size, int):
        return size
    raw = getattr(one, "save_raw", None)
    return len(raw()) if callable(raw) else None


def _parts(one: Any) -> list[Any]:
    if isinstance(one, np.ndarray):
        return one.ravel().tolist()
    if isinstance(one, Mapping):
        return [*one.keys(), *one.values()]
    if isinstance(one, list | tuple | set | frozenset):
        return list(one)
    names: Iterable[str] = (name for kind in type(one).__mro__ for name in _slots(kind))
    return [*vars(one).values()] if hasattr(one, "__dict__") else [getattr(one, name, None) for name in names]


def _slots(kind: type) -> tuple[str, ...]:
    named = kind.__dict__.get("__slots__", ())
    return (named,) if isinstance(named, str) else tuple(named)
