"""Energy, money and carbon of the machines that are on, and what came of what was foreseen.

Fed by `controller` at its looks; written to the metrics. Watts are those of the configured types at the share of their
cpu that pods ask for: an estimate, which a meter beats. Invariants: nothing is counted for the time in which this
replica did not lead; a forecast is scored at most once.
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
"""Of the clock: more than so long between two looks is no time in which anything is known; chosen."""
MAX_OPEN: Final = 500
"""Forecasts that wait for their time; chosen."""


class Foreseen(NamedTuple):
    """Pods that need room at a second of the clock: the median, and what they stay below 19 times in 20."""

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
        price, carbon : money, without what carbon is priced at, and grams for a kWh that hold now.
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
            # A price below 0 is money earned, which a counter can't take: it is left out.
            money = kilowatt_hours * (price + carbon * self._settings.carbon_price_per_tonne / 1e6)
            metrics.provisioning_cost.labels(name).inc(max(money, 0.0) + rent)
            metrics.provisioning_carbon.labels(name).inc(kilowatt_hours * carbon)

    def switched(self, kind: str) -> None:
        """Count what switching a machine on costs, unless its type has left the configuration since it was ordered."""
        if kind in self._machines:
            self._metrics.provisioning_cost.labels(kind).inc(self._machines[kind].on_cost)

    def score(self, advice: Advice, now: float) -> list[tuple[Foreseen, float]]:
        """Score what was foreseen for now, and remember what is foreseen for a boot ahead; return what was scored."""
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
