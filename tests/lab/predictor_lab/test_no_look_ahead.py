"""Every entry of the lab breaks these when it lets the future in: what is not over can't move a forecast.

For each entry two tests: one that it keeps the law, one that the law breaks where this very entry is told the future.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from run_logs import DAY_SECONDS, small_log, with_longer_run

from cotide_lab.predictor_lab.run_times.entries import ENTRIES, RunTimeEntry, RunTimeForecasts
from cotide_lab.predictor_lab.series.entries import SERIES_ENTRIES, Network, SeriesForecaster
from cotide_lab.predictor_lab.series.pretrained import ADAPTERS
from cotide_lab.predictor_lab.series.task import hourly_change, paths_of, quantiles_of
from cotide_lab.predictor_lab.user_predictor import run_time_forecasts
from cotide_lab.predictors.run_time.sequential.catalogue import SEQUENTIAL
from cotide_lab.predictors.usage_path.attention_network import VARIANTS
from cotide_lab.predictors.usage_path.inputs import DAY_SLOTS, WINDOW
from cotide_lab.trace_replay.user_policy import PolicySource
from cotide_predictors.run_time.habits.live_catalogue import HABITS, LIVE_PREDICTORS
from cotide_predictors.run_time.jobs import RunLog
from cotide_sim.workloads.generated_load import generated_load

CHANGED_JOB = 150
"""Submitted after the first models of a log of 600 jobs over six days, with a day of forecasts before its new end."""
WAITED_DAYS = 1.2
"""Until its earlier end: some hundred forecasts and a rebuild of each model, none of which may know of it."""
LEARNS_NOTHING = {"user-estimate"}
OWN = """
class Predictor:
    def __init__(self):
        self.last = {}

    def submitted(self, job):
        return self.last.get(job.user, 3600.0)

    def finished(self, job, run_seconds):
        self.last[job.user] = run_seconds
"""


def of_a_users_file(log: RunLog, seed: int) -> RunTimeForecasts:
    return run_time_forecasts(PolicySource("mine", "mine.py", "Predictor", OWN), log)


JUDGED = {**ENTRIES, "a user's file": RunTimeEntry(of_a_users_file, "the user's last run", "-")}


def assert_blind(entry: RunTimeEntry) -> None:
    """Change how a job went; every forecast up to its earlier end keeps its bits."""
    log = small_log()
    finish = log.finish_seconds.copy()
    finish[CHANGED_JOB] += WAITED_DAYS * DAY_SECONDS
    log = replace(log, finish_seconds=finish)
    changed, unmoved = with_longer_run(log, CHANGED_JOB)
    before, after = entry.forecasts(log, 0), entry.forecasts(changed, 0)
    for name in ("point", "median", "upper"):
        one, other = getattr(before, name), getattr(after, name)
        if one is not None:
            np.testing.assert_array_equal(one[unmoved], other[unmoved])


@pytest.mark.parametrize("name", JUDGED)
def test_a_run_time_entry_sees_only_what_was_over(name: str) -> None:
    assert_blind(JUDGED[name])


@pytest.mark.parametrize("name", [name for name in JUDGED if name not in LEARNS_NOTHING])
def test_the_law_breaks_where_a_run_time_entry_is_told_of_a_run_before_it_is_over(name: str) -> None:
    """Completions are told a second after the submission, with the run times that they will have."""

    def known_at_once(log: RunLog, seed: int) -> RunTimeForecasts:
        return JUDGED[name].forecasts(replace(log, finish_seconds=log.jobs.submit_seconds + 1.0), seed)

    with pytest.raises(AssertionError):
        assert_blind(RunTimeEntry(known_at_once, "knows runs that go on", "-"))


def test_whatever_can_be_chosen_for_a_queue_is_an_entry() -> None:
    """In a replay (``--runtime``) and live (``runTimePredictor``); the live mixture has a name of its own."""
    live = {"live-mixture" if name == HABITS else f"live-{name}" for name in LIVE_PREDICTORS}
    assert {*SEQUENTIAL, *live} <= set(ENTRIES)


def test_the_law_catches_a_run_time_entry_that_peeks() -> None:
    def peeking(log: RunLog, seed: int) -> RunTimeForecasts:
        ahead = np.append(log.run_seconds[1:], 1.0)
        return RunTimeForecasts(ahead, ahead)

    with pytest.raises(AssertionError):
        assert_blind(RunTimeEntry(peeking, "the next job's run time", "-"))


def series() -> np.ndarray:
    return generated_load(1, hosts=6, slots=1060).load


Maker = Callable[[np.ndarray], SeriesForecaster]
"""Makes a forecaster; handed the whole series, which an honest one does not look at."""


def assert_blind_to_slots(forecaster_of: Maker, load: np.ndarray) -> None:
    """Change all slots from one on; paths of origins up to it keep their bits, and those of later ones don't."""
    changed = load.copy()
    changed[:, 700:] = 0.9 - changed[:, 700:]
    origins = np.arange(640, 1048, 60)
    found = []
    for values in (load, changed):
        forecaster = forecaster_of(values)
        forecaster.fit(values[:, :600].copy())
        found.append(paths_of(forecaster, values, origins))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one[origins <= 700], other[origins <= 700])
        assert np.any(one[origins > 700] != other[origins > 700])


class LetIn:
    """A forecaster that is handed a day and an hour beyond the origin."""

    def __init__(self, forecaster: SeriesForecaster, truth: np.ndarray) -> None:
        self._forecaster, self._truth = forecaster, truth
        self.fit = forecaster.fit
        peak = getattr(forecaster, "peak", None)
        if peak is not None:
            self.peak = lambda history: peak(self._more(history))

    def forecast(self, history: np.ndarray) -> np.ndarray:
        return self._forecaster.forecast(self._more(history))

    def _more(self, history: np.ndarray) -> np.ndarray:
        return self._truth[:, : history.shape[1] + DAY_SLOTS + WINDOW].copy()


@pytest.fixture
def _untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give networks random weights in place of training."""
    from cotide_lab.predictors.usage_path import training
    from cotide_lab.predictors.usage_path.path_network import PathNetwork

    def untrained(history: np.ndarray, variant: str, *, seed: int, steps: int) -> PathNetwork:
        generator = np.random.default_rng(seed)
        return PathNetwork(variant, training.initial_parameters(variant, generator))  # type: ignore[arg-type]  # of the literal

    monkeypatch.setattr(training, "trained", untrained)


UNTRAINED = [name for name in SERIES_ENTRIES if name not in ADAPTERS]
"""Pretrained models have the same two tests beside their stand-ins, in test_pretrained."""


@pytest.mark.usefixtures("_untrained")
@pytest.mark.parametrize("name", UNTRAINED)
def test_a_series_entry_sees_only_the_slots_before_its_origin(name: str) -> None:
    assert_blind_to_slots(lambda _: SERIES_ENTRIES[name].make(0), series())


@pytest.mark.usefixtures("_untrained")
@pytest.mark.parametrize("name", UNTRAINED)
def test_the_law_breaks_where_a_series_entry_is_handed_more(name: str) -> None:
    with pytest.raises(AssertionError):
        assert_blind_to_slots(lambda truth: LetIn(SERIES_ENTRIES[name].make(0), truth), series())


def test_every_variant_of_the_network_is_an_entry() -> None:
    assert {name for name in SERIES_ENTRIES if isinstance(SERIES_ENTRIES[name].make(0), Network)} == set(VARIANTS)


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
