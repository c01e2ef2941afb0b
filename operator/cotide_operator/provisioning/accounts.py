"""Energy, money and carbon of the machines that are on, and the scores of forecasts.

Fed by `controller` at its looks; written to the metrics. Watts are those of the configured types at the share of their
cpu that pods request: an estimate, less exact than a meter. Invariants: the time before this replica led is not
counted; a forecast is scored at most once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from cotide_core.provisioning.capacity_model import MachineType
from cotide_core.provisioning.power import JOULES_PER_KWH
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.provisioning.advice import Advice

LONGEST_GAP_SECONDS: Final = 600.0
"""Seconds of the clock: the time between two looks is skipped when it is longer; chosen."""
MAX_OPEN: Final = 500
"""Most forecasts that wait for their time; chosen."""


class Foreseen(NamedTuple):
    """Pods that need room at a second of the clock: the median, and the 95 % quantile."""

    due: float
    p50: float
    p95: float


class Accounts:
    """One term of leadership."""

    def __init__(self, settings: ProvisioningSettings, machines: tuple[MachineType, ...], metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._machines = {kind.name: kind for kind in machines}
        self._before: float | None = None
        self._foreseen: list[Foreseen] = []

    def spend(self, loads: Mapping[str, list[float]], now: float, price: float, carbon: float) -> None:
        """Count the time since the last look.

        Parameters
        ----------
        loads : by type the utilisation, 0 to 1, of each machine on.
        price, carbon : money, without the price of carbon, and grams for a kWh, as of now.
        """
        seconds = 0.0 if self._before is None else now - self._before
        self._before = now
        if not 0.0 < seconds <= LONGEST_GAP_SECONDS:
            return
        for name, shares in loads.items():
            kind = self._machines[name]
            joules = float(kind.power.at(np.array(shares)).sum()) * seconds if shares else 0.0
            kilowatt_hours = joules / JOULES_PER_KWH
            rent = kind.hourly_cost * len(shares) * seconds / 3600.0
            metrics = self._metrics
            metrics.provisioning_energy.labels(name).inc(joules)
            # A price below 0 is income, which a counter can't take: it is omitted.
            money = kilowatt_hours * (price + carbon * self._settings.carbon_price_per_tonne / 1e6)
            metrics.provisioning_cost.labels(name).inc(max(money, 0.0) + rent)
            metrics.provisioning_carbon.labels(name).inc(kilowatt_hours * carbon)

    def switched(self, kind: str) -> None:
        """Count the cost of switching a machine on, unless its type has left the configuration since the order."""
        if kind in self._machines:
            self._metrics.provisioning_cost.labels(kind).inc(self._machines[kind].on_cost)

    def score(self, advice: Advice, now: float) -> list[tuple[Foreseen, float]]:
        """Score the forecasts for now, and remember the forecast for one boot ahead; return the scored forecasts."""
        came = float(advice.present.sum())
        due = [foreseen for foreseen in self._foreseen if foreseen.due <= now]
        self._foreseen = [foreseen for foreseen in self._foreseen if foreseen.due > now][-MAX_OPEN:]
        for foreseen in due:
            outcome = "below_p50" if came <= foreseen.p50 else "below_p95" if came <= foreseen.p95 else "above_p95"
            self._metrics.provisioning_forecasts.labels(outcome).inc()
        step = self._settings.step_seconds
        ahead = max(1, *(kind.boot_steps for kind in self._machines.values()))
        lead = min(ahead, len(advice.demand)) - 1
        p50, p95 = (float(advice.demand[lead, :, advice.probabilities.index(level)].sum()) for level in (0.5, 0.95))
        self._foreseen.append(Foreseen(now + (lead + 1) * step, p50, p95))
        for what, value in (("there", came), ("p50", p50), ("p95", p95)):
            self._metrics.provisioning_pods.labels(what).set(value)
        return [(foreseen, came) for foreseen in due]
