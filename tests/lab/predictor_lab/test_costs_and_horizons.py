"""What a forecast costs, and how its error grows with the horizon."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from cotide_cli.main import cotide
from cotide_lab.predictor_lab.cell_run import run_cell
from cotide_lab.predictor_lab.cells import LabOutcome, at_horizon, horizon_of
from cotide_lab.predictor_lab.plan import cells_of, source_of
from cotide_lab.predictor_lab.series.entries import SERIES_ENTRIES, Arma, OnLags
from cotide_lab.predictor_lab.series.held_bytes import held_bytes
from cotide_predictors.host_load.arma import ArmaParameters, LastStateArma
from cotide_sim.workloads.generated_load import generated_load

OWN = """
import numpy as np


class Predictor:
    slots = 0

    def forecast(self, history):
        if history.shape[1] <= self.slots:
            raise ValueError("asked twice")
        self.slots = history.shape[1]
        return np.nan_to_num(history[:, -12:])
"""


def outcome(predictor: str, task: str = "usage-path") -> LabOutcome:
    (wanted,) = cells_of(task, [source_of(None, hosts=4)], [predictor], [0])
    found = run_cell(*wanted)
    assert found.error is None, found.error
    return found


def test_bytes_are_those_of_arrays_and_numbers_each_once() -> None:
    array = np.zeros(100)
    inner = SimpleNamespace(one=array, same=array, view=array[:10], text="four", number=1.5)
    # 100 numbers of 8 bytes, four letters, one number more; neither code nor names of attributes.
    assert held_bytes(SimpleNamespace(inner=inner, again=[inner], none=None, rule=np.mean)) == 800 + 4 + 8
    assert held_bytes({"a": np.zeros(3, np.int8)}) == 1 + 3
    assert held_bytes(np.zeros(50)[:1]) == 400


def test_a_forecaster_that_keeps_more_costs_more() -> None:
    kept = {name: outcome(name).costs["bytes_per_series"] for name in ("last-value", "arma", "host-load")}
    assert kept["last-value"] == 0
    assert 0 < kept["arma"] < kept["host-load"]


def test_what_is_left_of_the_cost_of_a_forecast_where_nothing_is_new() -> None:
    """Our own forecaster records twelve slots at each origin; asked again it has nothing to record."""
    costs = outcome("host-load").costs
    assert 0 < costs["forecast_seconds_per_1000"] < costs["seconds_per_1000"]
    assert costs["fit_seconds"] > 0


def test_a_users_predictor_is_asked_once_for_each_origin(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(OWN)
    costs = outcome(str(own)).costs
    assert "forecast_seconds_per_1000" not in costs
    assert costs["bytes_per_series"] > 0


@pytest.mark.parametrize("figure", ["mase", "mape", "smape", "crps", "pinball_90", "pinball_95", "pinball_99"])
def test_a_figure_is_the_mean_of_its_horizons(figure: str) -> None:
    figures = outcome("last-value").figures
    horizons = [figures[at_horizon(figure, slots)] for slots in range(1, 13)]
    # Nearly: slots without a record are not spread evenly over horizons.
    assert figures[figure] == pytest.approx(np.mean(horizons), rel=1e-3)
    assert horizons[0] < horizons[-1]


def test_the_square_error_of_all_horizons_is_the_mean_of_theirs() -> None:
    figures = outcome("last-value").figures
    squares = [figures[at_horizon("rmse", slots)] ** 2 for slots in range(1, 13)]
    assert figures["rmse"] ** 2 == pytest.approx(np.mean(squares), rel=1e-3)


def test_a_figure_of_a_horizon_is_told_from_one_that_sounds_like_it() -> None:
    assert horizon_of(at_horizon("pinball_90", 12)) == ("pinball_90", 12)
    assert [horizon_of(name) for name in ("nodes_at_overload", "slack_at_violations", "mase", "pinball_90")] == [
        None
    ] * 4


def test_the_page_folds_horizons_away_and_the_table_leaves_them_out(tmp_path: Path) -> None:
    journal, page = str(tmp_path / "journal"), tmp_path / "page.html"
    asked = ["lab", "run", "--task", "usage-path", "--hosts", "3", "--predictor", "last-value,yesterday"]
    ran = CliRunner().invoke(cotide, [*asked, "--journal", journal, "--workers", "1"], standalone_mode=False)
    assert (ran.exception, ran.return_value) == (None, 0)
    shown = CliRunner().invoke(
        cotide, ["lab", "report", "--journal", journal, "--page", str(page)], standalone_mode=False
    )
    assert "bytes a series" in shown.stdout
    assert "_at_" not in shown.stdout.splitlines()[1]
    text = page.read_text()
    main, folded = text.split("<details>")[0], re.findall("<details>(.*?)</details>", text, re.DOTALL)
    assert "_at_1" not in main
    assert "bytes_per_series" in main
    assert len(folded) == 1
    assert "pinball_99 by slots ahead" in folded[0]


def test_arma_of_each_series_follows_series_that_are_unlike() -> None:
    """One wanders slowly, one jumps to and fro from slot to slot: a common fit is neither's."""
    generator = np.random.default_rng(1)
    noise = generator.normal(0, 1, (2, 1200))
    load = np.zeros((2, 1200))
    for slot in range(1, 1200):
        load[:, slot] = np.array([0.95, -0.8]) * load[:, slot - 1] + noise[:, slot]
    load += 20
    errors = {}
    for each in (False, True):
        forecaster = Arma(seed=0, each=each)
        forecaster.fit(load[:, :600])
        found = [forecaster.forecast(load[:, :origin])[:, 0] for origin in range(600, 1199)]
        errors[each] = np.abs(np.array(found) - load[:, 600:1199].T).mean(axis=0)
    assert errors[True][1] < 0.8 * errors[False][1]
    assert errors[True].sum() < errors[False].sum()


