"""Large tables of zeros of which few entries are ever written.

Used by `qos.prediction_cache`: of 256 shapes x 50,000 nodes a cluster's pods look at some thousand pairs. The system
hands out a page when it is first touched; numpy asks for pages of 2 MiB where it can, so that single entries all over a
table cost as much as the whole of it: 1.1 s and 600 MB at that size. Invariant: a table here takes a page of 4 KiB for
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
