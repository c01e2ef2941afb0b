"""The one pass over the nodes says the same as the formulas of slack, written with whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.kernels.open_rows import (
    BOTH,
    CORDONED,
    EXPECTED,
    HELD,
    LATER,
    OPEN,
    SHORT,
    open_rows,
    rows_with_slack,
)

ENOUGH = -1e-6


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from((HELD, EXPECTED, BOTH)))
def test_it_agrees_with_whole_arrays(seed: int, rows: int, taken: int) -> None:
    """Few distinct amounts, so that what is left is often just enough."""
    rng = np.random.default_rng(seed)
    fits = rng.integers(0, 2, rows).astype(np.int16)
    cordoned, denied = rng.random((2, rows)) < 0.2
    slack, soon, expected, reserved = rng.integers(-1, 5, (4, 2, rows)).astype(np.float64)
    held = rng.integers(0, 2, (3, 2, rows + 3))  # the columns have room for more nodes than there are
    is_open, tally = open_rows(
        fits, cordoned, denied, slack, soon, held, expected, reserved, taken, 1.0, 2.0, ENOUGH
    )  # fmt: skip
    batch = held[:2, :, :rows].sum(axis=0).astype(np.float64)
    room = slack - {HELD: batch, EXPECTED: expected, BOTH: batch + expected}[taken]
    asked = np.array([[1.0], [2.0]])
    enough = (room - reserved - asked >= ENOUGH).all(axis=0) & ~denied
    may = (fits == 0) & ~cordoned
    gained = soon - slack
    later = may & ~enough & (gained > 0).any(axis=0) & (room + gained - asked >= ENOUGH).all(axis=0)
    assert is_open.tolist() == (may & enough).tolist()
    expected_tally = {OPEN: may & enough, CORDONED: (fits == 0) & cordoned, SHORT: may & ~enough & ~later, LATER: later}
    for kind, found in expected_tally.items():
        assert tally[kind].tolist() == [found.sum(), found.argmax() if found.any() else 0]


@pytest.mark.parametrize(("asked", "rows"), [(4.0, [2, 0]), (5.0, [2]), (6.0, [])])
def test_of_best_ranked_rows_those_stay_in_their_order_that_have_a_service_and_room(
    asked: float, rows: list[int]
) -> None:
    """Slack 6, 9 and 5; 2, 2 and 0 are held: 4, 7 and 5 are left. Row 1 carries no service."""
    slack, held = np.array([[6.0, 9.0, 5.0]] * 2), np.zeros((3, 2, 3), np.int64)
    held[1] = [2, 2, 0]
    services = np.array([1, 0, 3])
    assert rows_with_slack(np.array([1, 2, 0]), services, slack, held, asked, 0.0, ENOUGH).tolist() == rows
