"""Every entry of the lab breaks these when it lets the future in: what is not over can't move a forecast."""

from __future__ import annotations

import numpy as np
import pytest
from run_logs import small_log, with_longer_run

from cotide_predictors.run_time.jobs import RunLog
from cotide_sim.lab.run_times.entries import ENTRIES, RunTimeEntry, RunTimeForecasts
from cotide_sim.lab.series.entries import SERIES_ENTRIES, Network, SeriesForecaster
from cotide_sim.lab.series.task import hourly_change, paths_of, quantiles_of
from cotide_sim.workloads.generated_load import generated_load

CHANGED_JOB = 150
"""Submitted after the first models of a log of 600 jobs over six days, with a day of forecasts before its new end."""


def assert_blind(entry: RunTimeEntry) -> None:
    """Change how a job went; every forecast up to its earlier end keeps its bits, and some later one moves."""
    log = small_log()
    changed, unmoved = with_longer_run(log, CHANGED_JOB)
    before, after = entry.forecasts(log, 0), entry.forecasts(changed, 0)
    for name in ("point", "median", "upper"):
        one, other = getattr(before, name), getattr(after, name)
        if one is not None:
            np.testing.assert_array_equal(one[unmoved], other[unmoved])


@pytest.mark.parametrize("name", ENTRIES)
def test_a_run_time_entry_sees_only_what_was_over(name: str) -> None:
    assert_blind(ENTRIES[name])


def test_the_law_catches_a_run_time_entry_that_peeks() -> None:
    def peeking(log: RunLog, seed: int) -> RunTimeForecasts:
        ahead = np.append(log.run_seconds[1:], 1.0)
        return RunTimeForecasts(ahead, ahead)

    with pytest.raises(AssertionError):
        assert_blind(RunTimeEntry(peeking, "the next job's run time", "-"))


def series() -> np.ndarray:
    return generated_load(1, hosts=6, slots=1060).load


def assert_blind_to_slots(forecaster_of: object, load: np.ndarray) -> None:
    """Change all slots from one on; paths of origins up to it keep their bits."""
    changed = load.copy()
    changed[:, 700:] = 0.9 - changed[:, 700:]
    origins = np.arange(640, 1048, 60)
    found = []
    for values in (load, changed):
        forecaster: SeriesForecaster = forecaster_of()  # type: ignore[operator]  # any maker
        forecaster.fit(values[:, :600].copy())
        found.append(paths_of(forecaster, values, origins))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one[origins <= 700], other[origins <= 700])
        assert np.any(one[origins > 700] != other[origins > 700])


@pytest.mark.parametrize("name", [name for name in SERIES_ENTRIES if not name.startswith(("lstm", "ann"))])
def test_a_series_entry_sees_only_the_slots_before_its_origin(name: str) -> None:
    assert_blind_to_slots(lambda: SERIES_ENTRIES[name].make(0), series())


def test_a_network_sees_only_the_slots_before_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    from cotide_predictors.usage_path import training
    from cotide_predictors.usage_path.attention_network import VARIANTS
    from cotide_predictors.usage_path.path_network import PathNetwork

    def untrained(history: np.ndarray, variant: str, *, seed: int) -> PathNetwork:
        generator = np.random.default_rng(seed)
        return PathNetwork(variant, training.initial_parameters(variant, generator))  # type: ignore[arg-type]  # of the literal

    monkeypatch.setattr(training, "trained", untrained)
    for variant in VARIANTS:
        assert_blind_to_slots(lambda variant=variant: Network(seed=0, variant=variant), series())


def test_the_law_catches_a_series_forecaster_that_peeks() -> None:
    load = series()

    class Peeking:
        """Knows the whole series, which no forecaster of the track is handed."""

        def __init__(self, truth: np.ndarray) -> None:
            self.truth = truth

        def fit(self, history: np.ndarray) -> None:
            """Learn nothing."""

        def forecast(self, history: np.ndarray) -> np.ndarray:
            at = history.shape[1]
            return np.nan_to_num(self.truth[:, at : at + 12])

    changed = load.copy()
    changed[:, 700:] = 0.9 - changed[:, 700:]
    origins = np.arange(640, 1048, 60)
    one, other = (paths_of(Peeking(values), values, origins)[0] for values in (load, changed))
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(one[origins <= 700], other[origins <= 700])


def test_quantiles_of_an_origin_rest_on_origins_that_are_over() -> None:
    generator = np.random.default_rng(2)
    points, truth = generator.random((2, 20, 3, 12))
    changed = truth.copy()
    changed[10:] += 5.0
    scale = hourly_change(generator.random((3, 400)))
    one, other = (quantiles_of(values, points, scale, (0.5, 0.9)) for values in (truth, changed))
    np.testing.assert_array_equal(one[1:11], other[1:11])
    assert np.any(one[11:] != other[11:])


def test_an_idle_series_has_the_unit_of_the_others() -> None:
    """Changes 0.5, 0.5 and 0: the least unit is a fifth of the median 0.5."""
    wave = np.tile([0.0, 0.5, 1.0, 0.5], 50)
    found = hourly_change(np.stack([wave, wave, np.zeros(200)]))
    assert found[2] == pytest.approx(0.2 * found[0])
