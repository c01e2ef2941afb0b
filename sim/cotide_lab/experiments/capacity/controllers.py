"""The controllers of the capacity experiment: container-based provisioning in its forms, and its baselines.

Made by `contenders` for each scenario; each looks at the park once a step and returns the wanted machines of each type.
All except plain Harmony, packing and those that switch nothing have the two rules of the first step (`FirstStep`).
Invariant: only the oracle knows future tasks and prices.
"""

from __future__ import annotations

import copy
import math
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning.capacity_model import PROBABILITIES, CapacityModel, Outlook, Park
from cotide_core.provisioning.capacity_plan import CapacityPlan, plan_capacity
from cotide_core.provisioning.capacity_program import CapacityProgram
from cotide_core.provisioning.first_step import Standing, raised
from cotide_core.provisioning.overprovisioning import PAPER, LearnedFactor
from cotide_core.provisioning.stabilization import Stabilization
from cotide_lab.experiments.capacity.learned import HORIZON, Learned, capacity_model
from cotide_lab.experiments.capacity.scenarios import Scenario
from cotide_lab.provisioning import baselines
from cotide_lab.provisioning import park_kernel as kernel
from cotide_lab.provisioning.park import MachinePark
from cotide_lab.provisioning.round_robin import type_shares
from cotide_solvers.highs import HighsSolver

Floats = NDArray[np.float64]

MANY: Final = 1e9
"""Number of containers without any request for a machine's resources."""


