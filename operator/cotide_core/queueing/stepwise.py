"""Long work in steps, between which a caller in an event loop lets others have their turn.

A generator that yields between its steps and returns its result: driven by `cotide_kube.turns.in_steps` where others
wait, by `finished` where nobody does. Invariant: whoever drives it changes nothing that the work reads meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

R = TypeVar("R")


def finished(steps: Generator[None, None, R]) -> R:
    """Do all the steps and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: R = ended.value
            return result
