"""Input of the placement experiment: weeks of requests from access networks, data centres and their prices.

Called by `experiment`. Totals of requests and prices are real where data are given. The traces do not give the networks
of requests, so requests are split by the population of cities and shifted by their time zones. Invariant: the same
week, data and seed give the same scenario.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_core.provisioning.placement_model import DataCentre, PlacementModel, ServiceLevel, with_carbon
from cotide_sim.traces.economy.hourly import read_carbon, read_prices
from cotide_sim.traces.economy.transfer_costs import read_transfer_costs
from cotide_sim.traces.load.nasa_http import read_nasa_http
from cotide_sim.traces.load.worldcup98 import read_worldcup98

Floats = NDArray[np.float64]


class Site(NamedTuple):
    """A city: latitude and longitude in degrees, hours from UTC, people of its area in millions, nearest region."""

    name: str
    latitude: float
    longitude: float
    zone: int
    people: float
    region: str


US_SITES: Final = (
    Site("New York", 40.7, -74.0, -5, 19.5, "us-east1"),
    Site("Los Angeles", 34.1, -118.2, -8, 12.9, "us-west1"),
    Site("Chicago", 41.9, -87.6, -6, 9.3, "us-central1"),
    Site("Dallas", 32.8, -96.8, -6, 7.9, "us-central1"),
    Site("Houston", 29.8, -95.4, -6, 7.3, "us-central1"),
    Site("Washington", 38.9, -77.0, -5, 6.3, "us-east1"),
    Site("Miami", 25.8, -80.2, -5, 6.1, "us-east1"),
    Site("Atlanta", 33.7, -84.4, -5, 6.2, "us-east1"),
    Site("San Francisco", 37.8, -122.4, -8, 4.6, "us-west1"),
    Site("Seattle", 47.6, -122.3, -8, 4.0, "us-west1"),
    Site("Denver", 39.7, -105.0, -7, 3.0, "us-central1"),
    Site("Minneapolis", 45.0, -93.3, -6, 3.7, "us-central1"),
)
"""Twelve large metropolitan areas; people rounded from the census bureau's estimates of 2022."""
EUROPEAN_SITES: Final = (
    Site("Paris", 48.9, 2.4, 1, 11.2, "europe-west1"),
    Site("Berlin", 52.5, 13.4, 1, 4.7, "europe-west4"),
    Site("Frankfurt", 50.1, 8.7, 1, 2.7, "europe-west4"),
    Site("Munich", 48.1, 11.6, 1, 2.9, "europe-west4"),
    Site("Lyon", 45.8, 4.8, 1, 2.3, "europe-west1"),
    Site("Hamburg", 53.6, 10.0, 1, 3.4, "europe-west4"),
)
"""Six areas of Germany and France, rounded; chosen because the prices of the two countries cross."""
US_CENTRES: Final = (
    ("Mountain View", 37.4, -122.1, "us-west1", "US-CAL-CISO_USD"),
    ("Houston", 29.8, -95.4, "us-central1", "US-TEX-ERCO_USD"),
    ("Atlanta", 33.7, -84.4, "us-east1", "US-MIDA-PJM_USD"),
)
"""The paper's three data centres. Atlanta's grid has no market price in the data: the nearest market replaces it."""
EUROPEAN_CENTRES: Final = (
    ("Frankfurt", 50.1, 8.7, "europe-west4", "DE-LU_EUR"),
    ("Paris", 48.9, 2.4, "europe-west1", "FR_EUR"),
)
WEEKS: Final = ("worldcup", "match days", "flat", "nasa", "two countries")
STEP_SECONDS: Final = 900.0
DAY_STEPS: Final = 96
WEEK_STEPS: Final = 7 * DAY_STEPS
HORIZON: Final = 24
PEAK_RATE: Final = 10_000.0
"""Requests per second of the busiest step of a week after scaling: some three hundred servers (chosen; the WorldCup's
own busiest minute has 3,500)."""
LEVEL: Final = ServiceLevel(delay_seconds=0.12, service_rate=50.0, variability=1.0, penalty=1e-5)
"""Chosen: 120 ms, 20 ms a request; a lost request costs some thirty times as much as a served one."""
SERVER_KILOWATTS: Final = 0.35
"""Power of a server with cooling (chosen)."""
RENT: Final = 0.03
"""Money for a server's hour in addition to energy (chosen)."""
RECONFIGURATION_HOURS: Final = 0.5
"""Cost of adding a server, in hours of its mean price; removing it costs a fifth of that (chosen: up to 13 minutes of
start, Zhang and Boutaba 2014, sec. II, and the transfer of images and state)."""
GIGABYTES: Final = 5e-6
"""A request's answer, in gigabytes (chosen)."""
CARBON_PRICE: Final = 0.08
"""Money per kilogram of carbon dioxide (chosen: about the European allowance's price in 2022)."""
LIGHT: Final = 200_000.0
"""Kilometres a second in glass."""
DETOUR: Final = 1.5
"""Route over great-circle distance (chosen)."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacementScenario:
    """A week of requests.

    Attributes
    ----------
    model : of the problem, with the usual horizon.
    before, demand : (steps, V) requests per second of the week before, for learning forecasts, and of the week.
    price_before, price : (steps, L) money for a server's hour.
    """

    name: str
    model: PlacementModel
    before: Floats
    demand: Floats
    price_before: Floats
    price: Floats
    reading: str


def placement_scenario(week: str, data: Path | None, seed: int, *, reconfiguration: float = 1.0) -> PlacementScenario:
    """Return a week.

    ``week``: one of `WEEKS`. ``reconfiguration``: factor on the costs of adding and removing servers.

    Raises
    ------
    InputError
        When the data are missing or broken.
    """
    if week not in WEEKS:
        raise InputError(f"{week!r} is none of {', '.join(WEEKS)}", field="--week")
    rng = np.random.default_rng(seed)
    europe = week == "two countries"
    sites = EUROPEAN_SITES if europe else US_SITES
    total, reading = _total(week, data, rng)
    demand = _split(total, sites, rng)
    centres = EUROPEAN_CENTRES if europe else US_CENTRES
    price = _prices(centres, data, rng, europe)
    regions = tuple(sorted({site.region for site in sites}))
    costs = read_transfer_costs(data, regions) if data is not None else 0.02 * (1.0 - np.eye(len(regions)))
    egress = GIGABYTES * np.array(
        [[costs[regions.index(centre[3]), regions.index(site.region)] for site in sites] for centre in centres]
    )
    mean_price = float(price.mean())
    on_cost = reconfiguration * RECONFIGURATION_HOURS * mean_price
    servers = np.ceil(PEAK_RATE / LEVEL.service_rate * 1.5)
    data_centres = tuple(DataCentre(centre[0], float(servers), on_cost, on_cost / 5.0, 0.1) for centre in centres)
    delays = np.array([[_round_trip(centre, site) for site in sites] for centre in centres])
    model = PlacementModel(
        data_centres, tuple(site.name for site in sites), delays, egress, (LEVEL,), STEP_SECONDS, HORIZON, 1.0
    )
    middle = WEEK_STEPS
    return PlacementScenario(week, model, demand[:middle], demand[middle:], price[:middle], price[middle:], reading)


def _total(week: str, data: Path | None, rng: np.random.Generator) -> tuple[Floats, str]:
    """Return (2 weeks,) requests per second: the week before and the week."""
    steps = 2 * WEEK_STEPS
    if week == "flat" or data is None:
        noise = 1.0 + 0.03 * rng.standard_normal(steps)
        if data is None and week != "flat":
            hours = np.arange(steps) * STEP_SECONDS / 3600.0
            wave = 0.6 - 0.35 * np.cos(2 * np.pi * (hours - 4.0) / 24.0)
            if week == "match days":
                wave += 1.2 * np.exp(-(((hours % 48.0) - 20.0) ** 2) / 2.0) * (hours > 168.0)
            return _scaled(wave * noise), "generated requests"
        return _scaled(noise), "the same rate all the time, three per cent of noise"
    if week in ("nasa", "two countries"):
        seconds = read_nasa_http(data)
        usable = len(seconds) // int(STEP_SECONDS)
        rates = seconds[: usable * int(STEP_SECONDS)].reshape(usable, -1).mean(axis=1)
        first = int(rng.integers(0, usable - steps))
        return _scaled(rates[first : first + steps]), "NASA's requests of July 1995"
    trace = read_worldcup98(data)
    minutes = int(STEP_SECONDS / 60.0)
    if week == "match days":
        # The fortnight before 2 July 1998, with the second round of matches in its second half.
        first = (61 - 14) * 1440 + int(rng.integers(0, 3)) * 1440
    else:
        first = int(rng.integers(5, 40)) * 1440
    part = trace.requests[first : first + steps * minutes]
    return _scaled(part.reshape(steps, minutes).mean(axis=1) / 60.0), "WorldCup98's requests"


def _scaled(rates: Floats) -> Floats:
    scaled: Floats = np.maximum(rates, 0.0) * PEAK_RATE / max(float(rates[WEEK_STEPS:].max()), 1e-9)
    return scaled


def _split(total: Floats, sites: tuple[Site, ...], rng: np.random.Generator) -> Floats:
    """Return (steps, V): by people, shifted by time zone against the first city, with three per cent of noise."""
    people = np.array([site.people for site in sites])
    shares = people / people.sum()
    shifts = [(sites[0].zone - site.zone) * int(3600 / STEP_SECONDS) for site in sites]
    columns = [np.roll(total, shift) * share for shift, share in zip(shifts, shares, strict=True)]
    return np.column_stack(columns) * np.maximum(1.0 + 0.03 * rng.standard_normal((len(total), len(sites))), 0.0)


def _prices(
    centres: tuple[tuple[str, float, float, str, str], ...], data: Path | None, rng: np.random.Generator, europe: bool
) -> Floats:
    """Return (steps, L) money for a server's hour: rent and energy; in Europe carbon, too."""
    hours = 2 * WEEK_STEPS // int(3600 / STEP_SECONDS)
    if data is None:
        phases = np.arange(len(centres)) * 2 * np.pi / len(centres)
        energy = 60.0 + 40.0 * np.sin(2 * np.pi * np.arange(hours)[:, None] / 24.0 + phases[None])
    else:
        series = read_prices(data, tuple(centre[4] for centre in centres))
        year = 8784 + 8760 if europe else int(rng.integers(1, 4)) * 8770
        first = year + int(rng.integers(0, 8760 - hours - 24))
        energy = np.column_stack([hourly_series.window(first, hours) for hourly_series in series])
    price = RENT + energy / 1000.0 * SERVER_KILOWATTS
    if europe and data is not None:
        grams = [read_carbon(data, country) for country in ("DE", "FR")]
        start = first - (8784 + 8760)
        table = np.column_stack([gram.window(start, hours) for gram in grams])
        price = with_carbon(price, table, SERVER_KILOWATTS, CARBON_PRICE)
    return np.repeat(price, int(3600 / STEP_SECONDS), axis=0)


def _round_trip(centre: tuple[str, float, float, str, str], site: Site) -> float:
    """Return the round-trip seconds along a route in glass, plus five milliseconds of access."""
    one, two = np.radians([centre[1], centre[2]]), np.radians([site.latitude, site.longitude])
    cosine = np.sin(one[0]) * np.sin(two[0]) + np.cos(one[0]) * np.cos(two[0]) * np.cos(one[1] - two[1])
    kilometres = 6371.0 * float(np.arccos(np.clip(cosine, -1.0, 1.0)))
    return 2.0 * DETOUR * kilometres / LIGHT + 0.005