class Controller(Protocol):
    """Decides machines; ``rule`` places tasks on them."""

    rule: int

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return (M,) machines wanted, and (S, M) weights for the rule by turns."""
        ...


class FirstStep:
    """The two rules of `first_step` on the park: machines for waiting tasks, and only idle machines go."""

    def __init__(self, scene: Scenario, model: CapacityModel) -> None:
        self._scene, self._model = scene, model
        self._idle_before = np.zeros(sum(kind.count for kind in scene.machines), dtype=np.bool_)

    def raised(self, wanted: Floats, park: MachinePark) -> Floats:
        """Return the (M,) machines, raised."""
        price = float(self._scene.price_at(np.array([park.now / 1000.0]))[0])
        return raised(wanted, self._model, self._standing(park), price)

    def _standing(self, park: MachinePark) -> Standing:
        """Return the machines that take tasks now or soon, their free resources, and the needs of waiting tasks.

        A machine that was busy a step ago counts as busy: one that has just become idle may be needed in the next
        minute.
        """
        machines = park.machines
        takes = (machines.state == kernel.UP) | (machines.state == kernel.BOOTING)
        idle = (machines.state == kernel.UP) & (machines.held == 0)
        before, self._idle_before = self._idle_before, idle
        there = np.array([float(kind.count) for kind in park.types])
        busy = takes & ~(idle & before) & (machines.state == kernel.UP)
        return Standing(there, machines.free[takes], machines.kind[takes], busy[takes], waiting_needs(park))


class Provisioning:
    """Container-based provisioning by model predictive control, with one of several sources of demand.

    ``source``: ``forecast``, ``oracle``, ``last value`` or ``yesterday``. ``horizon`` 1 without switching costs is the
    greedy that ignores them. ``reserve`` multiplies demand. ``plain``: as in the paper, with its factor and without the
    rules of the first step; else the over-provisioning factor is learned from the losses of packing.
    """

    rule = kernel.ROUND_ROBIN

    def __init__(
        self,
        scene: Scenario,
        learned: Learned,
        *,
        source: str = "forecast",
        horizon: int = HORIZON,
        switching: bool = True,
        reserve: float = 1.0,
        plain: bool = False,
        level: float = 0.95,
    ) -> None:
        self._scene, self._learned, self._source, self._reserve = scene, learned, source, reserve
        self._model = capacity_model(scene, learned, horizon=horizon, switching=switching, level=level)
        self._certain = source != "forecast"
        self._levels = PROBABILITIES if not self._certain else (0.5,)
        self._program = CapacityProgram(self._model, len(self._levels))
        self._solver = HighsSolver(time_limit_seconds=math.inf)
        self._demand = copy.deepcopy(learned.demand)
        self._factor = None if plain else LearnedFactor.start(len(learned.classes.sizes_))
        self._first_step = None if plain else FirstStep(scene, self._model)
        self._started: list[Floats] = []
        self._came = 0
        self.plans: list[CapacityPlan] = []

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return machines and weights."""
        wanted = self.containers(park, step) * self._reserve
        if self._factor is not None:
            self._factor = self._factor.after(*self._waited(park))
            by_label = np.array([self._factor.factor[group] for group, _ in self._demand.labels_])
            wanted = wanted * (by_label / PAPER)[None, :, None]
        outlook = Outlook(self._levels, wanted, self._price(step))
        plan = plan_capacity(self._program, self._solver, self._park(park), outlook)
        self.plans.append(plan)
        now = plan.machines[0] if self._first_step is None else self._first_step.raised(plan.machines[0], park)
        self._started.append(np.maximum(now - park.counts(kernel.BOOTING, kernel.UP), 0.0))
        return now, self._weights(plan, now)

    def _price(self, step: int) -> Floats:
        """Return (W,) money for a kWh; only the oracle knows the prices of later hours."""
        steps, seconds = self._model.horizon, self._scene.step_seconds
        if self._source == "oracle":
            return self._scene.price_at((step + np.arange(steps, dtype=np.float64)) * seconds)
        return self._scene.foreseen_price(step * seconds, steps)

    def _take(self, park: MachinePark) -> None:
        classes = len(self._learned.classes.sizes_)
        passed = int(park.queues.scalar[1])
        came = np.bincount(self._learned.label[self._came : passed], minlength=classes).astype(np.float64)
        self._came = passed
        if park.now > 0:
            self._demand.update(came, park.queues.most.astype(np.float64))

    def containers(self, park: MachinePark, step: int) -> Floats:
        """Record the arrivals since the last step, and return (W, K, J) containers that will be needed."""
        self._take(park)
        demand, horizon = self._demand, self._model.horizon
        label, age = park.running()
        waiting = park.queues.length.astype(np.float64)
        if self._source == "forecast":
            return demand.predict(label, age, waiting, PROBABILITIES)[:horizon]
        mean = demand.mean(label, age, waiting)[:horizon]
        if self._source == "last value":
            there = (park.queues.most if park.now else park.queues.there).astype(np.float64)
            of_size = np.broadcast_to(there, (horizon, len(there)))
        else:
            source = self._learned.peaks if self._source == "oracle" else self._learned.yesterday
            of_size = source[step : step + horizon].copy()
            # Waiting tasks need containers in addition: even true arrivals do not include the queue.
            of_size[0] = np.maximum(of_size[0], park.queues.there)
        return demand.by_label(of_size[:, :, None], mean)

    def _park(self, park: MachinePark) -> Park:
        model = self._model
        booting = np.zeros((len(model.machines), model.horizon))
        held = np.zeros_like(booting)
        for back, started in enumerate(reversed(self._started[-8:]), start=1):
            for kind, machine in enumerate(model.machines):
                left = machine.minimum_up_steps - back
                if left > 0:
                    held[kind, :left] += started[kind]
        on = park.counts(kernel.BOOTING, kernel.UP)
        counts = np.array([float(kind.count) for kind in model.machines])
        return Park(on, counts, booting, np.minimum(held, on[:, None]))

    def _weights(self, plan: CapacityPlan, now: Floats) -> Floats:
        """Return (S, M): the shares of types in a size class's containers, short and long together."""
        model = self._model
        shape = (len(self._learned.classes.sizes_), len(model.machines))
        of_size, holds = np.zeros(shape), np.zeros(shape)
        room = np.broadcast_to(model.capacity[:, None], (*model.hosts().shape, model.capacity.shape[1]))
        times = np.divide(room, model.sizes[None], out=np.full(room.shape, np.inf), where=model.sizes[None] > 0)
        times = np.where(model.hosts(), np.floor(np.minimum(times.min(axis=2), MANY)), 0.0)
        for column, (group, _) in enumerate(self._demand.labels_):
            of_size[group] += plan.containers[0, :, column]
            holds[group] = np.maximum(holds[group], times[:, column])
        return type_shares(of_size, now, holds)

    def _waited(self, park: MachinePark) -> tuple[NDArray[np.bool_], Floats]:
        """Return (S,) whether tasks wait while free parts together could hold one, and (S,) how full machines are."""
        machines, sizes = park.machines, self._learned.sizes
        up = machines.state == kernel.UP
        waited, filled = np.zeros(len(sizes), dtype=np.bool_), np.ones(len(sizes))
        for group in np.flatnonzero(park.queues.length > 0):
            able = up & (machines.capacity >= sizes[group] - 1e-9).all(axis=1)
            free, capacity = machines.free[able].sum(axis=0), machines.capacity[able].sum(axis=0)
            if able.any() and (free >= sizes[group]).all():
                waited[group] = True
                filled[group] = float((1.0 - free / np.maximum(capacity, 1e-9)).max())
        return waited, filled


