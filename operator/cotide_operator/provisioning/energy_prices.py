"""`EnergyPrices`: price and carbon of a kilowatt-hour, now and in the next hours, read again while the operator runs.

Driven by `controller`, read by its plans and its accounts; `cotide capacity` reads once. Source: a CSV file, with
future hours where prices are known a day ahead; or two queries of the metrics source, with answers that hold until the
next ones. Invariants: an invalid input changes nothing and the last good values stay. Before the first good values, the
configured ones hold. The log and a metric report old values. Every value is within the bounds of `limits`.
"""

from __future__ import annotations

import asyncio
import csv
import io
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import aiohttp
import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import CotideError, InputError
from cotide_core.limits import MAX_CARBON, MAX_PRICE, MAX_PRICES, NUMBER_CHARACTERS, PRICE_LEAST, PRICES_BYTES
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.config.provisioning_settings import EnergyPriceSettings, ProvisioningSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.provisioning.place_queries import LIMITS, number_of
from cotide_operator.usage.prometheus_client import PrometheusClient

Floats = NDArray[np.float64]

_LOG = logging.getLogger(__name__)

TIME, PRICE, CARBON = "time", "price_per_kilowatt_hour", "carbon_grams_per_kilowatt_hour"
"""Columns of the file."""
BOUNDS: Final = {PRICE: (PRICE_LEAST, MAX_PRICE), CARBON: (0.0, MAX_CARBON)}
TIMEOUT_SECONDS: Final = 10.0
"""Of the wall, for one query; chosen: a plan does not wait for it."""


@dataclass(frozen=True, slots=True, eq=False)
class PriceTable:
    """Values from the source.

    Attributes
    ----------
    since : (n,) seconds of the clock, rising, at which each row begins to hold; the first row holds before it, too.
    price, carbon : (n,) money and grams for a kWh; None where the source has no such values.
    """

    since: Floats
    price: Floats | None
    carbon: Floats | None

    @property
    def until(self) -> float:
        """Return the second at which the table ends: its last row holds as long as the row before it."""
        return float("inf") if len(self.since) < 2 else float(2.0 * self.since[-1] - self.since[-2])

    def rows_at(self, seconds: Floats) -> NDArray[np.int64]:
        """Return the row that holds at each second."""
        rows: NDArray[np.int64] = np.maximum(np.searchsorted(self.since, seconds, side="right") - 1, 0)
        return rows


