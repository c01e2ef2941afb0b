"""Logarithm and exponential by additions, products and quotients alone.

Called by `tree_forecasts`. The library's own functions differ in the last bit between numpy, compiled code and
processors. These give the same bits everywhere, since each of their steps is rounded the same everywhere. Exact to
about 1e-15 of the result.
"""

from __future__ import annotations

from typing import Final

from cotide_core.kernels.compiled import compiled

LN2: Final = 0.6931471805599453
ROOT_OF_TWO: Final = 1.4142135623730951
FARTHEST: Final = 40.0
"""Larger exponents count as this one: 1 + exp(-40) is 1 in double precision."""


@compiled
def log_of(value: float) -> float:
    """Return the natural logarithm of a positive number."""
    power = 0
    while value >= ROOT_OF_TWO:
        value *= 0.5
        power += 1
    while value < 0.5 * ROOT_OF_TWO:
        value *= 2.0
        power -= 1
    # ln(x) = 2 (s + s^3/3 + s^5/5 + ...) with s = (x - 1) / (x + 1), |s| <= 0.172.
    ratio = (value - 1.0) / (value + 1.0)
    square = ratio * ratio
    total = 0.0
    for term in range(19, 0, -2):
        total = total * square + 1.0 / term
    return power * LN2 + 2.0 * ratio * total


@compiled
def exp_of(value: float) -> float:
    """Return e to the power of a number, which is held within `FARTHEST` of 0."""
    value = min(max(value, -FARTHEST), FARTHEST)
    power = int(value / LN2)
    rest = value - power * LN2
    total = 1.0
    for term in range(18, 0, -1):
        total = 1.0 + total * rest / term
    for _ in range(abs(power)):
        total *= 2.0 if power > 0 else 0.5
    return total
