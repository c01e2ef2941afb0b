"""The controllers of the capacity experiment: container-based provisioning in its forms, and its rivals.

Made by `run` for each scenario; each looks at the park once a step and says how many machines of each type it wants.
Invariant: only the oracle looks at tasks that have not come.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning import rivals
from cotide_core.provisioning.capacity_model import PROBABILITIES, CapacityModel, ContainerClass, Outlook, Park
from cotide_core.provisioning.capacity_plan import CapacityPlan, plan_capacity
from cotide_core.provisioning.capacity_program import CapacityProgram
from cotide_core.provisioning.containers import container_sizes, groups_per_machine
from cotide_core.provisioning.first_step import Standing, first_step
from cotide_core.provisioning.overprovisioning import PAPER, LearnedFactor
from cotide_core.provisioning.stabilization import Stabilization
from cotide_predictors.capacity.calibration import calibrated_demand, occupancy_peaks
from cotide_predictors.capacity.container_demand import ContainerDemand
from cotide_predictors.capacity.task_classes import TaskClasses
from cotide_sim.experiments.capacity.scenarios import Scenario
from cotide_sim.provisioning import park_kernel as kernel
from cotide_sim.provisioning.park import MachinePark
from cotide_solvers.highs import HighsSolver

Floats = NDArray[np.float64]

HORIZON: Final = 12
"""Steps: an hour of five-minute steps (chosen)."""
FIT_PROBABILITY: Final = 0.9
"""That a group of containers holds its tasks (chosen)."""
HOSTED: Final = 0.9
"""Share of a label's tasks that a machine type must hold to be planned for it (chosen)."""


class Controller(Protocol):
    """Decides machines; ``rule`` is how tasks find them."""

    rule: int

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return (M,) machines wanted, and (S, M) weights for the rule by turns."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What the training part taught, shared by all controllers of a scenario; forecasts are copied before use.

    Attributes
    ----------
    label : (n,) size class of the run's tasks.
    peaks : (steps, S) most tasks of each size class in each step of the run, were none to wait: the true future.
    yesterday : (steps, S) the same of the day before the run, by time of day.
    sizes, shares : (S, R) mean needs, (S,) how common each class is.
    hosts : (M, K) whether machines of a type hold nine in ten tasks of a label.
    """

    classes: TaskClasses
    demand: ContainerDemand
    label: NDArray[np.int64]
    peaks: Floats
    yesterday: Floats
    sizes: Floats
    shares: Floats
    hosts: NDArray[np.bool_]


def learn(scene: Scenario, seed: int) -> Learned:
    """Fit classes and forecasts on the training part."""
    step = scene.step_seconds
    train, run = scene.train, scene.run
    classes = TaskClasses(random_state=seed).fit(train.need, train.priority, train.seconds)
    count = len(classes.sizes_)
    label = classes.at_arrival(train.need, train.priority)
    train_seconds = float(train.arrival[-1])
    steps = int(train_seconds // step)
    peaks = occupancy_peaks(label, train.arrival, train.seconds, count, step, steps)
    demand = calibrated_demand(
        classes, train.need, train.priority, train.arrival, train.seconds, step_seconds=step, horizon=HORIZON
    )
    run_label = classes.at_arrival(run.need, run.priority)
    run_steps = int(np.ceil((scene.warm_up_seconds + scene.score_seconds) / step)) + HORIZON + 1
    truth = occupancy_peaks(run_label, run.arrival, run.seconds, count, step, run_steps)
    day = round(86_400.0 / step)
    before = peaks[-day:] if steps >= day else peaks
    yesterday = before[np.arange(run_steps) % len(before)]
    sizes = np.stack([size.mean[0] * _short(size) + size.mean[1] * (1 - _short(size)) for size in classes.sizes_])
    shares = np.array([size.share for size in classes.sizes_])
    hosts = _hosts(scene, demand, label)
    return Learned(classes, demand, run_label, truth, yesterday, sizes, shares, hosts)


def _hosts(scene: Scenario, demand: ContainerDemand, label: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return (M, K): a mean that fits is not enough where sizes differ; at least the best type of each label."""
    capacity = np.array([kind.capacity for kind in scene.machines])
    share = np.zeros((len(capacity), len(demand.labels_)))
    long = demand.classes.is_long(label, scene.train.seconds)
    for column, (group, is_long) in enumerate(demand.labels_):
        need = scene.train.need[(label == group) & (long == is_long)]
        if len(need):
            share[:, column] = (need[None] <= capacity[:, None] + 1e-9).all(axis=2).mean(axis=1)
    enough: NDArray[np.bool_] = (share >= HOSTED) | (share >= share.max(axis=0, keepdims=True) - 1e-9)
    return enough


