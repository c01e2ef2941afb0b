"""The design of a campaign: order, stopping, harm."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_lab.predictors.profiling.design import (
    Cell,
    Rule,
    Standing,
    cells_of,
    is_narrow,
    next_cell,
    p95_interval,
    standings,
    windows_left,
)

ALONE, SORT, TWO = (), (("sort", 1),), (("sort", 2),)
CELLS = cells_of([100, 1000], [ALONE, SORT, TWO])


def test_the_first_pass_goes_up_from_the_least_harmful_cell() -> None:
    measured: dict[Cell, list[float]] = {}
    order = []
    for _ in CELLS:
        cell = next_cell(CELLS, measured, Rule(), seed=0)
        assert cell is not None
        order.append(cell)
        measured[cell] = [1.0]
    assert order == [Cell(rate, mix) for mix in (ALONE, SORT, TWO) for rate in (100, 1000)]


def test_what_a_harmful_cell_dominates_is_never_measured() -> None:
    """20 ms beside one sort at 1000/s is harm: two sorts at 1000/s cover it; two at 100/s don't."""
    where = standings(CELLS, {Cell(1000, SORT): [20.0]}, Rule(harm_milliseconds=10))
    assert where[Cell(1000, SORT)] is Standing.HARMFUL
    assert where[Cell(1000, TWO)] is Standing.SKIPPED
    assert where[Cell(100, TWO)] is Standing.OPEN
    assert where[Cell(1000, ALONE)] is Standing.OPEN


def test_a_cell_is_known_when_its_interval_is_narrow_and_noisy_when_it_stays_wide() -> None:
    rule = Rule(least=2, most=3, width=0.25)
    cells = CELLS[:3]
    where = standings(cells, {cells[0]: [10.0, 10.01], cells[1]: [10.0, 20.0], cells[2]: [10.0, 20.0, 30.0]}, rule)
    assert [where[cell] for cell in cells] == [Standing.KNOWN, Standing.OPEN, Standing.NOISY]


def test_the_interval_is_students_on_the_logs() -> None:
    """Logs 0 and 2: mean 1, deviation sqrt(2), over sqrt(2) windows 1; t(.975, 1) = 12.706."""
    found = p95_interval([1.0, math.exp(2)])
    assert found.middle == pytest.approx(math.e)
    assert found.high == pytest.approx(math.exp(1 + 12.7062), rel=1e-4)
    assert found.low == pytest.approx(math.exp(1 - 12.7062), rel=1e-4)


def test_one_window_is_never_enough() -> None:
    assert not is_narrow(p95_interval([5.0]), 100.0)


def test_nothing_comes_next_when_every_cell_has_its_say() -> None:
    measured = {cell: [1.0, 1.0] for cell in CELLS}
    assert next_cell(CELLS, measured, Rule(least=2), seed=0) is None
    assert windows_left(CELLS, measured, Rule(least=2)) == 0


@settings(deadline=None)  # the first interval loads scipy
@given(st.lists(st.floats(0.1, 100.0), min_size=0, max_size=40), st.integers(0, 3))
def test_a_campaign_ends_and_goes_on_as_it_would_have(latencies: list[float], seed: int) -> None:
    """However noisy: at most ``most`` windows a cell, and the next cell depends on what was measured alone."""
    rule = Rule(least=2, most=4, harm_milliseconds=50.0)
    measured: dict[Cell, list[float]] = {}
    steps = 0
    while (cell := next_cell(CELLS, measured, rule, seed)) is not None:
        assert cell == next_cell(CELLS, {key: list(value) for key, value in measured.items()}, rule, seed)
        assert not any(cell.covers(other) for other, seen in measured.items() if max(seen) > rule.harm_milliseconds)
        measured.setdefault(cell, []).append(latencies[steps % len(latencies)] if latencies else 1.0)
        steps += 1
    assert steps <= rule.most * len(CELLS)
