"""Compiles array kernels with numba where it is installed, and keeps the machine code between runs where it may.

Used by the kernels of this package. Invariant: with or without numba, with or without a cache, the answers are the
same; only the time differs. A container with a read-only file system has nowhere to keep machine code: the kernels are
then compiled anew in each process, which takes a few seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def compiled(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Return the function compiled for the types it is first called with."""
    try:
        import numba
    except ImportError:
        return function
    try:
        kernel = numba.njit(function, cache=True, nogil=True)
    except RuntimeError:
        # numba finds no directory that it may write its cache to.
        kernel = numba.njit(function, nogil=True)
    return cast(Callable[Arguments, Answer], kernel)
