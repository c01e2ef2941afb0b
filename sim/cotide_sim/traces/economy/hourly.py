"""Hourly prices of electricity by market, and the carbon intensity of a grid.

Called by the capacity and placement experiments. First step of the flow: text to arrays. Invariants: one value for each
hour from the first to the last. A gap of up to a day is filled from its neighbours; a longer one is an error for
callers that read it. Prices stay in the market's own currency per MWh, also below 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_files.rows import Row, stream_rows

Floats = NDArray[np.float64]

PRICES: Final = "economy/electricity_price_hourly_local_currency_2020_2024.csv.gz"
CARBON: Final = "economy/carbon_intensity_2022_{country}_opendc.csv.gz"
HOUR: Final = 3600.0
LONGEST_GAP: Final = 24
MAX_HOURS: Final = 1_000_000
"""A century: a longer one has a time stamp gone wrong, and would ask for gigabytes (chosen)."""


@dataclass(frozen=True, slots=True, eq=False)
class HourlySeries:
    """One value an hour.

    Attributes
    ----------
    name : market or country.
    start_seconds : epoch second (UTC) of the first hour.
    values : (n,); nan where nothing is known.
    """

    name: str
    start_seconds: float
    values: Floats

    def window(self, first_hour: int, hours: int) -> Floats:
        """Return a stretch, with short gaps filled.

        Raises
        ------
        InputError
            When it lies outside, or holds a gap of more than a day.
        """
        if not 0 <= first_hour <= len(self.values) - hours:
            raise InputError(f"{self.name} has {len(self.values)} hours; {first_hour} + {hours} lies outside")
        part = self.values[first_hour : first_hour + hours]
        known = np.isfinite(part)
        if not known.any() or _longest_run(~known) > LONGEST_GAP:
            raise InputError(f"{self.name} lacks more than a day from hour {first_hour} on", field="price")
        filled: Floats = np.interp(np.arange(hours), np.flatnonzero(known), part[known])
        return filled

    def hour_of(self, when: datetime) -> int:
        """Return the index of an hour."""
        return int((when.replace(tzinfo=UTC).timestamp() - self.start_seconds) // HOUR)


def read_prices(directory: Path, markets: tuple[str, ...]) -> tuple[HourlySeries, ...]:
    """Return the prices of markets (``DE-LU_EUR``) per MWh.

    Raises
    ------
    InputError
        When the file is missing, a row is broken, or there is no such market.
    """
    path = directory / PRICES
    times: list[float] = []
    values: list[list[float]] = [[] for _ in markets]
    for row in stream_rows(path, ("utc", *markets), what="hourly electricity prices"):
        times.append(_time(row, "utc"))
        for market, column in zip(markets, values, strict=True):
            column.append(row.number(market, minimum=-math.inf) if row.text(market) else math.nan)
    return tuple(_hourly(name, path, times, column) for name, column in zip(markets, values, strict=True))


def read_carbon(directory: Path, country: str) -> HourlySeries:
    """Return grams of carbon dioxide per kWh of ``DE`` or ``FR``; quarter hours are averaged.

    Raises
    ------
    InputError
        As `read_prices`.
    """
    path = directory / CARBON.format(country=country)
    times, values = [], []
    for row in stream_rows(path, ("timestamp", "carbon_intensity"), what="carbon intensities"):
        times.append(_time(row, "timestamp"))
        values.append(row.number("carbon_intensity"))
    return _hourly(country, path, times, values)


def _hourly(name: str, path: Path, times: list[float], values: list[float]) -> HourlySeries:
    if not times:
        raise InputError("has no rows", file=str(path))
    start = math.floor(min(times) / HOUR) * HOUR
    if max(times) - start > MAX_HOURS * HOUR:
        raise InputError(f"reaches over more than {MAX_HOURS} hours", file=str(path))
    indices = ((np.array(times) - start) // HOUR).astype(np.int64)
    column = np.array(values)
    known = np.isfinite(column)
    count = np.bincount(indices[known], minlength=indices.max() + 1)
    total = np.bincount(indices[known], weights=column[known], minlength=indices.max() + 1)
    mean = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return HourlySeries(name, start, mean)


def _time(row: Row, column: str) -> float:
    text = row.text(column)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.error(column, f"{text!r} is not a time like 2022-01-01 13:00") from None


def _longest_run(missing: NDArray[np.bool_]) -> int:
    longest = run = 0
    for gap in missing:
        run = run + 1 if gap else 0
        longest = max(longest, run)
    return longest
