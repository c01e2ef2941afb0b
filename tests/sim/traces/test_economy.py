"""Readers of prices, carbon, transfer costs and power curves."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from cotide_core.errors import InputError
from cotide_sim.traces.economy.hourly import CARBON, PRICES, read_carbon, read_prices
from cotide_sim.traces.economy.specpower import SERVERS, sized
from cotide_sim.traces.economy.transfer_costs import FILE as TRANSFERS
from cotide_sim.traces.economy.transfer_costs import read_transfer_costs
from cotide_sim.traces.load.nasa_http import FILE as NASA
from cotide_sim.traces.load.nasa_http import read_nasa_http

DATA = Path(os.environ.get("COTIDE_DATA") or Path(__file__).parents[4] / "shared" / "data")


def put(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def test_prices_keep_their_sign_and_short_gaps_are_filled(tmp_path):
    rows = ["utc,DE,FR", "2022-01-01 00:00,10,1", "2022-01-01 01:00,,2", "2022-01-01 03:00,-20,3"]
    put(tmp_path, PRICES, "\n".join(rows) + "\n")
    german, french = read_prices(tmp_path, ("DE", "FR"))
    assert german.window(0, 4).tolist() == [10, 0, -10, -20]
    assert french.window(0, 4).tolist() == [1, 2, 2.5, 3]
    with pytest.raises(InputError, match="lies outside"):
        german.window(2, 4)


def test_a_market_without_prices_for_more_than_a_day_is_told(tmp_path):
    rows = [f"2022-01-{1 + hour // 24:02} {hour % 24:02}:00,{'' if 5 < hour < 40 else 1}" for hour in range(48)]
    put(tmp_path, PRICES, "utc,DE\n" + "\n".join(rows) + "\n")
    (series,) = read_prices(tmp_path, ("DE",))
    with pytest.raises(InputError, match="more than a day"):
        series.window(0, 48)


def test_quarter_hours_of_carbon_are_averaged(tmp_path):
    rows = [f"2022-01-01 00:{minute:02}:00,{grams}" for minute, grams in ((0, 100), (15, 200), (30, 300), (45, 400))]
    put(tmp_path, CARBON.format(country="DE"), "timestamp,carbon_intensity\n" + "\n".join(rows) + "\n")
    assert read_carbon(tmp_path, "DE").window(0, 1).tolist() == [250]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("utc,DE\nyesterday,1\n", "is not a time"),
        ("utc,DE\n2022-01-01 00:00,dear\n", "is not a number"),
        ("utc\n", "lacks column"),
    ],
)
def test_a_broken_row_is_named(tmp_path, text, words):
    put(tmp_path, PRICES, text)
    with pytest.raises(InputError, match=words):
        read_prices(tmp_path, ("DE",))


def test_transfers_cost_what_the_list_says(tmp_path):
    put(tmp_path, TRANSFERS, ",a,b\na,0,0.02\nb,0.05,0\n")
    assert read_transfer_costs(tmp_path, ("b", "a")).tolist() == [[0, 0.05], [0.02, 0]]
    put(tmp_path, TRANSFERS, ",a,b\na,0,0.02\n")
    with pytest.raises(InputError, match="lacks the region 'b'"):
        read_transfer_costs(tmp_path, ("a", "b"))


def test_requests_are_whole_numbers_a_second(tmp_path):
    put(tmp_path, NASA, "1\n0\n3\n")
    assert read_nasa_http(tmp_path).tolist() == [1, 0, 3]
    put(tmp_path, NASA, "1\n-2\n")
    with pytest.raises(InputError, match="no whole number"):
        read_nasa_http(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_nasa_http(tmp_path / "nowhere")


def test_published_curves_rise_and_are_sized_by_their_operations():
    for server in SERVERS:
        assert len(server.curve.watts) == 11
        assert (np.diff(server.curve.watts) > 0).all()
    # Half as many operations as the first server: its own curve at half height.
    assert sized(SERVERS[0], 0.5).watts[-1] == pytest.approx(123.5)


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no traces at {DATA}; name their directory in COTIDE_DATA")
def test_the_real_files_are_read_whole():
    german, texan = read_prices(DATA, ("DE-LU_EUR", "US-TEX-ERCO_USD"))
    assert len(german.values) == 43_848
    assert np.nanmin(german.values) < 0, "there were hours in which power was given away with money"
    assert texan.window(20_000, 24).shape == (24,)
    assert len(read_carbon(DATA, "FR").values) >= 8700
    assert read_nasa_http(DATA).sum() == pytest.approx(1_891_710, rel=0.01), "July's part of 3,461,610 requests"
    assert read_transfer_costs(DATA, ("us-east1", "us-west1"))[0, 1] == 0.02
