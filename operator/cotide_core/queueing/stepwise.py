"""Long work in steps, so that an event loop can run other tasks in between.

A generator yields between its steps and returns its result. `cotide_kube.turns.in_steps` drives it where other tasks
wait; `finished` drives it otherwise. Invariant: between steps the caller leaves unchanged all that the work reads.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

R = TypeVar("R")


def finished(steps: Generator[None, None, R]) -> R:
    """Run all steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: R = ended.value
            return result
