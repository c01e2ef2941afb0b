"""Line charts as inline SVG: axes with round ticks, a line for each series, nothing loaded from anywhere.

Called by `report` and the demo's page. Pure: numbers to text. Invariant: equal numbers give equal bytes; positions are
rounded to a tenth of a pixel, and a long series is thinned to what the width can show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats

WIDTH: Final = 480
"""Chosen: two side by side on a desktop, and letters that can still be read on a phone of 360 pixels."""
HEIGHT: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 10, 42
_POINTS_MAX: Final = 480
COLOURS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
    "#7f7f7f", "#8c564b", "#9467bd", "#17becf",
)  # fmt: skip
"""The palette of Okabe and Ito, distinct for readers with any colour vision, and four more colours. Its black and its
yellow are left out: they vanish on a dark and on a white page."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or points that no line joins; both (n,), and x of a line rises."""

    name: str
    x: Floats
    y: Floats
    scattered: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its title, its range, whether it is logarithmic, and whether its ticks are whole numbers."""

    title: str
    low: float
    high: float
    logarithmic: bool = False
    whole: bool = False

    def share(self, values: Floats) -> Floats:
        """Return where values stand between the ends, in [0, 1]."""
        low, high = self.low, self.high
        if self.logarithmic:
            values, low, high = np.log10(np.maximum(values, low)), math.log10(low), math.log10(high)
        shares: Floats = np.clip((values - low) / (high - low or 1.0), 0.0, 1.0)
        return shares

    def ticks(self) -> list[float]:
        """Return round values inside the range."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        span = self.high - self.low or 1.0
        step = 10.0 ** math.floor(math.log10(span / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
        step = max(step, 1.0) if self.whole else step
        first = math.ceil(self.low / step)
        return [round(multiple * step, 10) for multiple in range(first, math.floor(self.high / step) + 1)]


def line_chart(series: Sequence[Series], x: Axis, y: Axis) -> str:
    """Return an ``<svg>`` element with its legend."""
    wide, high = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y.title)} by {escape(x.title)}">']
    for value in x.ticks():
        at = _LEFT + wide * float(x.share(np.array([value]))[0])
        parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{_TOP + high}"/>')
        parts.append(f'<text x="{at:.1f}" y="{_TOP + high + 15}" text-anchor="middle">{_label(value)}</text>')
    for value in y.ticks():
        at = _TOP + high * (1 - float(y.share(np.array([value]))[0]))
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_LEFT + wide}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_label(value)}</text>')
    parts.append(f'<text x="{_LEFT + wide / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x.title)}</text>')
    middle = _TOP + high / 2
    turned = f'transform="rotate(-90 14 {middle:.0f})" text-anchor="middle"'
    parts.append(f'<text x="14" y="{middle:.0f}" {turned}>{escape(y.title)}</text>')
    for number, line in enumerate(series):
        kept = np.unique(np.linspace(0, len(line.x) - 1, min(len(line.x), _POINTS_MAX)).astype(np.int64))
        across = _LEFT + wide * x.share(line.x[kept])
        down = _TOP + high * (1 - y.share(line.y[kept]))
        colour, pairs = COLOURS[number % len(COLOURS)], list(zip(across.tolist(), down.tolist(), strict=True))
        if line.scattered:
            parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in pairs]
            continue
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in pairs)
        parts.append(f'<polyline points="{points}" stroke="{colour}"><title>{escape(line.name)}</title></polyline>')
    parts.append("</svg>")
    legend = "".join(
        f'<li><i style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(line.name)}</li>'
        for number, line in enumerate(series)
    )
    return "".join(parts) + (f'<ul class="legend">{legend}</ul>' if len(series) > 1 else "")


def _label(value: float) -> str:
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:,g}M"
    if abs(value) >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:g}"
