"""Cached answers for claims, valid until their storage class changes.

`free_volumes` and `storage_capacities` call it. The cache is bounded, since each claim may request another amount.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from cotide_core.state.remembered import Remembered
from cotide_operator.translation.volumes.claims import DEMANDS_KEPT

Demand = TypeVar("Demand", bound=Hashable)
Part = TypeVar("Part")


class AnswersByClass(Generic[Demand, Part]):
    """Results for each demand on a storage class.

    Parameters
    ----------
    most_parts : of the answers of one class together, in one cache generation.
    """

    def __init__(self, most_parts: int) -> None:
        self._most_parts = most_parts
        self._found: dict[str, Remembered[Demand, tuple[Part, ...]]] = {}

    def of(self, storage_class: str, demand: Demand, search: Callable[[], tuple[Part, ...]]) -> tuple[Part, ...]:
        """Return the cached result, or the result of ``search``."""
        known = self._found.get(storage_class)
        if known is None:
            known = self._found[storage_class] = Remembered(DEMANDS_KEPT, self._most_parts)
        found = known.get(demand)
        if found is None:
            found = search()
            known.make_room()
            known.keep(demand, found, len(found))
        return found

    def forget(self, storage_classes: Iterable[str]) -> None:
        """Drop the results for some classes."""
        for text in storage_classes:
            self._found.pop(text, None)

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))