class Stabilized:
    """Another controller with machines that go only after some time without demand for them."""

    def __init__(self, controller: Controller, seconds: float) -> None:
        self.rule = controller.rule
        self._controller, self._window = controller, Stabilization(seconds)

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return the machines that the other wants, or wanted recently and that are still on."""
        wanted, weights = self._controller.decide(park, step)
        on = park.counts(kernel.BOOTING, kernel.UP)
        self._window, kept = self._window.after(park.now / 1000.0, wanted, on)
        return kept, weights


class Oblivious:
    """The paper's baseline: the same forecasts as total resources, machines by energy efficiency, first fit.

    ``reserve``: capacity over the 95 % quantile of demand.
    """

    rule = kernel.FIRST_FIT

    def __init__(self, scene: Scenario, learned: Learned, *, reserve: float = 1.0) -> None:
        self._own = Provisioning(scene, learned)
        self._first_step = FirstStep(scene, capacity_model(scene, learned))
        self._learned, self._reserve = learned, reserve

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return machines for the highest 95 % quantile until a machine started now is up."""
        soon = self._own.containers(park, step)[:2, :, PROBABILITIES.index(0.95)].max(axis=0)
        sizes = np.array([self._learned.sizes[group] for group, _ in self._learned.demand.labels_])
        return self._first_step.raised(baselines.oblivious(_fleet(park), self._reserve * (soon @ sizes)), park), None


class Reactive:
    """Thresholds on utilisation; ``reserve`` lowers them."""

    rule = kernel.FIRST_FIT

    def __init__(self, scene: Scenario, learned: Learned, *, reserve: float = 1.0) -> None:
        self._first_step = FirstStep(scene, capacity_model(scene, learned))
        self._idle_watts = np.array([kind.power.idle for kind in scene.machines])
        self._reserve = reserve

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return the machines on, ten per cent more or ten per cent less, and machines for waiting tasks."""
        del step
        on = park.machines.state == kernel.UP
        used = (park.machines.capacity[on] - park.machines.free[on]).sum(axis=0)
        wanted = baselines.reactive(_fleet(park), used, waiting_needs(park), self._idle_watts, self._reserve)
        return self._first_step.raised(wanted, park), None


class Packing:
    """Power-aware packing (PWR+FGD, Lettich et al. 2024): machines start for tasks that wait, go when they are idle.

    ``reserve``: 1.1 keeps a tenth of the machines that are on idle as a spare.
    """

    rule = kernel.POWER_AND_FRAGMENTS

    def __init__(self, scene: Scenario, learned: Learned, *, reserve: float = 1.0) -> None:
        del learned
        self._reserve = reserve
        self._idle_watts = np.array([kind.power.idle for kind in scene.machines])
        self._idle_before = np.zeros(sum(kind.count for kind in scene.machines), dtype=np.bool_)

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return machines for waiting tasks, without those that were idle for a whole step."""
        del step
        machines = park.machines
        idle = (machines.state == kernel.UP) & (machines.held == 0)
        leaving = np.bincount(machines.kind[idle & self._idle_before], minlength=len(self._idle_watts))
        self._idle_before = idle
        fleet = _fleet(park)
        spare = np.ceil((self._reserve - 1.0) * fleet.on)
        tasks = waiting_needs(park)
        more = baselines.for_waiting(fleet, self._idle_watts, tasks) if len(tasks) else np.zeros(len(fleet.on))
        gone = np.maximum(leaving - spare, 0.0) if not len(tasks) else np.zeros(len(fleet.on))
        return fleet.on + more - gone, None


class Unchanging:
    """All machines, always: the baseline of savings by provisioning; or none at all, which serves no task."""

    rule = kernel.FIRST_FIT

    def __init__(self, scene: Scenario, *, share: float = 1.0) -> None:
        self._machines = np.array([share * kind.count for kind in scene.machines])

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return the same in every step."""
        del park, step
        return self._machines, None


def _fleet(park: MachinePark) -> baselines.Fleet:
    capacity = np.array([kind.capacity for kind in park.types])
    count = np.array([float(kind.count) for kind in park.types])
    return baselines.Fleet(capacity, count, park.counts(kernel.BOOTING, kernel.UP), park.order_by_efficiency)


def waiting_needs(park: MachinePark) -> Floats:
    """Return (n, R) of the first 2,000 tasks that wait."""
    found: list[Floats] = []
    for head in park.queues.head:
        task = int(head)
        while task >= 0 and len(found) < 2000:
            found.append(park.tasks.need[task])
            task = int(park.queues.follower[task])
    return np.array(found) if found else np.zeros((0, park.tasks.need.shape[1]))