def test_a_series_that_cannot_be_fitted_has_the_defaults() -> None:
    load = generated_load(1, hosts=3, slots=700).load.copy()
    load[1] = 0.5
    forecaster = SERIES_ENTRIES["arma-each"].make(0)
    forecaster.fit(load)
    assert np.allclose(forecaster.forecast(load)[1], 0.5)


def test_arima_sums_the_differences_to_come_as_by_hand() -> None:
    """AR .5 and MA 0 on differences: after 1, 2, 4 the last step is 2, and 1, .5, .25 ... come after it."""
    forecaster = SERIES_ENTRIES["arima"].make(0)
    history = np.array([[1.0, 2.0, 4.0]])
    forecaster._model = LastStateArma(ArmaParameters(np.array([[0.5]]), np.array([[0.0]]), np.zeros(1)))  # type: ignore[attr-defined]  # fixed
    steps = 2.0 * 0.5 ** np.arange(1, 13)
    np.testing.assert_allclose(forecaster.forecast(history)[0], 4.0 + np.cumsum(steps))


def test_arima_is_the_model_of_statsmodels() -> None:
    from statsmodels.tsa.arima.model import ARIMA

    load = 50.0 + np.cumsum(np.random.default_rng(2).normal(0, 1, 700))
    forecaster = SERIES_ENTRIES["arima"].make(0)
    forecaster.fit(load[None, :600])
    fitted = forecaster._model.parameters  # type: ignore[attr-defined]  # what was found
    model = ARIMA(load, order=(1, 1, 1))
    found = model.smooth([fitted.ar[0, 0], fitted.ma[0, 0], 1.0])
    np.testing.assert_allclose(forecaster.forecast(load[None])[0], found.forecast(12), rtol=1e-6)


@pytest.mark.parametrize(("name", "fits"), [("ridge", 1), ("boosting", 1), ("ridge-daily", 3), ("boosting-daily", 3)])
def test_a_schedule_of_fits_is_the_same_for_ridge_and_trees(
    name: str, fits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two days are asked about: fitted once, or once before and once after each day."""
    counted: list[int] = []
    monkeypatch.setattr(OnLags, "_learn", lambda *_: counted.append(1))
    monkeypatch.setattr(OnLags, "_answer", lambda _self, inputs: np.zeros((len(inputs), 12)))
    load = generated_load(1, hosts=2, slots=1200).load
    forecaster = SERIES_ENTRIES[name].make(0)
    forecaster.fit(load[:, :600])
    for origin in range(600, 600 + 2 * 288 + 1, 12):
        forecaster.forecast(load[:, :origin])
    assert len(counted) == fits


def test_the_highest_record_is_a_forecast_that_holds_every_peak() -> None:
    found = SERIES_ENTRIES["highest"].make(0).forecast(np.array([[0.2, np.nan, 0.9, 0.1]]))
    assert found.tolist() == [[0.9] * 12]
