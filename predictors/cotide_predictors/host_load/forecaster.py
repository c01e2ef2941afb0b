"""Forecasts of the next slots' peak load of every host: a corrected point and p50, p90 and p99.

The entry of this package, called by the operator's slot tick and the experiments: `record` once a slot, `forecast` on
demand, `revise` when a placement changed the allocation. The point of online usage is the paper's last-state ARMA. The
point of batch and gratis pods is their present allocation plus the mean rise of the latest slots, which beats the
paper's feedback AR at slot starts (docs/design/forecasts.md). The quantiles are mixed from several experts and
calibrated on each host's own residuals, with a pooled prior (`mixture`). A host that joined a minute ago therefore has
quantiles, too.

Loads are shares of the host's capacity, 0 to ``ceiling``. Invariant: same records in, same forecasts out; a missing
record (nan) is never read as zero; quantiles rise with their level and stay within [0, ceiling].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.arma import ArmaParameters, LastStateArma
from cotide_predictors.host_load.experts import EXPERTS, LINEAR, ExpertBank
from cotide_predictors.host_load.feedback_ar import FeedbackAr, HeldLoad
from cotide_predictors.host_load.growth import overlay
from cotide_predictors.host_load.mixture import LEVELS, QuantileMixture
from cotide_predictors.host_load.slot_ring import DAY_SLOTS

Centre = Literal["last-state-arma", "feedback-ar", "held-now", "held-rise"]
ALLOCATED: Final[Centre] = "held-rise"
"""Centre of all forecasts of allocated load that Cotide plans with."""


class HostLoadModel:
    """Forecaster of n hosts; fulfils `cotide_core.forecasts.HostLoadForecaster`.

    Parameters
    ----------
    hosts : number of rows.
    centre : ``last-state-arma`` for online usage. Allocated batch and gratis load has the others: the present
        allocation, the same with its mean rise within a slot, or the feedback AR.
    horizons : slots ahead of the forecasts; each has quantiles of its own, for the peak over its slots.
    parameters : fitted ARMA parameters; None: the defaults until `refit`.
    ceiling : highest load accepted and forecast, in shares of capacity.
    levels : the quantiles kept; must hold .5, .9 and .99.
    day_slots : slots of a day, for the same time yesterday; None: without the same time yesterday
        (`slot_ring.slots_of_day`).
    """

    def __init__(
        self, hosts: int, *, centre: Centre = "last-state-arma", horizons: Sequence[int] = (1,),
        parameters: ArmaParameters | None = None, ceiling: float = 1.0, levels: Sequence[float] = LEVELS,
        day_slots: int | None = DAY_SLOTS,
    ) -> None:  # fmt: skip
        if not horizons or min(horizons) < 1 or not set(LEVELS) <= set(levels) or ceiling <= 0:
            raise ValueError("horizons are whole slots from 1, levels hold .5, .9 and .99, the ceiling is above 0")
        self.hosts = hosts
        self.ceiling = ceiling
        self.levels = tuple(levels)
        self.arma = LastStateArma(_following(parameters or ArmaParameters.default(hosts)))
        self._named: Centre = centre
        self.allocated = _allocated(centre, hosts)
        self._bank = ExpertBank(hosts, ceiling=ceiling, day_slots=day_slots)
        self._day_slots = day_slots
        self._horizons = {slots: _Horizon(hosts, slots, levels) for slots in sorted({1, *horizons})}
        self._level_indices = [self.levels.index(level) for level in LEVELS]

    def record(self, values: Floats) -> None:
        """Take in one slot's maxima (n,), shares of capacity; nan, infinite and negative ones count as missing."""
        if values.shape != (self.hosts,):
            raise ValueError(f"records of shape {values.shape} for {self.hosts} hosts")
        usable = np.isfinite(values) & (values >= 0)
        clean = np.where(usable, np.minimum(values, self.ceiling), np.nan)
        self._ensure_forecasts()
        self._bank.record(clean, self._horizons[1].locations())
        # A host's first record met forecasts without any data: their errors carry no information on any expert.
        learnt = np.where(np.isfinite(self.arma.last), clean, np.nan)
        for horizon in self._horizons.values():
            horizon.learn(learnt)
        self.arma.record(clean)
        if self.allocated is not None:
            self.allocated.record(clean)
        for horizon in self._horizons.values():
            horizon.advance()

    def revise(self, rows: Sequence[int], values: Floats) -> None:
        """Replace the newest record of some hosts after a placement or an eviction there, and repeat the forecast.

        Raises
        ------
        ValueError
            When the centre is last-state ARMA: usage is measured, not decided.
        """
        if self.allocated is None:
            raise ValueError("only allocated load is revised by placements")
        chosen = np.asarray(rows, dtype=np.intp)
        before, held = self.allocated.last[chosen], np.clip(values, 0.0, self.ceiling)
        moved = np.where(np.isfinite(before), held - before, 0.0)
        self.allocated.revise(chosen, held)
        self._bank.shift(chosen, moved)
        for slots, horizon in self._horizons.items():
            if not horizon.stale:
                horizon.revise(chosen, *self._bank.forecast(self._centre(slots, corrected=False), slots))

    def forecast(self, horizon_slots: int = 1) -> HostLoadForecast:
        """Return the forecast of the peak over the next ``horizon_slots``, which must be one of the horizons."""
        if horizon_slots not in self._horizons:
            raise ValueError(f"no horizon of {horizon_slots} slots; there are {sorted(self._horizons)}")
        self._ensure_forecasts()
        quantiles = self._horizons[horizon_slots].quantiles(self.ceiling)
        point = self._centre(horizon_slots, corrected=True)
        half, most, nearly_all = (quantiles[:, index] for index in self._level_indices)
        point = np.where(np.isfinite(point), np.clip(point, 0.0, self.ceiling), half)
        return HostLoadForecast(point=point, p50=half, p90=most, p99=nearly_all)

    def quantiles(self, horizon_slots: int = 1) -> Floats:
        """Return (n, Q) all kept quantiles of a horizon, in the order of ``levels``."""
        self._ensure_forecasts()
        return self._horizons[horizon_slots].quantiles(self.ceiling)

    def refit(self, parameters: ArmaParameters) -> None:
        """Put newly fitted ARMA parameters in force."""
        self.arma.refit(_following(parameters))

    def reset(self, rows: Sequence[int]) -> None:
        """Forget hosts that vanished and free their rows; new hosts there start from the pool."""
        chosen = np.asarray(rows, dtype=np.intp)
        self.arma.reset(chosen)
        self._bank.reset(chosen)
        if self.allocated is not None:
            self.allocated.reset(chosen)
        for horizon in self._horizons.values():
            horizon.reset(chosen)

    def grown(self, hosts: int) -> HostLoadModel:
        """Return a model of more hosts that keeps the knowledge of this one; the added ones start from the pool.

        The newest forecast is repeated from the same records.
        """
        larger = HostLoadModel(
            hosts, centre=self._named, horizons=tuple(self._horizons),
            parameters=self.arma.parameters.extended(hosts), ceiling=self.ceiling, levels=self.levels,
            day_slots=self._day_slots,
        )  # fmt: skip
        overlay(larger.arma, self.arma)
        larger._bank.follow(self._bank)
        if larger.allocated is not None and self.allocated is not None:
            overlay(larger.allocated, self.allocated)
        for slots, horizon in self._horizons.items():
            larger._horizons[slots].follow(horizon)
        return larger

    def bytes_per_host(self) -> float:
        """Return the memory of the state, in bytes a host."""
        parts: list[object] = [self.arma, self.arma.parameters]
        parts += [self.allocated] if self.allocated else []
        total = self._bank.bytes() + sum(_array_bytes(part) for part in parts)
        total += sum(horizon.bytes() for horizon in self._horizons.values())
        return total / max(1, self.hosts)

    def _ensure_forecasts(self) -> None:
        for slots, horizon in self._horizons.items():
            if horizon.stale:
                horizon.issue(*self._bank.forecast(self._centre(slots, corrected=False), slots))

    def _centre(self, slots: int, *, corrected: bool) -> Floats:
        """Return the centre model's peak over the next slots."""
        if self.allocated is not None:
            peak: Floats = self.allocated.path(slots).max(axis=1)
            return peak
        return self.arma.corrected(slots) if corrected else np.asarray(self.arma.path(slots).max(axis=1))


