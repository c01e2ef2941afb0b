"""`held_bytes`: the memory that a forecaster keeps between two queries, which is an operator's cost of a series.

Called by `series.task`. Arrays count whole, even where only a view of them is kept; a library's model counts as its
serialised form. Python's own overhead for an object is left out: it differs between versions, and only arrays grow with
the series. Invariant: every part is counted once, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

NUMBER_BYTES: Final = 8
"""Of a single number, in a list for example."""


def held_bytes(held: Any) -> int:
    """Return the bytes of all arrays, texts and numbers that can be reached from an object."""
    total = 0
    seen: set[int] = set()
    waiting = [held]
    while waiting:
        part = waiting.pop()
        while isinstance(part, np.ndarray) and isinstance(part.base, np.ndarray):
            part = part.base
        # Code has a name of its own: functions, compiled or not, classes and modules.
        if part is None or isinstance(part, bool) or hasattr(part, "__name__"):
            continue
        if isinstance(part, int | float | np.generic):
            total += NUMBER_BYTES
            continue
        if id(part) in seen:
            continue
        seen.add(id(part))
        own = _own_bytes(part)
        total += own or 0
        if own is None:
            waiting += _parts(part)
    return total


def _own_bytes(part: Any) -> int | None:
    """Return the bytes of an object without further parts; None where its parts are counted instead."""
    if isinstance(part, str | bytes | bytearray):
        return len(part)
    if isinstance(part, np.ndarray) and part.dtype == object:
        return None
    size = getattr(part, "nbytes", None)
    if isinstance(size, int):
        return size
    raw = getattr(part, "save_raw", None)
    return len(raw()) if callable(raw) else None


def _parts(part: Any) -> list[Any]:
    if isinstance(part, np.ndarray):
        return part.ravel().tolist()
    if isinstance(part, Mapping):
        return [*part.keys(), *part.values()]
    if isinstance(part, list | tuple | set | frozenset):
        return list(part)
    names: Iterable[str] = (name for kind in type(part).__mro__ for name in _slots(kind))
    return [*vars(part).values()] if hasattr(part, "__dict__") else [getattr(part, name, None) for name in names]


def _slots(kind: type) -> tuple[str, ...]:
    named = kind.__dict__.get("__slots__", ())
    return (named,) if isinstance(named, str) else tuple(named)
