"""The input of a capacity plan: machine types, container classes, the present machines and the forecasts.

Made by the experiments and by the operator; read by `capacity_program`. The gate for bad input: every `check` raises
one sentence that names the field, so that the caller can keep the last good plan. Invariant: input that passes the gate
always has a feasible program, since demand beyond all capacity is left unserved at a cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.provisioning.power import PowerCurve
from cotide_core.provisioning.programs import Booleans, Floats

PROBABILITIES: Final = (0.05, 0.25, 0.5, 0.8, 0.95, 0.99)
"""Quantiles of demand that a plan weighs (chosen): a service level below the lowest one serves the lowest one."""
LARGEST: Final = 1e9
"""More machines, containers, money or resource units than this is a slip of the pen (chosen)."""


@dataclass(frozen=True, slots=True)
class MachineType:
    """Machines of one kind.

    Attributes
    ----------
    name : of the kind.
    capacity : by resource, in any unit that containers share.
    count : how many exist, the N of Zhang and Boutaba 2014, sec. III.
    power : watts by utilisation of the first resource, cpu.
    on_cost, off_cost : money for one switch; eq. 11.
    boot_steps : steps from the order until it can take tasks, >= 0.
    minimum_up_steps : steps that it stays on after its start, >= 0.
    hourly_cost : money for an hour powered on, apart from energy (rent, wear).
    """

    name: str
    capacity: tuple[float, ...]
    count: int
    power: PowerCurve
    on_cost: float = 0.0
    off_cost: float = 0.0
    boot_steps: int = 0
    minimum_up_steps: int = 0
    hourly_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class ContainerClass:
    """Containers of one class of tasks.

    Attributes
    ----------
    name : of the class.
    size : by resource.
    overprovisioning : the omega of eq. 13, >= 1; the paper found 1.2.
    value : money for an hour of one needed container that is there; None for the worth that the service level implies.
    service_level : the model's for this class; None for that of the model.
    """

    name: str
    size: tuple[float, ...]
    overprovisioning: float = 1.2
    value: float | None = None
    service_level: float | None = None


@dataclass(frozen=True, slots=True)
class CapacityModel:
    """What stays the same from step to step.

    Attributes
    ----------
    machines, classes : M kinds and K classes with the same R resources.
    step_seconds : length of a step.
    horizon : W, steps planned ahead.
    service_level : quantile of the demand up to which containers are worth their cheapest cost, where a class states
        neither value nor level: one is worth that cost over (1 - level), as in the newsvendor problem.
    allowed : (M, K) the psi of eq. 8, in addition to what sizes forbid; None for all.
    """

    machines: tuple[MachineType, ...]
    classes: tuple[ContainerClass, ...]
    step_seconds: float = 300.0
    horizon: int = 12
    service_level: float = 0.95
    allowed: Booleans | None = field(default=None, compare=False)

    def check(self) -> None:
        """Raise InputError, one sentence, when the model is invalid."""
        if not self.machines:
            raise InputError("there is no machine type to plan for", field="machines")
        if not self.classes:
            raise InputError("there is no task class to plan for", field="classes")
        resources = len(self.machines[0].capacity)
        for kind in self.machines:
            _check_numbers(f"machines[{kind.name}]", kind.capacity, resources)
            costs = (kind.on_cost, kind.off_cost, kind.hourly_cost, float(kind.count))
            _check_numbers(f"machines[{kind.name}] costs and count", costs, 4)
            if kind.boot_steps < 0 or kind.minimum_up_steps < 0:
                raise InputError("boot_steps and minimum_up_steps must be >= 0", field=f"machines[{kind.name}]")
        for wanted in self.classes:
            _check_numbers(f"classes[{wanted.name}]", wanted.size, resources)
            if not 1.0 <= wanted.overprovisioning <= 100.0:
                raise InputError(f"{wanted.overprovisioning:g} is not in [1, 100]", field="overprovisioning")
            if wanted.value is not None:
                _check_numbers(f"classes[{wanted.name}].value", (wanted.value,), 1)
        if not (1 <= self.horizon <= 1000 and 0.0 < self.step_seconds <= 86_400.0):
            raise InputError("the horizon must be 1 to 1000 steps of at most a day", field="horizon")
        for level in (self.service_level, *(wanted.service_level for wanted in self.classes)):
            if level is not None and not 0.0 < level < 1.0:
                raise InputError(f"{level:g} is not in (0, 1)", field="service_level")

    @property
    def capacity(self) -> Floats:
        """Return the (M, R) capacities."""
        return np.array([kind.capacity for kind in self.machines], dtype=np.float64)

    @property
    def sizes(self) -> Floats:
        """Return the (K, R) container sizes."""
        return np.array([wanted.size for wanted in self.classes], dtype=np.float64)

    def hosts(self) -> Booleans:
        """Return (M, K): whether a machine of the type holds a container of the class, the psi of eq. 8."""
        fits: Booleans = np.all(
            self.sizes[None, :, :] <= self.capacity[:, None, :] * (1 + 1e-9), axis=2, keepdims=False
        )
        if self.allowed is not None:
            np.logical_and(fits, self.allowed, out=fits)
        return fits

    def container_watts(self) -> Floats:
        """Return (M, K): watts that a running container adds, the second part of eq. 9 with cpu as the resource."""
        cpu, size = self.capacity[:, :1], self.sizes[:, 0]
        slope = np.array([kind.power.slope for kind in self.machines])[:, None]
        return np.divide(slope * size, cpu, out=np.zeros((len(self.machines), len(self.classes))), where=cpu > 0)

    def cheapest(self, price: float) -> Floats:
        """Return (K,): the least money for an hour of a container on a machine started now and kept for the horizon.

        ``price``: the mean price of energy. The hours of the boot are paid without use. 0 for a class that no machine
        holds.
        """
        capacity, sizes, hosts = self.capacity, self.sizes, self.hosts()
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(sizes[None] > 0, sizes[None] / capacity[:, None], 0.0).max(axis=2)
        idle = np.array([kind.power.idle for kind in self.machines]) * price / 1000.0
        rent = np.array([kind.hourly_cost for kind in self.machines])
        steps_up = np.array([max(self.horizon - kind.boot_steps, 1) for kind in self.machines])
        switch = np.array([kind.on_cost + kind.off_cost for kind in self.machines])
        on = (idle + rent) * self.horizon / steps_up + switch * 3600.0 / (self.step_seconds * steps_up)
        omega = np.array([wanted.overprovisioning for wanted in self.classes])
        cost = omega * shares * on[:, None] + self.container_watts() * price / 1000.0
        least = np.where(hosts, cost, np.inf).min(axis=0)
        # A class that no machine holds is never served, whatever its value; one without cost is still worth serving.
        found: Floats = np.where(np.isfinite(least), np.maximum(least, 1e-9), 0.0)
        return found

    def worth(self, price: float) -> tuple[Floats, Floats]:
        """Return (K,) money for an hour of a needed container, and (K,) the highest quantiles at which it pays."""
        cheapest = self.cheapest(price)
        levels = np.array(
            [self.service_level if wanted.service_level is None else wanted.service_level for wanted in self.classes]
        )
        own = np.array([np.nan if wanted.value is None else wanted.value for wanted in self.classes])
        with np.errstate(divide="ignore", invalid="ignore"):
            stated = np.where(own > cheapest, 1.0 - cheapest / own, 0.0)
        values: Floats = np.where(np.isnan(own), cheapest / (1.0 - levels), own)
        return values, np.where(np.isnan(own), levels, stated)


@dataclass(frozen=True, slots=True, eq=False)
class Park:
    """The machines at the moment of a plan.

    Attributes
    ----------
    powered : (M,) machines that draw power: up, booting or draining.
    available : (M,) machines that exist and could be on, without failed ones.
    booting : (M, W) of ``powered``, those that are not up yet in each step of the horizon.
    held : (M, W) machines that must stay on in each step: started too recently to be stopped.
    """

    powered: Floats
    available: Floats
    booting: Floats
    held: Floats

    @classmethod
    def of(cls, model: CapacityModel, powered: Floats) -> Park:
        """Return a park with all powered machines up and none started recently."""
        none = np.zeros((len(model.machines), model.horizon))
        counts = np.array([float(kind.count) for kind in model.machines])
        return cls(np.asarray(powered, dtype=np.float64), counts, none, none)


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """The forecasts.

    Attributes
    ----------
    probabilities : (J,) rising, in (0, 1).
    demand : (W, K, J) quantiles of the containers needed at each step.
    price : (W,) money for a kWh, carbon included where it is priced.
    """

    probabilities: tuple[float, ...]
    demand: Floats
    price: Floats

    def check(self, model: CapacityModel) -> None:
        """Raise InputError, one sentence, when the outlook is invalid."""
        shape = (model.horizon, len(model.classes), len(self.probabilities))
        if self.demand.shape != shape:
            raise InputError(f"has shape {self.demand.shape}, {shape} was expected", field="demand")
        if self.price.shape != (model.horizon,):
            raise InputError(f"has {self.price.size} prices for {model.horizon} steps", field="price")
        if not np.isfinite(self.price).all():
            raise InputError("a price is missing or not a number", field="price")
        if np.abs(self.price).max() > LARGEST:
            raise InputError(f"a price beyond {LARGEST:g} is no price", field="price")
        if not np.isfinite(self.demand).all():
            raise InputError("a forecast of demand is missing or not a number", field="demand")
        if self.demand.size and (self.demand.min() < 0 or self.demand.max() > LARGEST):
            raise InputError(f"demand must lie in [0, {LARGEST:g}] containers", field="demand")
        chances = np.asarray(self.probabilities)
        if not len(chances) or chances.min() <= 0 or chances.max() >= 1 or (np.diff(chances) <= 0).any():
            raise InputError("probabilities must rise within (0, 1)", field="probabilities")


def check_park(park: Park, model: CapacityModel) -> None:
    """Raise InputError, one sentence, when counts of machines are invalid."""
    kinds, wide = len(model.machines), (len(model.machines), model.horizon)
    for name, counts, shape in (
        ("powered", park.powered, (kinds,)),
        ("available", park.available, (kinds,)),
        ("booting", park.booting, wide),
        ("held", park.held, wide),
    ):
        if counts.shape != shape:
            raise InputError(f"has shape {counts.shape}, {shape} was expected", field=name)
        if not np.isfinite(counts).all() or counts.min() < 0 or counts.max() > LARGEST:
            raise InputError("counts of machines must be finite and >= 0", field=name)


def _check_numbers(name: str, numbers: tuple[float, ...], expected: int) -> None:
    if len(numbers) != expected:
        raise InputError(f"has {len(numbers)} numbers where {expected} are expected", field=name)
    for number in numbers:
        if not np.isfinite(number) or not 0.0 <= number <= LARGEST:
            raise InputError(f"{number!r} is not a number in [0, {LARGEST:g}]", field=name)