class _Horizon:
    """The mixture of one horizon, and its forecasts that wait for their peak."""

    def __init__(self, hosts: int, slots: int, levels: Sequence[float]) -> None:
        self.slots = slots
        self.stale = True
        self._mixture = QuantileMixture(hosts, len(EXPERTS), LINEAR, levels)
        self._pending: deque[tuple[Floats, Floats, Floats, Floats]] = deque()
        self._seen: deque[Floats] = deque(maxlen=slots)

    def issue(self, locations: Floats, scales: Floats) -> None:
        """Forecast from the experts, and keep it until its peak is known."""
        self._pending.append((locations, scales, *self._mixture.forecast(locations, scales)))
        self.stale = False

    def revise(self, rows: NDArray[np.intp], locations: Floats, scales: Floats) -> None:
        """Repeat the newest forecast of some hosts: a decision changed its input."""
        found = self._mixture.forecast(locations[rows], scales[rows], rows)
        for newest, part in zip(self._pending[-1], (locations[rows], scales[rows], *found), strict=True):
            newest[rows] = part

    def withdraw(self) -> None:
        """Drop the newest forecast, to repeat it."""
        if not self.stale:
            self._pending.pop()
            self.stale = True

    def learn(self, values: Floats) -> None:
        """Score the forecast that ends with this slot; a missing slot leaves the peak unknown."""
        self._seen.append(values)
        if len(self._pending) == self.slots:
            self._mixture.record(np.maximum.reduce(list(self._seen)), *self._pending.popleft())

    def locations(self) -> Floats:
        """Return the experts' locations of the newest forecast."""
        return self._pending[-1][0]

    def advance(self) -> None:
        """Note that the newest forecast is a slot old."""
        self.stale = True

    def quantiles(self, ceiling: float) -> Floats:
        """Return the newest forecast's quantiles within [0, ceiling]."""
        return np.clip(self._pending[-1][2], 0.0, ceiling)

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget these hosts and drop their pending forecasts unscored."""
        self._mixture.reset(rows)
        self.withdraw()
        for seen in self._seen:
            seen[rows] = np.nan

    def follow(self, smaller: _Horizon) -> None:
        """Take over the knowledge of a horizon of fewer hosts, and its pending forecasts except the newest.

        The newest is repeated, so that the added hosts have one; in the others they have no forecast and no record.
        """
        overlay(self._mixture, smaller._mixture)
        hosts = len(self._mixture.masses)
        under_way = list(smaller._pending) if smaller.stale else list(smaller._pending)[:-1]
        self._pending.extend(
            (_wider(locations, hosts), _wider(scales, hosts), _wider(mixed, hosts), _wider(each, hosts))
            for locations, scales, mixed, each in under_way
        )
        self._seen.extend(_wider(values, hosts) for values in smaller._seen)

    def bytes(self) -> int:
        """Return the memory of the state, in bytes."""
        pending = sum(array.nbytes for forecast in self._pending for array in forecast)
        return _array_bytes(self._mixture) + pending + sum(seen.nbytes for seen in self._seen)


def _allocated(centre: Centre, hosts: int) -> FeedbackAr | HeldLoad | None:
    """Return the centre model of allocated load; None for usage."""
    if centre == "feedback-ar":
        return FeedbackAr(hosts)
    return None if centre == "last-state-arma" else HeldLoad(hosts, rises=centre == "held-rise")


def _following(parameters: ArmaParameters) -> ArmaParameters:
    """Return the parameters without a fixed mean: a service that grew since the fit keeps growing."""
    return ArmaParameters(parameters.ar, parameters.ma, np.full(len(parameters.mean), np.nan))


def _wider(values: Floats, hosts: int) -> Floats:
    """Return the values of more hosts, which are on the first axis; nan for the added ones."""
    wide = np.full((hosts, *values.shape[1:]), np.nan)
    wide[: len(values)] = values
    return wide


def _array_bytes(holder: object) -> int:
    names = getattr(holder, "__slots__", None) or vars(holder)
    return sum(value.nbytes for name in names if isinstance(value := getattr(holder, name), np.ndarray))
