"""Answers that are kept while they are asked for: two generations, so that what nobody asks for again is given back.

Used where an answer costs more than a look, and what is asked about comes and goes for ever: requests, jobs, parts of
pods. Invariants: nothing is forgotten but in `make_room`, which takes the same time however much is kept; between two
calls of it that forget, ``most`` answers are added or met again; where it is called before each new answer, no more
than twice the largest ``most`` are held, however long it lasts.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Answers by key.

    Parameters
    ----------
    most : answers of a generation, at least 1.
    most_size : of the sizes of one generation together, in the caller's unit.
    """

    def __init__(self, most: int, most_size: int = sys.maxsize) -> None:
        self._most = most
        self._most_size = most_size
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._size = 0
        """Of the younger generation."""

    def get(self, key: K) -> V | None:
        """Return what is kept under a key, and keep it longer if its generation has room."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            if not self._full():
                # It may be gone by now: specs of pods are read by the extender's thread, too, and at the same time.
                self.keep(key, *self._old.pop(key, found))
        return found[0]

    def keep(self, key: K, value: V, size: int = 0) -> None:
        """Keep an answer that was not there."""
        self._young[key] = value, size
        self._size += size

    def make_room(self, most: int | None = None) -> None:
        """Let the older generation go if the younger one is full.

        Parameters
        ----------
        most : answers of a generation from now on, where that changes with what is there.
        """
        if most is not None:
            self._most = most
        if self._full():
            self._old, self._young, self._size = self._young, {}, 0

    def clear(self) -> None:
        """Forget all."""
        self._young, self._old, self._size = {}, {}, 0

    def _full(self) -> bool:
        return len(self._young) >= self._most or self._size >= self._most_size

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
