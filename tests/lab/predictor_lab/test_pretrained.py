"""Pretrained models: loaded from a folder of this machine, asked as their libraries are, and not run without weights.

The libraries are stood in for by tiny random models that take and answer what the real ones do."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cotide_cli.main import cotide
from cotide_core.errors import InputError
from cotide_lab.predictor_lab.cell_run import run_cell
from cotide_lab.predictor_lab.plan import cells_of, source_of
from cotide_lab.predictor_lab.series.entries import SERIES_ENTRIES
from cotide_lab.predictor_lab.series.pretrained import ADAPTERS, CONTEXT_SLOTS, Pretrained, digest_of, parse_weights
from cotide_lab.predictor_lab.series.task import paths_of
from cotide_lab.predictors.usage_path.inputs import WINDOW, filled_forward
from cotide_sim.workloads.generated_load import generated_load

EVERY = pytest.mark.parametrize("name", ADAPTERS)


class Tiny:
    """Random weights from a folder: the last four slots to the quantiles 0.1 to 0.9 of each slot, rising."""

    def __init__(self, folder: str) -> None:
        rows = np.frombuffer((Path(folder) / "model.safetensors").read_bytes(), np.float64).reshape(4, WINDOW)
        self._weights = np.abs(rows) / np.abs(rows).sum(axis=0)

    def quantiles(self, series: np.ndarray) -> np.ndarray:
        """Return (slots, 9)."""
        middle = np.asarray(series, np.float64).reshape(-1)[-4:] @ self._weights
        return middle[:, None] * np.linspace(0.9, 1.1, 9)[None, :]


class Tensor(np.ndarray):
    """As much of a tensor as crosses the seam."""


def as_tensor(rows: Any, dtype: Any = None) -> Tensor:
    return np.asarray(rows, dtype=np.float32).view(Tensor)


class ChronosStandIn:
    """`chronos.BaseChronosPipeline`."""

    def __init__(self, folder: str, device_map: str) -> None:
        assert device_map == "cpu"
        self._tiny = Tiny(folder)

    @classmethod
    def from_pretrained(cls, folder: str, device_map: str) -> ChronosStandIn:
        return cls(folder, device_map)

    def predict_quantiles(
        self, inputs: list[Tensor], prediction_length: int, quantile_levels: list[float]
    ) -> tuple[Any, Any]:
        assert all(isinstance(one, Tensor) and one.ndim == 1 and len(one) <= CONTEXT_SLOTS for one in inputs)
        columns = [round(10 * level) - 1 for level in quantile_levels]
        found = np.stack([self._tiny.quantiles(one)[:prediction_length, columns] for one in inputs])
        return as_tensor(found), as_tensor(found.mean(axis=2))


class Chronos2StandIn(ChronosStandIn):
    """Chronos-2 answers with a list of (variates, slots, quantiles)."""

    def predict_quantiles(
        self, inputs: list[Tensor], prediction_length: int, quantile_levels: list[float]
    ) -> tuple[Any, Any]:
        found, means = super().predict_quantiles(inputs, prediction_length, quantile_levels)
        return [one[None] for one in found], [mean[None] for mean in means]


class TirexStandIn:
    """What `tirex2.load_model` returns."""

    def __init__(self, folder: str, device: str) -> None:
        assert device == "cpu"
        self._tiny = Tiny(folder)

    def forecast(self, series: list[Any], prediction_length: int, output_type: str) -> list[np.ndarray]:
        assert output_type == "numpy"
        assert all(one.target.shape[0] == 1 and one.past_covariates is None for one in series)
        return [self._tiny.quantiles(one.target).T[None, :, :prediction_length] for one in series]


class TimesfmStandIn:
    """`timesfm.TimesFM_2p5_200M_torch`; decodes 128 slots at once."""

    def __init__(self, folder: str) -> None:
        self._tiny = Tiny(folder)
        self._config: Any = None

    @classmethod
    def from_pretrained(cls, folder: str, local_files_only: bool, torch_compile: bool) -> TimesfmStandIn:
        assert (local_files_only, torch_compile) == (True, False)
        return cls(folder)

    def compile(self, config: Any) -> None:
        self._config = config

    def forecast(self, horizon: int, inputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        assert self._config.max_context >= len(inputs[0])
        found = np.stack([self._tiny.quantiles(one) for one in inputs])
        whole = np.concatenate([found.mean(axis=2, keepdims=True), found], axis=2)[:, :horizon]
        return found[:, :horizon, 4], whole


def module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(content)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Weights of a tiny model."""
    (tmp_path / "config.json").write_text("{}")
    weights = np.random.default_rng(1).normal(size=(4, WINDOW))
    (tmp_path / "model.safetensors").write_bytes(weights.tobytes())
    return tmp_path


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries, installed."""
    for one in (
        module("torch", as_tensor=as_tensor, float32="float32"),
        module("chronos", BaseChronosPipeline=ChronosStandIn),
        module("tirex2", load_model=TirexStandIn, TimeseriesType=SimpleNamespace),
        module("timesfm", TimesFM_2p5_200M_torch=TimesfmStandIn, ForecastConfig=SimpleNamespace),
    ):
        monkeypatch.setitem(sys.modules, one.__name__, one)


def series() -> np.ndarray:
    load = generated_load(1, hosts=5, slots=1060).load
    load[2, 640:650] = np.nan
    return load


def made(name: str, folder: Path | None) -> Pretrained:
    found = Pretrained(name)
    found.folder = folder
    return found


@EVERY
@pytest.mark.usefixtures("libraries")
def test_a_model_answers_medians_and_the_highest_p90(name: str, folder: Path) -> None:
    load = series()
    model, tiny = made(name, folder), Tiny(str(folder))
    model.fit(load[:, :600])
    path, peak = model.forecast(load[:, :640]), model.peak(load[:, :640])
    expected = np.stack([tiny.quantiles(row) for row in filled_forward(load[:, :640])])
    np.testing.assert_allclose(path, expected[:, :, 4], rtol=1e-5)
    np.testing.assert_allclose(peak, expected[:, :, 8].max(axis=1), rtol=1e-5)


@pytest.mark.usefixtures("libraries")
def test_chronos_2_answers_a_series_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made("chronos", folder)
    first.fit(series())
    monkeypatch.setitem(sys.modules, "chronos", module("chronos", BaseChronosPipeline=Chronos2StandIn))
    second = made("chronos", folder)
    second.fit(series())
    np.testing.assert_array_equal(first.forecast(series()[:, :700]), second.forecast(series()[:, :700]))


@EVERY
@pytest.mark.usefixtures("libraries")
def test_a_model_sees_only_the_slots_before_its_origin(name: str, folder: Path) -> None:
    """The law of test_no_look_ahead; and it breaks where an hour more is handed over."""
    load, changed = series(), series()
    changed[:, 700:] = 0.9 - changed[:, 700:]
    origins = np.array([640, 700, 760])
    found = []
    for values in (load, changed):
        model = made(name, folder)
        model.fit(values[:, :600])
        found.append(paths_of(model, values, origins)[0])
        more = model.forecast(values[:, : 700 + WINDOW])
        found.append(more)
    honest, ahead, honest_changed, ahead_changed = found
    np.testing.assert_array_equal(honest[:2], honest_changed[:2])
    assert np.any(honest[2] != honest_changed[2])
    assert np.any(ahead != ahead_changed)


@EVERY
def test_without_weights_or_its_library_a_model_is_not_run_and_the_table_says_why(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = cells_of("host-peak", [source_of(None, hosts=2)], [name], [0])
    assert run_cell(*task).error == f"--weights: not run: no weights of {name} were given"
    for library in ("torch", "chronos", "tirex2", "timesfm"):
        monkeypatch.setitem(sys.modules, library, None)
    (task,) = cells_of("host-peak", [source_of(None, hosts=2, weights={name: folder})], [name], [0])
    assert f"not run: {name} needs" in (run_cell(*task).error or "")


@pytest.mark.usefixtures("libraries")
def test_all_means_all_that_can_run_and_a_cell_is_known_by_its_weights(folder: Path) -> None:
    without = cells_of("usage-path", [source_of(None, hosts=2)], ["all"], [0])
    assert {task[0].predictor for task in without} == set(SERIES_ENTRIES) - set(ADAPTERS)
    (one,) = cells_of("usage-path", [source_of(None, hosts=2, weights={"timesfm": folder})], ["timesfm"], [0])
    assert one[0].predictor_sha256 == digest_of(folder)
    assert run_cell(*one).error is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [("chronos", "is not NAME=FOLDER"), ("gpt=/tmp", "is not NAME=FOLDER"), ("tirex=/nowhere", "config.json can't be")],
)
def test_a_folder_without_weights_is_refused_before_anything_runs(given: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_weights((given,))


def test_pickled_weights_are_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.ckpt").write_bytes(b"a pickle")
    with pytest.raises(InputError, match=r"model\.safetensors can't be read"):
        parse_weights((f"tirex={tmp_path}",))


def test_weights_are_for_series_only(tmp_path: Path) -> None:
    found = CliRunner().invoke(
        cotide, ["lab", "run", "--task", "run-time", "--weights", "tirex=x", "--journal", str(tmp_path / "j")]
    )
    assert isinstance(found.exception, InputError)
    assert "--weights" in str(found.exception)
