"""`compiled`: turns a function on numbers and arrays into machine code, or leaves it as it is without numba.

Called at import by every kernel. Numba itself is loaded, and a kernel compiled, when a kernel is first called. A
process that decides without kernels (first come, first served) starts a fifth of a second sooner. Invariant: with
numba, without it and under ``NUMBA_DISABLE_JIT=1`` a kernel gives the same results. It is one piece of code on int64
numbers.

Machine code is kept on disk next to the module. If that is not writable, it is kept in the user's cache directory, or
otherwise nowhere. Numba notices a change of a function's own file, but not of the functions that it calls in other
files. So the cache's name carries a digest of everything that is called, and an old entry is never used.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache, update_wrapper
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


@cache
def _numba() -> Any:
    try:
        import numba
    except ImportError:  # A supported installation: the kernels then run as plain Python.
        return None
    _listen(numba)
    return numba


_listeners: list[Callable[[], object]] = []
"""Listeners for the first compilation; see `when_compiling`."""


def when_compiling(emit: Callable[[], object]) -> None:
    """Have ``emit`` called once before a kernel without an entry on disk is compiled, in the thread that needs it."""
    _listeners.append(emit)


def _listen(numba: Any) -> None:
    if numba.config.DISABLE_JIT:
        return
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: object) -> None:
            del event
            while _listeners:
                _listeners.pop()()

        def on_end(self, event: object) -> None:
            del event

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]  # numba ships no types


def compiles() -> bool:
    """Whether kernels run as machine code in this process."""
    numba = _numba()
    return numba is not None and not numba.config.DISABLE_JIT


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call. The call releases the interpreter's lock, so that a caller can watch from another
    thread.
    """
    return Kernel(function)


def uncounted(function: Callable[P, R]) -> Callable[P, R]:
    """Compile without counting references to arrays; the counting costs more than a short function.

    For a function that makes no arrays and returns none. The caller keeps its arrays until the function has returned.
    """
    return Kernel(function, counted=False)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile as a part of each caller, uncounted: for a step, which would otherwise receive all arrays each time."""
    return Kernel(function, inline=True, counted=False)


def with_steps(loop: Callable[P, R], name: str, **steps: Callable[..., Any]) -> Callable[P, R]:
    """Return a loop that calls these steps where it calls functions of their names. The kernel gets the name ``name``.

    The code is that of the loop, with other names for its functions. A function that is passed as an argument or closed
    over would do as well. But numba then finds no machine code on disk and compiles again in every process. The loop is
    `uncounted`, as its steps are.
    """
    general = cast(Kernel[P, R], loop).py_func
    names = {**general.__globals__, **steps}
    special = FunctionType(general.__code__, names, name, general.__defaults__, general.__closure__)
    update_wrapper(special, general)
    special.__name__ = name
    special.__qualname__ = name
    return Kernel(cast(Callable[P, R], special), counted=False)


class Kernel(Generic[P, R]):
    """A function that becomes machine code when it is first called.

    Two threads may prepare it at the same time: each step has the same result when it is done twice.

    Attributes
    ----------
    py_func : the function as it is written, as numba's own dispatchers call it.
    inline, counted : compiled as part of its callers, and counting references to arrays.
    """

    def __init__(self, function: Callable[P, R], *, inline: bool = False, counted: bool = True) -> None:
        update_wrapper(self, function)
        self.py_func = cast(FunctionType, function)
        self.inline, self.counted = inline, counted
        self._made: Callable[P, R] | None = None
        self._ready: Callable[P, R] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it; compile it first if needed."""
        return (self._ready or self.ready())(*args, **kwargs)

    def ready(self) -> Callable[P, R]:
        """Return what numba makes of the function; its first call compiles it."""
        if self._made is None:
            self._made = _made(self.py_func, self.inline, self.counted)
        # Numba looks up what a function calls among its module's names. It must find objects of its own there.
        names = self.py_func.__globals__
        for name in self.py_func.__code__.co_names:
            called = names.get(name)
            if isinstance(called, Kernel):
                names[name] = self._made if called is self else called.ready()
        self._ready = self._made
        return self._made


def _made(function: FunctionType, inline: bool, counted: bool) -> Callable[..., Any]:
    numba = _numba()
    if numba is None:
        return function
    function.__qualname__ = f"{function.__name__}_{_digest(function)}"
    try:
        made: Callable[..., Any] = numba.njit(cache=True, nogil=True, forceinline=inline, _nrt=counted)(function)
    except RuntimeError:  # No directory to cache in: a read-only install of a user without a home.
        made = numba.njit(nogil=True, forceinline=inline, _nrt=counted)(function)
    return made


def _digest(function: Any) -> str:
    """Return a short name for the code of a function and of all that it calls."""
    seen: dict[str, bytes] = {}
    _collect(function, seen)
    return hashlib.sha256(b"\0".join(seen[name] for name in sorted(seen))).hexdigest()[:12]


def _collect(function: Any, seen: dict[str, bytes]) -> None:
    plain = getattr(function, "py_func", function)
    if not isinstance(plain, FunctionType) or _key(plain) in seen:
        return
    code, names = plain.__code__, plain.__globals__
    constants = tuple(value for value in code.co_consts if isinstance(value, int | float | None))
    seen[_key(plain)] = code.co_code + repr((code.co_names, constants)).encode()
    for name in code.co_names:
        found = names.get(name)
        if isinstance(found, int | float | tuple):
            seen[f"{plain.__module__}.{name}"] = repr(found).encode()
        elif getattr(found, "__module__", "").startswith("cotide_"):
            _collect(found, seen)
    for annotation in plain.__annotations__.values():
        _collect_fields(names.get(annotation), seen)


def _key(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__name__}"


def _collect_fields(kind: Any, seen: dict[str, bytes]) -> None:
    """Add the order of a named tuple's fields: machine code knows them by their index."""
    if not isinstance(kind, type) or not hasattr(kind, "_fields"):
        return
    seen[f"{kind.__module__}.{kind.__name__}"] = repr(kind._fields).encode()
    names = vars(sys.modules[kind.__module__])
    for field in kind.__annotations__.values():
        _collect_fields(names.get(getattr(field, "__forward_arg__", "")), seen)
