"""The controllers of the placement experiment: predictive control in its forms, and its baselines.

Made by `experiment`; each returns once a step the number of servers by data centre and the split of requests.
Invariant: only the oracle knows future requests and prices.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning.placement_model import PlacementOutlook
from cotide_core.provisioning.placement_plan import ServicePlan, hold, plan_placement
from cotide_core.provisioning.placement_program import PlacementProgram
from cotide_lab.experiments.placement.scenarios import DAY_STEPS, HORIZON, STEP_SECONDS, WEEK_STEPS, PlacementScenario
from cotide_predictors.capacity.network_demand import NetworkDemand
from cotide_predictors.capacity.price_outlook import foreseen_prices
from cotide_solvers.convex import ConvexSolver

Floats = NDArray[np.float64]


class PlacementController(Protocol):
    """Decides servers and split."""

    def decide(self, step: int, servers: Floats) -> tuple[Floats, Floats]:
        """Return (L,) servers and (L, V) shares of each network's requests."""
        ...


class PredictiveControl:
    """Model predictive control (Zhang and Boutaba 2014, Algorithm 1), with one of several sources of demand.

    ``source``: ``forecast``, ``last value``, ``yesterday`` or ``oracle``. ``reserve`` multiplies demand where there is
    no distribution. ``quantile``: of demand, the level of safety. ``horizon`` 1 without reconfiguration costs is the
    greedy placement that ignores them. ``band``: hysteresis.
    """

    def __init__(
        self,
        scene: PlacementScenario,
        *,
        source: str = "forecast",
        quantile: float = 0.8,
        reserve: float = 1.0,
        horizon: int = HORIZON,
        reconfiguring: bool = True,
        band: float = 0.0,
    ) -> None:
        self._scene, self._source, self._quantile = scene, source, quantile
        self._reserve, self._band, self._horizon = reserve, band, horizon
        centres = scene.model.centres
        if not reconfiguring:
            centres = tuple(replace(centre, on_cost=0.0, off_cost=0.0) for centre in centres)
        self._program = PlacementProgram(replace(scene.model, horizon=horizon, centres=centres))
        self._solver = ConvexSolver(time_limit_seconds=math.inf)
        self._networks = NetworkDemand(networks=len(scene.model.networks), day_steps=DAY_STEPS)
        for row in scene.before:
            self._networks.update(row)
        self._demand = np.concatenate((scene.before, scene.demand))
        self._price = np.concatenate((scene.price_before, scene.price))
        self.plans: list[ServicePlan] = []

    def decide(self, step: int, servers: Floats) -> tuple[Floats, Floats]:
        """Return the plan's first step; past requests are known, those of the present step are not."""
        now = len(self._scene.before) + step
        if step:
            self._networks.update(self._demand[now - 1])
        outlook = PlacementOutlook(self._foreseen(now)[:, None], self._prices(now))
        plan = plan_placement(self._program, self._solver, servers[None], outlook).services[0]
        self.plans.append(plan)
        wanted = plan.servers[0]
        if self._band:
            wanted = hold(servers, wanted, np.ceil(plan.exact[0] - 1e-4), self._band)
        return wanted, plan.split

    def _foreseen(self, now: int) -> Floats:
        steps = self._horizon
        if self._source == "forecast":
            return self._networks.predict(steps, self._quantile)
        if self._source == "last value":
            found = np.broadcast_to(self._demand[now - 1], (steps, self._demand.shape[1]))
        elif self._source == "yesterday":
            found = self._demand[now - DAY_STEPS : now - DAY_STEPS + steps]
        else:
            found = self._demand[np.minimum(np.arange(now, now + steps), len(self._demand) - 1)]
        return self._reserve * found

    def _prices(self, now: int) -> Floats:
        """Return (W, L): the present price is known; later ones return to the mean of the last week."""
        if self._source == "oracle":
            return self._price[np.minimum(now + np.arange(self._horizon), len(self._price) - 1)]
        return foreseen_prices(self._price[now - WEEK_STEPS : now + 1], self._horizon, STEP_SECONDS)


class Nearest:
    """Reactive thresholds: every network at its nearest data centre, servers follow the last load.

    ``reserve``: servers relative to the needs of the last load. ``band``: fewer only when this share is idle.
    """

    def __init__(self, scene: PlacementScenario, *, reserve: float = 1.2, band: float = 0.2) -> None:
        self._scene, self._reserve, self._band = scene, reserve, band
        model = scene.model
        self.split = np.zeros(model.delays.shape)
        self.split[model.delays.argmin(axis=0), np.arange(model.delays.shape[1])] = 1.0
        per_rate = model.services[0].servers_per_rate(model.delays)
        self._per_rate = np.where(np.isfinite(per_rate), per_rate, 0.0)
        self._limit = np.floor(np.array([centre.servers * (1 + centre.overflow) for centre in model.centres]))

    def decide(self, step: int, servers: Floats) -> tuple[Floats, Floats]:
        """Return servers for the last load and its reserve."""
        last = self._scene.demand[step - 1] if step else self._scene.before[-1]
        wanted = np.ceil(self._needed(last))
        kept = np.where((wanted <= servers) & (wanted > (1.0 - self._band) * servers), servers, wanted)
        return np.minimum(kept, self._limit), self.split

    def servers_for(self, rates: Floats) -> Floats:
        """Return (L,) servers for (V,) requests per second, with the reserve."""
        found: Floats = np.minimum(np.ceil(self._needed(rates)), self._limit)
        return found

    def _needed(self, rates: Floats) -> Floats:
        needed: Floats = (self.split * self._per_rate) @ rates * self._reserve
        return needed


class Unmoved:
    """The same servers in every step: a share of those that the highest load of the week before needed."""

    def __init__(self, scene: PlacementScenario, share: float) -> None:
        nearest = Nearest(scene, reserve=share)
        per_network = scene.before[-WEEK_STEPS:].max(axis=0)
        self._servers, self._split = nearest.servers_for(per_network), nearest.split

    def decide(self, step: int, servers: Floats) -> tuple[Floats, Floats]:
        """Return the same."""
        del step, servers
        return self._servers, self._split