class EnergyPrices:
    """One term of leadership.

    Parameters
    ----------
    source : of the queries; None where a file is read, or nothing.
    complain : receives each error, under a name of its own.
    monotonic : seconds of the wall.
    """

    def __init__(
        self,
        settings: ProvisioningSettings,
        source: PrometheusSourceSettings | None,
        now: Callable[[], float],
        metrics: Metrics,
        warn_throttled: Callable[[str, CotideError | str], object],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._source, self._now = settings, source, now
        self._metrics, self._warn_throttled, self._monotonic = metrics, warn_throttled, monotonic
        self._table: PriceTable | None = None
        self._good = monotonic()
        self.show()

    async def run(self) -> None:
        """Read again and again until cancelled; return at once where prices are constants."""
        asked = self._settings.energy_prices
        while asked is not None:
            try:
                await self.read()
            except Exception:  # noqa: BLE001 - an unexpected error must not end later readings
                _LOG.exception("prices of energy could not be read: they stay the same")
            await asyncio.sleep(asked.interval_seconds)

    async def read(self) -> None:
        """Read once; an invalid input is reported, and the last good values stay."""
        asked = self._settings.energy_prices
        if asked is None:
            return
        try:
            self._table = await read_prices(asked, self._source, self._now())
            self._good = self._monotonic()
        except CotideError as error:
            self._warn_throttled("prices of energy stay the same", error)
        self.show()

    def at(self, seconds: Floats) -> tuple[Floats, Floats]:
        """Return money, without the price of carbon, and grams for a kWh at seconds of the clock."""
        return _values(self._settings, self._table, seconds)

    def of_steps(self, now: float) -> Floats:
        """Return (W,) money for a kWh at each step from now on, carbon included where it is priced."""
        return step_prices(self._settings, self._table, now)

    def stale(self) -> str:
        """Return why the current values are old; an empty string when they are not."""
        asked = self._settings.energy_prices
        if asked is None:
            return ""
        age = self._monotonic() - self._good
        if age > asked.stale_after_seconds:
            return f"no valid prices were read for {age:.0f} s: the last good ones hold"
        if self._table is not None and self._now() >= self._table.until:
            return f"{asked.file} has no row for the present: its last row continues to hold"
        return ""

    def show(self) -> None:
        """Set the metrics, and report old values."""
        price, carbon = self.at(np.array([self._now()]))
        self._metrics.provisioning_energy_price.set(float(price[0]))
        self._metrics.provisioning_carbon_intensity.set(float(carbon[0]))
        why = self.stale()
        self._metrics.provisioning_prices_stale.set(float(bool(why)))
        if why:
            self._warn_throttled("prices of energy are old", why)


def _values(settings: ProvisioningSettings, table: PriceTable | None, seconds: Floats) -> tuple[Floats, Floats]:
    price = np.full(len(seconds), settings.price_per_kilowatt_hour)
    carbon = np.full(len(seconds), settings.carbon_grams_per_kilowatt_hour)
    if table is not None:
        rows = table.rows_at(seconds)
        price = price if table.price is None else table.price[rows]
        carbon = carbon if table.carbon is None else table.carbon[rows]
    return price, carbon


def step_prices(settings: ProvisioningSettings, table: PriceTable | None, now: float) -> Floats:
    """Return (W,) money for a kWh at each step from now on, carbon included where it is priced."""
    steps = np.arange(settings.horizon_steps, dtype=np.float64)
    price, carbon = _values(settings, table, now + steps * settings.step_seconds)
    whole: Floats = price + carbon * settings.carbon_price_per_tonne / 1e6
    return whole


async def read_prices(asked: EnergyPriceSettings, source: PrometheusSourceSettings | None, now: float) -> PriceTable:
    """Return the values of the file or the queries.

    Raises
    ------
    InputError
        When the input is invalid: the error names the file, line and column, or the query's key.
    """
    if asked.file is not None:
        return await asyncio.to_thread(_read_file, asked.file)
    assert source is not None  # noqa: S101 - for mypy: the settings ask for it
    questions = {PRICE: asked.price_query, CARBON: asked.carbon_query}
    answers: dict[str, float] = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
        client = PrometheusClient(session, source)
        for what, query in questions.items():
            if not query:
                continue
            field = "priceQuery" if what == PRICE else "carbonQuery"
            try:
                answers[what] = number_of(await client.answer("/api/v1/query", {"query": query}, LIMITS))
            except CotideError as error:
                raise InputError(str(error), field=f"provisioning.energyPrices.{field}") from error
            _check(answers[what], what, field=f"provisioning.energyPrices.{field}")
    price, carbon = (np.array([answers[what]]) if what in answers else None for what in (PRICE, CARBON))
    return PriceTable(np.array([now]), price, carbon)


def _read_file(path: Path) -> PriceTable:
    try:
        with path.open("rb") as file:
            before = _state_of(file)
            raw = file.read(PRICES_BYTES + 1)
            after = _state_of(file)
    except (OSError, ValueError) as error:  # an invalid file name is a ValueError
        raise InputError(f"can't be read: {getattr(error, 'strerror', error)}", file=str(path)) from error
    if before != after:  # half of 0.064 is also a number
        raise InputError("was written during the read: replace it by renaming another file", file=str(path))
    if len(raw) > PRICES_BYTES:
        raise InputError(f"has more than {PRICES_BYTES} bytes", file=str(path))
    try:
        return _table(raw.decode("utf-8-sig"), str(path))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is not a CSV file: {error}", file=str(path)) from error


def _state_of(file: BinaryIO) -> tuple[int, int]:
    about = os.fstat(file.fileno())
    return about.st_mtime_ns, about.st_size


def _table(text: str, file: str) -> PriceTable:
    rows = csv.DictReader(io.StringIO(text))
    columns = [one for one in (PRICE, CARBON) if one in (rows.fieldnames or ())]
    if TIME not in (rows.fieldnames or ()) or not columns:
        raise InputError(f"needs the columns {TIME}, and {PRICE} or {CARBON} or both", file=file, line=1)
    names = rows.fieldnames or ()
    twice = next((column for column in (TIME, *columns) if list(names).count(column) > 1), None)
    if twice is not None:
        raise InputError("the header names this column more than once", file=file, line=1, field=twice)
    since: list[float] = []
    values: dict[str, list[float]] = {column: [] for column in columns}
    for row in rows:
        line = rows.line_num
        if len(since) >= MAX_PRICES:
            raise InputError(f"has more than {MAX_PRICES} rows", file=file, line=line)
        if row.get(None):  # the key of `csv` for cells beyond the header: 0,081 for 0.081
            raise InputError(f"has more cells than the header's {len(names)}", file=file, line=line)
        try:
            since.append(parse_timestamp(row[TIME] or ""))
        except InputError as error:
            raise InputError(error.message, file=file, line=line, field=TIME) from error
        if len(since) > 1 and since[-1] <= since[-2]:
            raise InputError("is not later than the row before", file=file, line=line, field=TIME)
        for column in columns:
            values[column].append(_number(row[column] or "", column, file, line))
    if not since:
        raise InputError("has no row", file=file)
    price, carbon = (np.array(values[one]) if one in values else None for one in (PRICE, CARBON))
    return PriceTable(np.array(since), price, carbon)


def _number(text: str, column: str, file: str, line: int) -> float:
    try:
        value = float(text) if len(text) <= NUMBER_CHARACTERS else math.nan
    except ValueError:
        value = math.nan
    _check(value, column, file=file, line=line, field=column)
    return value


def _check(value: float, what: str, *, field: str, file: str | None = None, line: int | None = None) -> None:
    least, most = BOUNDS[what]
    if not (math.isfinite(value) and least <= value <= most):
        raise InputError(f"is not a number from {least:g} to {most:g}", file=file, line=line, field=field)