def _short(size: object) -> float:
    seconds, limit = size.seconds, size.long_after  # type: ignore[attr-defined]  # a SizeClass
    return float((seconds < limit).mean())


def capacity_model(
    scene: Scenario, learned: Learned, *, horizon: int = HORIZON, switching: bool = True, level: float = 0.95
) -> CapacityModel:
    """Return the model of eqs. 6-13 for a scenario: container sizes from the classes' distributions."""
    capacity = np.array([kind.capacity for kind in scene.machines])
    mean, deviation, largest = (
        np.stack([getattr(learned.classes.sizes_[group], part)[int(long)] for group, long in learned.demand.labels_])
        for part in ("mean", "deviation", "largest")
    )
    sizes = container_sizes(mean, deviation, largest, groups_per_machine(mean, capacity), FIT_PROBABILITY)
    machines = scene.machines
    if not switching:
        machines = tuple(replace(kind, on_cost=0.0, off_cost=0.0, boot_steps=0) for kind in machines)
    classes = tuple(
        ContainerClass(f"{group}{'L' if long else ''}", tuple(map(float, size)), PAPER)
        for (group, long), size in zip(learned.demand.labels_, sizes, strict=True)
    )
    return CapacityModel(machines, classes, scene.step_seconds, horizon, level, learned.hosts)


class Provisioning:
    """Container-based provisioning by model predictive control, with one of several sources of demand.

    ``source``: ``forecast``, ``oracle``, ``last value`` or ``yesterday``. ``horizon`` 1 without switching costs is the
    greedy that ignores them. ``reserve`` multiplies demand. ``learning``: whether the over-provisioning factor is
    learned from what packing lost, or stays the paper's.
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
        learning: bool = False,
        level: float = 0.95,
    ) -> None:
        self._scene, self._learned, self._source, self._reserve = scene, learned, source, reserve
        self._model = capacity_model(scene, learned, horizon=horizon, switching=switching, level=level)
        self._certain = source != "forecast"
        self._levels = PROBABILITIES if not self._certain else (0.5,)
        self._program = CapacityProgram(self._model, len(self._levels))
        self._solver = HighsSolver(time_limit_seconds=math.inf)
        self._demand = copy.deepcopy(learned.demand)
        self._factor = LearnedFactor.start(len(learned.classes.sizes_)) if learning else None
        self._started: list[Floats] = []
        self._came = 0
        self._idle_before = np.zeros(sum(kind.count for kind in scene.machines), dtype=np.bool_)
        self.plans: list[CapacityPlan] = []
        self.unplanned = 0

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return machines and weights; keeps the last plan's where there is none."""
        self._take(park)
        wanted = self._containers(park, step) * self._reserve
        if self._factor is not None:
            self._factor = self._factor.after(*self._waited(park))
            by_label = np.array([self._factor.factor[group] for group, _ in self._demand.labels_])
            wanted = wanted * (by_label / PAPER)[None, :, None]
        hours = (step + np.arange(self._model.horizon, dtype=np.float64)) * self._scene.step_seconds
        outlook = Outlook(self._levels, wanted, self._scene.price_at(hours))
        plan = plan_capacity(self._program, self._solver, self._park(park), outlook)
        self.plans.append(plan)
        standing = self._standing(park)
        now = first_step(plan, self._model, standing, float(outlook.price[0])).machines[0]
        self._started.append(np.maximum(now - park.counts(kernel.BOOTING, kernel.UP), 0.0))
        return now, self._weights(plan)

    def _standing(self, park: MachinePark) -> Standing:
        """Return the machines that take tasks or will, what is free on them, and what waits.

        One that was busy a step ago counts as busy: what has just become idle may be needed in the next minute.
        """
        machines = park.machines
        takes = (machines.state == kernel.UP) | (machines.state == kernel.BOOTING)
        idle = (machines.state == kernel.UP) & (machines.held == 0)
        before, self._idle_before = self._idle_before, idle
        there = np.array([float(kind.count) for kind in park.types])
        busy = takes & ~(idle & before) & (machines.state == kernel.UP)
        return Standing(there, machines.free[takes], machines.kind[takes], busy[takes], _waiting_needs(park))

    def _take(self, park: MachinePark) -> None:
        classes = len(self._learned.classes.sizes_)
        passed = int(park.queues.scalar[1])
        came = np.bincount(self._learned.label[self._came : passed], minlength=classes).astype(np.float64)
        self._came = passed
        if park.now > 0:
            self._demand.update(came, park.queues.most.astype(np.float64))

    def _containers(self, park: MachinePark, step: int) -> Floats:
        """Return (W, K, J)."""
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
            # Whoever waits needs a container besides: no truth about arrivals tells of the queue.
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

    def _weights(self, plan: CapacityPlan) -> Floats:
        """Return (S, M): the shares of types in a size class's containers, short and long together."""
        of_size = np.zeros((len(self._learned.classes.sizes_), len(self._model.machines)))
        for column, (group, _) in enumerate(self._demand.labels_):
            of_size[group] += plan.containers[0, :, column]
        total = of_size.sum(axis=1, keepdims=True)
        shares: Floats = np.divide(of_size, total, out=np.zeros_like(of_size), where=total > 0)
        return shares

    def _waited(self, park: MachinePark) -> tuple[NDArray[np.bool_], Floats]:
        """Return (S,) whether tasks wait beside free parts that together hold one, and (S,) how full machines are."""
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
    """Another controller whose machines go only when it did not want them for a while."""

    def __init__(self, controller: Controller, seconds: float) -> None:
        self.rule = controller.rule
        self._controller, self._window = controller, Stabilization(seconds)

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return what the other wants, or wanted lately and is still on."""
        wanted, weights = self._controller.decide(park, step)
        on = park.counts(kernel.BOOTING, kernel.UP)
        self._window, kept = self._window.after(park.now / 1000.0, wanted, on)
        return kept, weights


class Oblivious:
    """The paper's baseline: the same forecasts as total resources, machines by energy efficiency, first fit.

    ``reserve``: capacity over demand; 1.25 keeps utilisation at 80 %.
    """

    rule = kernel.FIRST_FIT

    def __init__(self, scene: Scenario, learned: Learned, *, reserve: float = 1.25) -> None:
        self._own = Provisioning(scene, learned)
        self._learned, self._reserve = learned, reserve

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return machines for the highest 95 % quantile until a machine started now is up."""
        self._own._take(park)
        soon = self._own._containers(park, step)[:2, :, PROBABILITIES.index(0.95)].max(axis=0)
        sizes = np.array([self._learned.sizes[group] for group, _ in self._learned.demand.labels_])
        return rivals.oblivious(_fleet(park), self._reserve * (soon @ sizes)), None


