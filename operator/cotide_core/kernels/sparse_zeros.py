"""Large tables of zeros that get few entries.

Used by `qos.prediction_cache`: of 256 shapes x 50,000 nodes a cluster's pods look at some thousand pairs. The system
provides a page at its first use, and numpy asks for pages of 2 MiB where it can. So single entries all over a table
would cost as much as the whole table: 1.1 s and 600 MB at that size. Invariant: a table here takes a page of 4 KiB for
each entry that lies alone.
"""

from __future__ import annotations

import math
import mmap
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGE_BYTES: Final = 1 << 20
"""Below this a table is an ordinary array (chosen: half of a large page)."""


def sparse_zeros(shape: tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
    """Return a writable array of zeros."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size < LARGE_BYTES or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, kind)
    pages = mmap.mmap(-1, size)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, kind).reshape(shape)
