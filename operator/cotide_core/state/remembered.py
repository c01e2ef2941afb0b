"""A cache of two generations: answers stay while they are in use, and unused ones are dropped.

Used where an answer costs more than a look-up, and keys come and go for ever: requests, jobs, parts of pods.
Invariants: answers are dropped only in `make_room`, which takes constant time. Between two of its calls that drop,
``most`` answers are added or used again. If it is called before each new answer, the cache holds at most twice the
largest ``most``.
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
    most_size : limit on the total size of one generation, in the caller's unit.
    """

    def __init__(self, most: int, most_size: int = sys.maxsize) -> None:
        self._most = most
        self._most_size = most_size
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._size = 0
        """Of the younger generation."""

    def get(self, key: K) -> V | None:
        """Return the answer of a key, and keep it longer if its generation has room."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            if not self._full():
                # Another thread may have removed it: the extender's thread reads specs of pods at the same time.
                self.keep(key, *self._old.pop(key, found))
        return found[0]

    def keep(self, key: K, value: V, size: int = 0) -> None:
        """Add a missing answer."""
        self._young[key] = value, size
        self._size += size

    def make_room(self, most: int | None = None) -> None:
        """Drop the older generation if the younger one is full.

        Parameters
        ----------
        most : answers of a generation from now on, if the number changes with the cluster.
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
