"""The rule of N-sigma and percentile, slot by slot, is the rule over whole series."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_predictors.host_load import peak_rule
from cotide_predictors.host_load.baselines import decayed_percentile, n_sigma
from cotide_predictors.host_load.peak_rule import PeakRule

LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def series(hosts: int = 3, slots: int = 700) -> np.ndarray:
    """Longer than the window of 288 slots; a tenth of the records is missing."""
    generator = np.random.default_rng(4)
    load = np.clip(0.4 + 0.2 * np.sin(np.arange(slots) / 30) + generator.normal(0, 0.1, (hosts, slots)), 0.0, 1.0)
    load[generator.random(load.shape) < 0.1] = np.nan
    return load


def said(rule: PeakRule, load: np.ndarray) -> dict[str, np.ndarray]:
    """Return (n, t) what the rule says before each slot."""
    found = []
    for slot in range(load.shape[1]):
        found.append(rule.forecast())
        rule.record(load[:, slot])
    return {name: np.column_stack([getattr(one, name) for one in found]) for name in LEVELS}


def expected(load: np.ndarray, level: float) -> np.ndarray:
    larger = np.fmax(n_sigma(load, level), decayed_percentile(load, level))
    return np.nan_to_num(np.clip(larger, 0.0, 1.0), nan=0.0)


def test_slot_by_slot_gives_what_the_whole_series_gives() -> None:
    load = series()
    found = said(PeakRule(len(load)), load)
    for name, level in LEVELS.items():
        np.testing.assert_allclose(found[name], expected(load, level), atol=2e-6)
    assert (found["p50"] <= found["p90"]).all()
    assert (found["p90"] <= found["p99"]).all()


def test_weights_that_grow_too_large_are_made_small_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    load = series()
    plain = said(PeakRule(len(load)), load)
    monkeypatch.setattr(peak_rule, "_RESCALE_ABOVE", 1.5)
    rescaled = said(PeakRule(len(load)), load)
    for name in LEVELS:
        np.testing.assert_allclose(rescaled[name], plain[name])


def test_what_comes_later_moves_nothing() -> None:
    load = series()
    changed = load.copy()
    changed[:, 500:] = 0.9 - changed[:, 500:]
    one, other = said(PeakRule(3), load), said(PeakRule(3), changed)
    for name in LEVELS:
        np.testing.assert_array_equal(one[name][:, :501], other[name][:, :501])
        assert np.any(one[name][:, 501:] != other[name][:, 501:])


def test_a_forgotten_host_starts_anew_and_the_others_go_on_as_in_a_rule_that_grew() -> None:
    load = series()
    rule = PeakRule(3)
    said(rule, load[:, :400])
    before = rule.forecast().p90.copy()
    rule.reset([1])
    grown = rule.grown(5)
    assert grown.forecast().p90.tolist() == [before[0], 0.0, before[2], 0.0, 0.0]
    grown.record(np.full(5, 0.5))
    assert grown.forecast().p99[1] == pytest.approx(0.505)  # one record: no spread, the bin's upper edge


def test_a_ceiling_holds_records_and_forecasts() -> None:
    rule = PeakRule(1, ceiling=2.0)
    for value in (9.0, -1.0, np.inf, 1.99):
        rule.record(np.array([value]))
    assert rule.forecast().p99[0] == 2.0
    with pytest.raises(ValueError, match="for 1 hosts"):
        rule.record(np.zeros(2))
