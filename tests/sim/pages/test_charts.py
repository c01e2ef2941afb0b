"""Charts of pages: bars stand where their values are, and text from outside is escaped."""

from __future__ import annotations

import re

import numpy as np

from cotide_sim.pages.bar_chart import Bar, bar_chart
from cotide_sim.pages.line_chart import Axis, Series, line_chart
from cotide_sim.pages.page import Made, page, table

BOX = re.compile(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"')


def boxes(drawn: str) -> list[tuple[float, float]]:
    return [(float(x), float(width)) for x, width in BOX.findall(drawn)]


def test_bars_start_at_zero_and_are_as_long_as_their_values() -> None:
    """-1 and 3: zero is a quarter of the way; the second bar begins there and is three times as long."""
    (left, short), (zero, long) = boxes(bar_chart([Bar("a", -1.0, "-1"), Bar("b", 3.0, "3")], "two"))
    assert abs(left + short - zero) < 0.2
    assert abs(long - 3 * short) < 0.5


def test_a_bar_beyond_the_most_is_broken_off_and_keeps_its_figure() -> None:
    drawn = bar_chart([Bar("a", 50.0, "+5000%"), Bar("b", 0.5, "+50%")], "two", most=1.0)
    (_, cut), (_, half) = boxes(drawn)
    assert abs(cut - 2 * half) < 0.2
    assert drawn.count('class="gap"') == 1
    assert "+5000%" in drawn


def test_bars_of_nothing_are_drawn() -> None:
    assert boxes(bar_chart([Bar("a", 0.0, "0")], "one"))[0][1] == 0.0


def test_names_figures_and_titles_are_escaped() -> None:
    evil = "<b>&"
    ones = np.ones(2)
    drawn = bar_chart([Bar(evil, 1.0, evil)], evil) + line_chart(
        [Series(evil, ones, ones), Series("b", ones, ones)], Axis(evil, 0, 1), Axis(evil, 0, 1)
    )
    whole = page(evil, [drawn, table([evil], [["cell"]])], Made(evil, evil, evil))
    assert evil not in whole


def test_scattered_points_are_joined_by_no_line() -> None:
    values = np.array([0.0, 1.0, 0.5])
    drawn = line_chart([Series("a", values, values, scattered=True)], Axis("x", 0, 1), Axis("y", 0, 1))
    assert drawn.count("<circle") == 3
    assert "<polyline" not in drawn
