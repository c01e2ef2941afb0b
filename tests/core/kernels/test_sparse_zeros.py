"""A sparse table is an array of zeros, and takes memory for what was written to only."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from cotide_core.kernels.sparse_zeros import sparse_zeros

STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("rows", [0, 1, 10, 1_000_000])
def test_it_is_an_array_of_zeros_that_can_be_written(rows: int) -> None:
    table = sparse_zeros((2, rows, 3), np.int64)
    assert table.shape == (2, rows, 3)
    assert table.dtype == np.int64
    assert not table.any()
    table[1, rows - 1 :] = 7
    assert table.sum() == 21 * min(rows, 1)


@pytest.mark.skipif(
    not (STATM.exists() and hasattr(mmap, "MADV_NOHUGEPAGE")), reason="only Linux says what is resident"
)
def test_a_hundred_entries_far_apart_take_a_hundred_pages() -> None:
    table = sparse_zeros((100, 80_000), np.int64)  # 64 MB
    before = resident_bytes()
    table[:, 40_000] = 1
    # 100 pages of 4 KiB, and what the interpreter takes meanwhile; pages of 2 MiB would come to 64 MB.
    assert resident_bytes() - before < 4 << 20
