"""How numbers and durations are written for people."""

from __future__ import annotations

import pytest

from cotide_core.units import counted, format_seconds


@pytest.mark.parametrize(("number", "words"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods"), (28481, "28,481 pods")])
def test_one_is_singular(number: int, words: str) -> None:
    assert counted(number, "pod") == words


def test_a_plural_of_its_own_is_given() -> None:
    assert [counted(number, "policy", "policies") for number in (1, 2)] == ["1 policy", "2 policies"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (45.4, "45s"), (7500, "2h 5m"), (17 * 3600 + 51, "17h"), (86_400 + 30 * 60, "1d"), (97_200, "1d 3h")],
)
def test_a_duration_has_two_units_that_follow_one_another_at_most(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words
