"""Bar charts as inline SVG: a row for each name, its bar from zero, its figure at the end.

Called by `report` and the demo's page. Pure: numbers to text. Invariant: equal numbers give equal bytes; what is better
and what is worse differ by side and figure, not by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from cotide_sim.pages.line_chart import WIDTH

_ROW, _BAR = 26, 16
_NAMES, _FIGURES = 122, 64
BETTER: Final = "#0072b2"
WORSE: Final = "#d55e00"
PLAIN: Final = "#56b4e9"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its name, its finite value, its printed figure, its colour."""

    name: str
    value: float
    figure: str
    colour: str = PLAIN


def bar_chart(bars: Sequence[Bar], what: str, *, most: float = math.inf) -> str:
    """Return an ``<svg>`` element.

    Parameters
    ----------
    what : what the bars are, in words, for readers who can't see them. most : a longer bar is broken there, with a gap
    before its end, so that the others stay visible.
    """
    shown = [min(most, max(-most, bar.value)) for bar in bars]
    low, high = min(0.0, *shown, 0.0), max(0.0, *shown, 0.0)
    span = high - low or 1.0
    left = _NAMES + (_FIGURES if low < 0 else 6)
    wide = WIDTH - left - _FIGURES
    zero = left + wide * -low / span
    height = _ROW * len(bars) + 8
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(what)}">']
    for row, (bar, value) in enumerate(zip(bars, shown, strict=True)):
        top = 4 + row * _ROW
        end = left + wide * (value - low) / span
        middle = top + _ROW / 2 + 4
        name = bar.name if len(bar.name) <= 18 else f"{bar.name[:17]}…"
        parts.append(f'<text x="0" y="{middle:.0f}">{escape(name)}<title>{escape(bar.name)}</title></text>')
        parts.append(
            f'<rect x="{min(zero, end):.1f}" y="{top + (_ROW - _BAR) / 2:.0f}" width="{abs(end - zero):.1f}" '
            f'height="{_BAR}" fill="{bar.colour}"/>'
        )
        if value != bar.value:
            gap = zero + 0.9 * (end - zero)
            parts.append(f'<rect class="gap" x="{gap:.1f}" y="{top}" width="5" height="{_ROW}"/>')
        at, anchor = (end - 5, "end") if bar.value < 0 else (end + 5, "start")
        parts.append(f'<text x="{at:.1f}" y="{middle:.0f}" text-anchor="{anchor}">{escape(bar.figure)}</text>')
    parts.append(f'<path class="axis" d="M{zero:.1f} 2V{height - 2}"/></svg>')
    return "".join(parts)
