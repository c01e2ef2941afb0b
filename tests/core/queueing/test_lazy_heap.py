"""Items that went stale are neither given out nor kept for ever."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from cotide_core.queueing.lazy_heap import SPARE, LazyHeap


@given(st.lists(st.tuples(st.sampled_from(("push", "pop", "first", "stale")), st.integers(0, 20)), max_size=200))
def test_what_is_valid_comes_in_order(steps: list[tuple[str, int]]) -> None:
    stale: set[tuple[int, int]] = set()
    heap: LazyHeap[tuple[int, int]] = LazyHeap(lambda item: item not in stale)
    valid: list[tuple[int, int]] = []
    for ticket, (what, number) in enumerate(steps):
        if what == "push":
            heap.push((number, ticket))
            heapq.heappush(valid, (number, ticket))
        elif what == "stale" and valid:
            gone = valid[number % len(valid)]
            stale.add(gone)
            valid.remove(gone)
            heapq.heapify(valid)
        elif what == "first":
            assert heap.first() == (valid[0] if valid else None)
        elif what == "pop":
            assert heap.pop() == (heapq.heappop(valid) if valid else None)


class Counted(int):
    """Counts how often numbers are compared."""

    times = 0

    def __lt__(self, other: object) -> bool:
        Counted.times += 1
        return int(self) < int(other)  # type: ignore[call-overload]  # numbers are all there is


def test_ten_thousand_that_went_at_once_are_not_popped_one_by_one() -> None:
    stale: set[int] = set()
    heap: LazyHeap[tuple[int, int]] = LazyHeap(lambda item: item[1] not in stale)
    for number in range(10_000):
        heap.push((Counted(number), number))
    stale.update(range(9_990))
    Counted.times = 0
    assert heap.pop() == (9_990, 9_990)
    assert Counted.times < 40_000  # one by one they take 120,000
    assert [heap.pop() for _ in range(10)] == [*((number, number) for number in range(9_991, 10_000)), None]


def test_what_goes_below_one_that_stays_is_given_back() -> None:
    stale: set[tuple[int, int]] = set()
    heap: LazyHeap[tuple[int, int]] = LazyHeap(lambda item: item not in stale)
    heap.push((0, 0))
    for number in range(1, 10_000):
        heap.push((number, number))
        stale.add((number, number))
    assert heap.first() == (0, 0)
    assert len(heap) <= 2 * SPARE
