"""Answers that nobody asks for again are given back; those that are asked for stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotide_core.state.remembered import Remembered


def ask(cache: Remembered[int, int], key: int, size: int = 0) -> int:
    """Do what callers do; an answer is ten times its key."""
    found = cache.get(key)
    if found is None:
        cache.make_room()
        cache.keep(key, 10 * key, size)
        return 10 * key
    return found


@given(st.integers(1, 8), st.lists(st.integers(0, 40), max_size=300))
def test_an_answer_is_right_and_never_more_than_two_generations_are_held(most: int, keys: list[int]) -> None:
    cache: Remembered[int, int] = Remembered(most)
    for key in keys:
        assert ask(cache, key) == 10 * key
        assert len(cache) <= 2 * most


def test_what_is_asked_for_again_and_again_stays_while_others_come_and_go() -> None:
    cache: Remembered[int, int] = Remembered(4)
    ask(cache, 0)
    for stranger in range(1, 1000):
        assert cache.get(0) == 0, f"gone after {stranger - 1} others"
        ask(cache, stranger)


def test_what_nobody_asks_for_is_gone_after_two_generations() -> None:
    cache: Remembered[int, int] = Remembered(4)
    for key in range(9):  # 0 to 3, 4 to 7, and with 8 the first four go
        ask(cache, key)
    assert [cache.get(key) for key in (3, 4)] == [None, 40]


def test_sizes_count_as_well_as_answers() -> None:
    cache: Remembered[int, int] = Remembered(1000, most_size=10)
    for key in range(100):
        ask(cache, key, size=6)
        assert len(cache) <= 4, "two of 6 are above 10: two in each generation"


def test_nothing_is_forgotten_until_room_is_made() -> None:
    cache: Remembered[int, int] = Remembered(2)
    for key in range(50):
        cache.keep(key, 10 * key)
    assert [cache.get(key) for key in range(50)] == [10 * key for key in range(50)]
    cache.make_room()
    assert [cache.get(key) for key in range(50)] == [10 * key for key in range(50)], "now the older generation"
    cache.make_room()
    assert len(cache) == 2, "the two that were met again while there was room"


def test_cleared_is_empty() -> None:
    cache: Remembered[int, int] = Remembered(2, most_size=3)
    ask(cache, 1, size=3)
    cache.clear()
    assert (len(cache), cache.get(1)) == (0, None)


def test_an_answer_that_another_thread_takes_meanwhile_is_given_all_the_same() -> None:
    class Raced(dict[str, tuple[int, int]]):
        """What is got is gone a moment later."""

        def get(self, key: str) -> tuple[int, int] | None:  # type: ignore[override]
            return self.pop(key, None)

    kept: Remembered[str, int] = Remembered(2)
    for key in "ab":
        kept.make_room()
        kept.keep(key, ord(key))
    kept.make_room()
    kept._old = Raced(kept._old)
    assert kept.get("a") == ord("a")
