"""`compiled`: turns a function on numbers and arrays into machine code, or leaves it as it is without numba.

Called at import by every kernel; nothing is compiled before a kernel's first call. Invariant: with numba, without it
and under ``NUMBA_DISABLE_JIT=1`` a kernel gives the same results, since it is one piece of code on int64 numbers.

Machine code is kept on disk beside the module, or in the user's cache directory where that can't be written, or not
at all where neither can. Numba notices a change of the file a function stands in but not of the functions it calls in
other files; so the cache's name carries a digest of everything that is called, and an old entry is never taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def _load() -> Any:
    try:
        import numba
    except ImportError:  # a supported installation: the kernels then run as plain Python
        return None
    return numba


_NUMBA: Final = _load()

COMPILES: Final[bool] = _NUMBA is not None and not _NUMBA.config.DISABLE_JIT
"""Whether kernels run as machine code in this process."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call, without the interpreter's lock so that a caller can watch from another thread."""
    if _NUMBA is None:
        return function
    function.__qualname__ = f"{function.__qualname__}_{_digest(function)}"
    try:
        made: Callable[P, R] = _NUMBA.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no directory to cache in: a read-only install of a user without a home
        made = _NUMBA.njit(nogil=True)(function)
    return made


def _digest(function: Any) -> str:
    """Return a short name for the code of a function and of all that it calls."""
    seen: dict[str, bytes] = {}
    _collect(function, seen)
    return hashlib.sha256(b"\0".join(seen[name] for name in sorted(seen))).hexdigest()[:12]


def _collect(function: Any, seen: dict[str, bytes]) -> None:
    plain = getattr(function, "py_func", function)
    if not isinstance(plain, FunctionType) or plain.__name__ in seen:
        return
    code = plain.__code__
    constants = tuple(value for value in code.co_consts if isinstance(value, int | float | None))
    seen[plain.__name__] = code.co_code + repr((code.co_names, constants)).encode()
    for name in code.co_names:
        found = plain.__globals__.get(name)
        if isinstance(found, int | float | tuple):
            seen[name] = repr(found).encode()
        elif getattr(found, "__module__", "").startswith("cotide_"):
            _collect(found, seen)
