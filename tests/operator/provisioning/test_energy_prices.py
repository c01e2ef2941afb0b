"""Price and carbon of energy, read live: what is told is used, what can't be used changes nothing and is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from aiohttp import web
from prometheus_stand_in import query_of, stand_in, vector
from pydantic import ValidationError

from cotide_core.errors import InputError
from cotide_core.limits import MAX_PRICES, PRICES_BYTES
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.config.provisioning_settings import EnergyPriceSettings, ProvisioningSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.provisioning import energy_prices
from cotide_operator.provisioning.energy_prices import EnergyPrices

HOUR: Final = 3600.0
ORIGIN: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
BOTH: Final = "time,price_per_kilowatt_hour,carbon_grams_per_kilowatt_hour\n"
DAY: Final = f"{BOTH}2026-01-01T00:00:00Z,0.2,400\n2026-01-01T01:00:00Z,-0.05,100\n2026-01-01T02:00:00Z,0.3,500\n"


class Scene:
    """Prices that are read when a test says so; the clock stands where it says."""

    def __init__(self, source: str = "", **asked: Any) -> None:
        machine = {"name": "a", "cpu": "4", "memory": "8Gi", "count": 1}
        section = {"machineTypes": [machine], "pricePerKilowattHour": 0.1, "carbonPricePerTonne": 50}
        settings = ProvisioningSettings.model_validate({**section, "energyPrices": asked} if asked else section)
        prometheus = PrometheusSourceSettings(url=source) if source else None
        self.now, self.wall, self.metrics = ORIGIN, 0.0, Metrics()
        self.said: list[str] = []
        self.prices = EnergyPrices(
            settings, prometheus, lambda: self.now, self.metrics,
            lambda what, why: self.said.append(f"{what}: {why}"),
            monotonic=lambda: self.wall,
        )  # fmt: skip

    def at(self, *hours: float) -> list[tuple[float, float]]:
        price, carbon = self.prices.at(ORIGIN + HOUR * np.array(hours))
        return list(zip(price.tolist(), carbon.tolist(), strict=True))

    @property
    def is_stale(self) -> bool:
        return bool(self.metrics.provisioning_prices_stale._value.get())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prices.csv"


async def test_without_a_source_the_constants_hold_and_are_never_old() -> None:
    scene = Scene()
    scene.wall = 1e9
    await scene.prices.read()
    assert scene.at(0, 5) == [(0.1, 0.0), (0.1, 0.0)]
    assert (scene.said, scene.is_stale) == ([], False)


async def test_each_row_of_a_file_holds_until_the_next_one(file: Path) -> None:
    file.write_text(DAY)
    scene = Scene(file=file)
    assert scene.at(0) == [(0.1, 0.0)], "nothing was read yet"
    await scene.prices.read()
    assert scene.at(-1, 0, 0.99, 1, 2, 50) == [
        (0.2, 400), (0.2, 400), (0.2, 400), (-0.05, 100), (0.3, 500), (0.3, 500),
    ]  # fmt: skip
    # 0.2, and 400 g at 50 a tonne.
    assert scene.prices.of_steps(ORIGIN)[0] == pytest.approx(0.22)
    assert scene.metrics.provisioning_energy_price._value.get() == 0.2
    assert scene.metrics.provisioning_carbon_intensity._value.get() == 400.0


async def test_what_a_file_does_not_tell_is_the_constant(file: Path) -> None:
    file.write_text("time,price_per_kilowatt_hour\n2026-01-01T00:00:00Z,0.2\n")
    scene = Scene(file=file)
    await scene.prices.read()
    assert scene.at(0, 99) == [(0.2, 0.0), (0.2, 0.0)]
    scene.now += 1000 * HOUR
    scene.prices.show()
    assert not scene.is_stale, "a tariff of one row holds until somebody changes it"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: needs the columns time, and price"),
        ("time,price\n2026-01-01T00:00:00Z,1\n", ":1: needs the columns"),
        (BOTH, "has no row"),
        (f"{BOTH}yesterday,1,1\n", ":2: time: "),
        (f"{BOTH}2026-01-01T00:00:00Z,nan,1\n", ":2: price_per_kilowatt_hour: is not a number from -100"),
        (f"{BOTH}2026-01-01T00:00:00Z,,1\n", ":2: price_per_kilowatt_hour"),
        (f"{BOTH}2026-01-01T00:00:00Z,1\n", ":2: carbon_grams_per_kilowatt_hour"),
        (f"{BOTH}2026-01-01T00:00:00Z,1e7,1\n", ":2: price_per_kilowatt_hour"),
        (f"{BOTH}2026-01-01T00:00:00Z,1,-1\n", ":2: carbon_grams_per_kilowatt_hour: is not a number from 0"),
        (f"{BOTH}2026-01-01T00:00:00Z,{'0' * 40}1,1\n", ":2: price_per_kilowatt_hour"),
        (f"{BOTH}2026-01-01T00:00:00Z,0,081,310\n", ":2: has more cells than the header's 3"),
        (f"time,{energy_prices.PRICE},{energy_prices.PRICE}\n2026-01-01T00:00:00Z,1,2\n", "more than once"),
        (f"{DAY}2026-01-01T02:00:00Z,1,1\n", ":5: time: is not later than the row before"),
        (BOTH + "x" * PRICES_BYTES, f"more than {PRICES_BYTES} bytes"),
        (None, "can't be read: No such file"),
    ],
)
async def test_a_file_that_cannot_be_used_is_told_and_the_last_good_values_stay(
    file: Path, text: str | None, words: str
) -> None:
    file.write_text(DAY)
    scene = Scene(file=file)
    await scene.prices.read()
    file.unlink()
    if text is not None:
        file.write_text(text)
    await scene.prices.read()
    assert scene.at(0) == [(0.2, 400)]
    (said,) = scene.said
    assert words in said
    assert str(file) in said
    assert "\n" not in said


async def test_a_file_that_is_written_while_it_is_read_is_told_and_the_last_good_values_stay(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(DAY)
    scene = Scene(file=file)
    await scene.prices.read()
    states = iter(((1, 40), (1, 60)))
    monkeypatch.setattr(energy_prices, "_state_of", lambda _: next(states))
    file.write_text(DAY.replace(",0.3,500\n", ",0."))
    await scene.prices.read()
    assert "was written during the read" in scene.said[0]
    assert scene.at(2) == [(0.3, 500)]


async def test_a_file_has_no_more_rows_than_its_bound(file: Path) -> None:
    times = [f"2026-01-01T{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}Z,1\n" for at in range(MAX_PRICES + 1)]
    file.write_text("time,price_per_kilowatt_hour\n" + "".join(times))
    scene = Scene(file=file)
    await scene.prices.read()
    assert f"more than {MAX_PRICES} rows" in scene.said[0]


async def test_values_that_can_not_be_read_again_are_said_to_be_old_and_hold_on(file: Path) -> None:
    file.write_text(DAY)
    scene = Scene(file=file, intervalSeconds=60, staleAfterSeconds=600)
    await scene.prices.read()
    file.unlink()
    scene.wall = 600.0
    await scene.prices.read()
    assert not scene.is_stale
    scene.wall = 661.0
    await scene.prices.read()
    assert scene.is_stale
    assert scene.said[-1] == ("prices of energy are old: no valid prices were read for 661 s: the last good ones hold")
    assert scene.at(0) == [(0.2, 400)]
    file.write_text(DAY)
    await scene.prices.read()
    assert not scene.is_stale


async def test_a_file_whose_rows_have_all_passed_is_old(file: Path) -> None:
    file.write_text(DAY)
    scene = Scene(file=file)
    scene.now = ORIGIN + 3 * HOUR - 1  # the last row holds as long as the one before it
    await scene.prices.read()
    assert not scene.is_stale
    scene.now += 1
    await scene.prices.read()
    assert scene.is_stale
    assert "has no row for the present" in scene.said[0]
    assert scene.at(3) == [(0.3, 500)]


Answers = dict[str, list[str]]


@pytest.fixture
async def source() -> AsyncIterator[tuple[str, Answers]]:
    """A Prometheus that answers as a test says, by query."""
    answers: Answers = {}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(vector(*(({}, value) for value in answers[await query_of(request)])))

    async with stand_in(answer) as url:
        yield url, answers


async def test_answers_of_a_prometheus_hold_for_all_steps_until_the_next_ones(source: tuple[str, Answers]) -> None:
    url, answers = source
    answers |= {"money": ["0.25"], "grams": ["320"]}
    scene = Scene(url, priceQuery="money", carbonQuery="grams")
    await scene.prices.read()
    assert scene.at(0, 24) == [(0.25, 320), (0.25, 320)]
    answers |= {"money": ["0.5"]}
    scene.now += HOUR
    await scene.prices.read()
    assert scene.at(0, 24) == [(0.5, 320), (0.5, 320)]


@pytest.mark.parametrize(
    ("values", "words"),
    [([], "has 0 values"), (["1", "2"], "has 2 values"), (["NaN"], "not a number"), (["-7"], "not a number from 0")],
)
async def test_an_answer_that_cannot_be_used_is_told_with_its_key_and_changes_neither_value(
    source: tuple[str, Answers], values: list[str], words: str
) -> None:
    url, answers = source
    answers |= {"money": ["0.25"], "grams": ["320"]}
    scene = Scene(url, priceQuery="money", carbonQuery="grams")
    await scene.prices.read()
    answers |= {"money": ["0.5"], "grams": values}
    await scene.prices.read()
    assert scene.at(0) == [(0.25, 320)]
    assert words in scene.said[0]
    assert "provisioning.energyPrices.carbonQuery" in scene.said[0]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"intervalSeconds": 60}, "either a file"),
        ({"file": "x", "priceQuery": "y"}, "either a file"),
        ({"file": "x", "intervalSeconds": 600, "staleAfterSeconds": 60}, "every value would be old"),
        ({"priceQuery": "x" * 5000}, "at most 4096"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Scene(**asked)


async def test_prices_are_read_again_after_each_interval_whatever_went_wrong(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            file.write_text(DAY)
        elif len(slept) == 2:
            monkeypatch.setattr(energy_prices, "read_prices", None)  # something that nobody thought of
        else:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    scene = Scene(file=file, intervalSeconds=60)
    with pytest.raises(asyncio.CancelledError):
        await scene.prices.run()
    assert slept == [60.0, 60.0, 60.0]
    assert len(scene.said) == 1, "there was no file at first"
    assert scene.at(0) == [(0.2, 400)]


async def test_a_name_that_no_file_can_have_is_one_sentence() -> None:
    asked = EnergyPriceSettings(file=Path("prices\0.csv"))
    with pytest.raises(InputError, match="can't be read: embedded null byte"):
        await energy_prices.read_prices(asked, None, 0.0)
