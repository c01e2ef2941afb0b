"""Keeps the numeric libraries on one thread while a model is fitted.

Used by the estimators' `fit`. The matrices here have a few columns; BLAS and OpenMP would distribute them to every core
and spin there. On busy cores this takes ten times the work itself and starves the scheduler on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it ships no types

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def on_one_thread(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Return the function, run with BLAS and OpenMP held to one thread."""

    @wraps(function)
    def held(*positional: Arguments.args, **named: Arguments.kwargs) -> Answer:
        with threadpool_limits(limits=1):
            return function(*positional, **named)

    return held