class Reactive:
    """Thresholds on utilisation; ``reserve`` lowers them."""

    rule = kernel.FIRST_FIT

    def __init__(self, scene: Scenario, learned: Learned, *, reserve: float = 1.0) -> None:
        del scene
        self._learned, self._reserve = learned, reserve

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return what is on, ten per cent more or ten per cent less."""
        del step
        on = park.machines.state == kernel.UP
        used = (park.machines.capacity[on] - park.machines.free[on]).sum(axis=0)
        waiting = park.queues.length @ self._learned.sizes
        return rivals.reactive(_fleet(park), used, waiting, self._reserve), None


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
        """Return machines for what waits, without those that were idle for a whole step."""
        del step
        machines = park.machines
        idle = (machines.state == kernel.UP) & (machines.held == 0)
        leaving = np.bincount(machines.kind[idle & self._idle_before], minlength=len(self._idle_watts))
        self._idle_before = idle
        fleet = _fleet(park)
        spare = np.ceil((self._reserve - 1.0) * fleet.on)
        tasks = _waiting_needs(park)
        more = rivals.for_waiting(fleet, self._idle_watts, tasks) if len(tasks) else np.zeros(len(fleet.on))
        gone = np.maximum(leaving - spare, 0.0) if not len(tasks) else np.zeros(len(fleet.on))
        return fleet.on + more - gone, None


class AlwaysOn:
    """All machines, always: what provisioning saves against."""

    rule = kernel.FIRST_FIT

    def __init__(self, scene: Scenario, learned: Learned, *, reserve: float = 1.0) -> None:
        del learned, reserve
        self._all = np.array([float(kind.count) for kind in scene.machines])

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, Floats | None]:
        """Return all."""
        del park, step
        return self._all, None


def _fleet(park: MachinePark) -> rivals.Fleet:
    capacity = np.array([kind.capacity for kind in park.types])
    count = np.array([float(kind.count) for kind in park.types])
    return rivals.Fleet(capacity, count, park.counts(kernel.BOOTING, kernel.UP), park.order_by_efficiency)


def _waiting_needs(park: MachinePark) -> Floats:
    """Return (n, R) of the first 2,000 tasks that wait."""
    found: list[Floats] = []
    for head in park.queues.head:
        task = int(head)
        while task >= 0 and len(found) < 2000:
            found.append(park.tasks.need[task])
            task = int(park.queues.follower[task])
    return np.array(found) if found else np.zeros((0, park.tasks.need.shape[1]))
