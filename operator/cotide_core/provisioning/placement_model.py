"""The input of a placement of servers over data centres: data centres, access networks, delays and costs.

Made by the experiments and by `cotide place`; read by `placement_program`. Zhang and Boutaba 2014, sec. II: a bipartite
graph of data centres L and access networks V, servers x of identical size. Beyond it: S services that share the data
centres, each with servers (replicas) of its own size. The gate for bad input, as `capacity_model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.provisioning.programs import Floats

MAX_STEPS: Final = 1000
"""Steps of a horizon; chosen: six weeks of hours."""
LARGEST: Final = 1e9
"""More servers, requests per second or money than this is a slip of the pen (chosen)."""
MAX_COLUMNS: Final = 120_000
"""Of a program. Chosen: at this size an attempt at whole servers takes five seconds. Such sizes are four services of 10
data centres, 100 networks and 24 steps, or sixty of 5, 10 and 24, which compete for room.
"""


@dataclass(frozen=True, slots=True)
class DataCentre:
    """One site for servers.

    Attributes
    ----------
    name : of it.
    servers : capacity in servers, the C of eq. 5: the scarce one of all resources counts, since servers are of
        one size.
    on_cost, off_cost : money for adding and for removing a server; eq. 3.
    overflow : share of ``servers`` beyond them that is available at the penalty of eq. 5; more is impossible.
    """

    name: str
    servers: float
    on_cost: float = 0.0
    off_cost: float = 0.0
    overflow: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """A service's speed, the price of missing it, and the size of its servers.

    Attributes
    ----------
    delay_seconds : the mean delay, propagation and queueing together, that is allowed: the d-bar of sec. II.
    service_rate : requests per second that a server handles, mu.
    variability : (c_a^2 + c_s^2) / 2 of Kingman's approximation; 1 for Poisson arrivals and exponential service.
    penalty : money per request that finds no server fast enough: the linear part of h in eq. 4.
    quadratic_penalty : money per hour and (request per second)^2: makes h steeper where much is missing.
    size : what a server of this service takes of a data centre's ``servers``, and of their price.
    name : of the service, for messages; empty for a single service.
    """

    delay_seconds: float
    service_rate: float
    variability: float = 1.0
    penalty: float = 1e-4
    quadratic_penalty: float = 0.0
    size: float = 1.0
    name: str = ""

    def check(self) -> None:
        """Raise InputError, one sentence, when it is invalid."""
        field = f"services[{self.name}]" if self.name else "services"
        if not (self.delay_seconds > 0 and self.service_rate > 0 and self.variability >= 0):
            raise InputError("needs a delay and a service rate above 0", field=field)
        if not (0 <= self.penalty <= LARGEST and 0 <= self.quadratic_penalty <= LARGEST):
            raise InputError(f"penalties must lie in [0, {LARGEST:g}]", field=f"{field}.penalty")
        if not 0 < self.size <= LARGEST:
            raise InputError(f"must lie in (0, {LARGEST:g}]", field=f"{field}.size")

    def servers_per_rate(self, delays: Floats) -> Floats:
        """Return servers that a request per second needs, the a^lv of eq. 4; inf where ``delays``, seconds, forbid it.

        Kingman's q = rho / (1 - rho) c / mu is solved for rho at the delay that propagation leaves: rho = q / (q + c /
        mu), a = 1 / (rho mu).
        """
        left = self.delay_seconds - delays
        with np.errstate(divide="ignore", invalid="ignore"):
            load = left / (left + self.variability / self.service_rate)
            needed: Floats = np.where((left > 0) & np.isfinite(delays), 1.0 / (load * self.service_rate), np.inf)
        return needed


@dataclass(frozen=True, slots=True, eq=False)
class PlacementModel:
    """What stays the same from step to step.

    Attributes
    ----------
    centres : L data centres.
    networks : names of the V access networks.
    delays : (L, V) seconds of propagation, the d^lv; inf where there is no path.
    egress : (L, V) money per request that crosses, >= 0.
    services : S of them, which share the data centres.
    overflow_penalty : money per hour for a server beyond a data centre's capacity; eq. 5.
    """

    centres: tuple[DataCentre, ...]
    networks: tuple[str, ...]
    delays: Floats
    egress: Floats
    services: tuple[ServiceLevel, ...]
    step_seconds: float = 3600.0
    horizon: int = 24
    overflow_penalty: float = 10.0

    def check(self) -> None:
        """Raise InputError, one sentence, when the model is invalid."""
        if not self.centres:
            raise InputError("there is no data centre to place servers in", field="centres")
        if not self.networks:
            raise InputError("there is no access network to serve", field="networks")
        shape = (len(self.centres), len(self.networks))
        for name, values in (("delays", self.delays), ("egress", self.egress)):
            if values.shape != shape:
                raise InputError(f"has shape {values.shape}, {shape} was expected", field=name)
            if np.isnan(values).any() or values.min() < 0:
                raise InputError("must be numbers >= 0", field=name)
        if not np.isfinite(self.egress).all():
            raise InputError("must be finite", field="egress")
        for centre in self.centres:
            numbers = (centre.servers, centre.on_cost, centre.off_cost, centre.overflow)
            if not all(np.isfinite(number) and 0 <= number <= LARGEST for number in numbers):
                raise InputError(f"needs numbers in [0, {LARGEST:g}]", field=f"centres[{centre.name}]")
        if not (1 <= self.horizon <= MAX_STEPS and 0 < self.step_seconds <= 7 * 86_400):
            raise InputError(f"the horizon must be 1 to {MAX_STEPS} steps of at most a week", field="horizon")
        self._check_services()

    def _check_services(self) -> None:
        if not self.services:
            raise InputError("there is no service to place", field="services")
        shape = (len(self.centres), len(self.networks))
        columns = self.horizon * (shape[0] + len(self.services) * (3 * shape[0] + shape[1]))
        for level in self.services:
            level.check()
            near = int(np.isfinite(level.servers_per_rate(self.delays)).sum())
            if not near:
                words = f" of {level.name}" if level.name else ""
                raise InputError(
                    f"no data centre is near enough to any network for the delay asked for{words}", field="delays"
                )
            columns += self.horizon * near
        if columns > MAX_COLUMNS:
            raise InputError(
                f"{len(self.services)} services, {shape[0]} data centres, {shape[1]} networks and {self.horizon} steps "
                f"need {columns} variables, at most {MAX_COLUMNS} are planned with: plan fewer steps or services at "
                "once",
                field="services",
            )

    def servers_per_rate(self) -> Floats:
        """Return (S, L, V): servers that a request per second needs; inf where delay forbids it."""
        return np.stack([level.servers_per_rate(self.delays) for level in self.services])


@dataclass(frozen=True, slots=True, eq=False)
class PlacementOutlook:
    """The forecasts.

    Attributes
    ----------
    demand : (W, S, V) requests per second: the quantile at the level of safety.
    price : (W, L) money for the hour of a server of size 1; carbon included where it is priced. May be negative.
    available : (L,) available share of a data centre, 0 when it is lost; None for all.
    """

    demand: Floats
    price: Floats
    available: Floats | None = None

    def check(self, model: PlacementModel) -> None:
        """Raise InputError, one sentence, when the outlook is invalid."""
        if self.demand.shape != (model.horizon, len(model.services), len(model.networks)):
            raise InputError(f"has shape {self.demand.shape} for {model.horizon} steps", field="demand")
        if self.price.shape != (model.horizon, len(model.centres)):
            raise InputError(f"has shape {self.price.shape} for {model.horizon} steps", field="price")
        if not np.isfinite(self.demand).all():
            raise InputError("a forecast of demand is missing or not a number", field="demand")
        if self.demand.min() < 0 or self.demand.max() > LARGEST:
            raise InputError(f"demand must lie in [0, {LARGEST:g}] requests per second", field="demand")
        if not np.isfinite(self.price).all():
            raise InputError("a price is missing or not a number", field="price")
        if np.abs(self.price).max() > LARGEST:
            raise InputError(f"a price beyond {LARGEST:g} is no price", field="price")
        if self.available is not None and self.available.shape != (len(model.centres),):
            raise InputError(f"has shape {self.available.shape}", field="available")
        if self.available is not None and not ((self.available >= 0) & (self.available <= 1)).all():
            raise InputError("shares of data centres must lie in [0, 1]", field="available")


def with_carbon(price: Floats, grams_per_kwh: Floats, kilowatts: float, money_per_kilogram: float) -> Floats:
    """Return prices of a server's hour with its carbon priced in; beyond the paper.

    Parameters
    ----------
    price, grams_per_kwh : (W, L).
    kilowatts : that a server draws.
    """
    return price + grams_per_kwh / 1000.0 * kilowatts * money_per_kilogram
