"""Fits of the load forecasts: of whom there is enough known of, told as they go, and called off with the operator."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import pytest

from cotide_operator.host_load import refits
from cotide_operator.host_load.forecasters import Forecasters
from cotide_operator.host_load.refits import Refits
from cotide_predictors.host_load.arma import ArmaParameters

FITTED = (0.5, 0.1)


def fake_refit(histories: Any, *, workers: int, progress: Any) -> ArmaParameters:
    hosts = len(histories)
    progress(hosts, hosts)
    return ArmaParameters(np.full((hosts, 1), FITTED[0]), np.full((hosts, 1), FITTED[1]), np.full(hosts, 0.3))


def with_records(records: dict[int, int]) -> Forecasters:
    """Forecasters whose rows have so many records, the newest ones."""
    forecasters = Forecasters(8)
    for slot in range(60):
        values = np.full((4, 8), np.nan)
        for row, count in records.items():
            if slot >= 60 - count:
                values[:, row] = 0.3 + 0.01 * (slot % 3)
        forecasters.record(values)
    return forecasters


def parameters(forecasters: Forecasters) -> list[float]:
    return forecasters._in_force()[0].arma.parameters.ar[:, 0].tolist()


async def test_nodes_with_enough_records_are_fitted_and_the_others_keep_what_they_have(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cotide_predictors.host_load.refit.refit", fake_refit)
    caplog.set_level(logging.INFO)
    forecasters = with_records({0: 60, 1: 47, 3: 48})
    assert await Refits(forecasters, asyncio.Lock(), 60.0).refit() == 2
    assert parameters(forecasters) == [0.5, 0.9, 0.9, 0.5, 0.9, 0.9, 0.9, 0.9]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" in ")[0] for line in lines] == [
        "fitting online-cpu of 2 nodes",
        "fitting online-memory of 2 nodes",
        "the load forecasts of 2 nodes were fitted",
    ]


async def test_a_node_that_got_the_row_meanwhile_is_not_given_its_formers_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    forecasters = with_records({0: 60, 1: 60})

    def slow(histories: Any, **options: Any) -> ArmaParameters:
        forecasters.reset([1])
        forecasters.grow(16)
        return fake_refit(histories, **options)

    monkeypatch.setattr("cotide_predictors.host_load.refit.refit", slow)
    await Refits(forecasters, asyncio.Lock(), 60.0).refit()
    assert parameters(forecasters)[:3] == [0.5, 0.9, 0.9]


async def test_a_worker_that_dies_costs_a_line_and_the_forecasts_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def killed(histories: Any, **options: Any) -> ArmaParameters:
        raise BrokenProcessPool("a process was terminated abruptly")

    monkeypatch.setattr("cotide_predictors.host_load.refit.refit", killed)
    forecasters = with_records({0: 60})
    assert await Refits(forecasters, asyncio.Lock(), 60.0).refit() == 0
    assert "was not fitted" in caplog.text
    assert parameters(forecasters)[0] == 0.9


async def test_nothing_to_fit_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("cotide_predictors.host_load.refit.refit")
    assert await Refits(with_records({0: 10}), asyncio.Lock(), 60.0).refit() == 0


async def test_progress_is_told_and_a_fit_is_called_off_with_the_operator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, ended = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def endless(histories: Any, *, workers: int, progress: Any) -> ArmaParameters:
        try:
            while True:
                progress(1, len(histories))
                loop.call_soon_threadsafe(begun.set)
        except Exception as error:
            ended.append(type(error).__name__)
            raise

    monkeypatch.setattr("cotide_predictors.host_load.refit.refit", endless)
    monkeypatch.setattr(refits, "PROGRESS_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    rebuilt = asyncio.Event()
    rebuilt.set()
    task = asyncio.create_task(Refits(with_records({0: 60}), asyncio.Lock(), 60.0).run(after=rebuilt))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await loop.shutdown_default_executor()  # returns: the thread has ended
    assert ended == ["_CalledOff"]
    assert any("fitting online-cpu: 1 of 1 nodes" in record.getMessage() for record in caplog.records)
