"""Columns of whole numbers as short text: differences or values in seven bits a byte, then base64.

Called by `schedule_view` and by tests; the script of `schedule_view` reads them back. Pure. Invariant:
``unpacked(packed(x)) == x``.

A number takes as many bytes as it has groups of seven bits, lowest first, the high bit saying that more follow
(LEB128). Negative numbers are folded: 0, -1, 1, -2 become 0, 1, 2, 3.
"""

from __future__ import annotations

import base64
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers

_GROUP: Final = 7
_GROUPS_MAX: Final = 8
"""56 bits: more than a script's numbers hold exactly (53)."""


def packed(values: Integers) -> str:
    """Return (n,) numbers as text."""
    folded = np.where(values < 0, -2 * values - 1, 2 * values).astype(np.uint64)
    lengths = np.ones(len(folded), dtype=np.int64)
    for group in range(1, _GROUPS_MAX):
        lengths += folded >= np.uint64(1) << np.uint64(_GROUP * group)
    offsets = np.cumsum(lengths) - lengths
    data = np.empty(int(lengths.sum()), dtype=np.uint8)
    for group in range(int(lengths.max(initial=0))):
        has = lengths > group
        bits = (folded[has] >> np.uint64(_GROUP * group)) & np.uint64(127)
        more = (lengths[has] > group + 1).astype(np.uint64) << np.uint64(_GROUP)
        data[offsets[has] + group] = bits | more
    return base64.b64encode(data.tobytes()).decode("ascii")


def unpacked(text: str) -> Integers:
    """Return the numbers."""
    values: list[int] = []
    value = shift = 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += _GROUP
        if byte < 128:  # the last group
            values.append(-(value + 1) // 2 if value & 1 else value // 2)
            value = shift = 0
    return np.array(values, dtype=np.int64)


def differences(values: Integers) -> Integers:
    """Return the first number and then each one less the one before: small numbers where values rise slowly."""
    return np.diff(values, prepend=np.int64(0))
