"""Advice: how many machines of each type should be on in the next hours, from the cluster and a history.

Called by `cotide capacity`, and by the operator's `controller` in a thread. All present pods of online services are
needed for the whole horizon. For the other pods, ended tasks (`History`) teach classes, run times and arrivals. Without
a history, the present tasks form the classes, run as long as the configuration states, and no arrival is foreseen.
Invariant: existing room is used before a node is started, since the plan covers all pods, running ones included. A pod
needs no new machine when other pods make room for it within the boot time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_core.provisioning.capacity_model import (
    PROBABILITIES,
    CapacityModel,
    ContainerClass,
    MachineType,
    Outlook,
    Park,
)
from cotide_core.provisioning.capacity_plan import CapacityPlan, plan_capacity
from cotide_core.provisioning.capacity_program import CapacityProgram
from cotide_core.provisioning.containers import container_sizes, groups_per_machine
from cotide_core.provisioning.first_step import Standing, first_step
from cotide_core.provisioning.overprovisioning import PAPER
from cotide_core.provisioning.power import PowerCurve
from cotide_core.units import CPU, MEMORY, resource_amount
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.provisioning.cluster_view import ClusterView
from cotide_predictors.capacity.calibration import calibrated_demand
from cotide_predictors.capacity.container_demand import ContainerDemand
from cotide_predictors.capacity.task_classes import SizeClass, TaskClasses
from cotide_solvers.highs import HighsSolver

Floats = NDArray[np.float64]

MAX_STEPS: Final = 100_000
"""Steps of a history (chosen): a year of five minutes, which takes half a minute; more is an error of units."""
FIT_PROBABILITY: Final = 0.9
KEPT: Final = 2
"""Column of `Advice.reasons` with machines that are kept on."""
ONLINE_LEVEL: Final = 0.95
"""Share of the need of online pods that is worth serving, whatever ``serviceLevel`` is (chosen): these pods exist, and
a level that lets cheap tasks wait does not suit them."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Tasks that have ended: (n,) arrival and run in seconds, (n, 2) millicores and bytes, (n,) priority.

    ``until``: the second at which it ends, on the same clock; None for the last arrival.
    """

    arrival: Floats
    seconds: Floats
    need: Floats
    priority: Floats
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Underway:
    """State that nodes alone do not show, by machine type.

    Attributes
    ----------
    coming : seconds until each ordered machine is up.
    held : remaining seconds that recently started nodes must stay on.
    barred : types that cannot be ordered now, since their last machines did not boot.
    away : machines that exist and are not available: lost, being switched off, cordoned by a person.
    """

    coming: Mapping[str, Sequence[float]] = field(default_factory=dict)
    held: Mapping[str, Sequence[float]] = field(default_factory=dict)
    barred: frozenset[str] = frozenset()
    away: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """A plan and its input.

    Attributes
    ----------
    kinds : names of the machine types.
    on : (M,) machines that are on now.
    demand : (W, K, J) quantiles of containers, ``probabilities`` (J,); ``classes`` (K,) in words.
    present : (K,) present pods of each class.
    reasons : (M, 4) wanted machines by reason: for present pods; for foreseen pods; kept on since a stop would not pay,
        or not yet. The fourth counts beyond the plan: machines of a resting type (`Underway.barred`) that would be
        wanted for pods that no other type serves.
    """

    kinds: tuple[str, ...]
    on: Floats
    plan: CapacityPlan
    demand: Floats
    probabilities: tuple[float, ...]
    classes: tuple[str, ...]
    present: Floats
    reasons: Floats

    def keeping(self, machines: Floats) -> Advice:
        """Return the advice with ``(M,)`` machines wanted now; machines beyond the plan count as kept on."""
        more = np.maximum(machines - self.plan.machines[0], 0.0)
        reasons = self.reasons.copy()
        reasons[:, KEPT] += more
        later = self.plan.machines[1:]
        raised = replace(self.plan, machines=np.concatenate(((self.plan.machines[0] + more)[None], later)))
        return replace(self, plan=raised, reasons=reasons)


@dataclass(frozen=True, slots=True, eq=False)
class _Needs:
    """Classes of containers, in shares of the largest machine: names, sizes, demand and present pods.

    ``levels``: service levels, None for the configured one.
    """

    names: tuple[str, ...]
    sizes: Floats
    demand: Floats
    present: Floats
    levels: tuple[float | None, ...]


def advise(
    settings: ProvisioningSettings,
    view: ClusterView,
    history: History | None,
    underway: Underway | None = None,
    *,
    overprovisioning: float = PAPER,
    time_limit_seconds: float = 60.0,
    price: Floats | None = None,
    moves: bool = True,
) -> Advice:
    """Return a plan for the next hours.

    Parameters
    ----------
    moves : whether pods are moved off nodes that should stop; otherwise only idle nodes may stop.
    overprovisioning : the factor of Zhang and Boutaba 2014, eq. 13, as learned so far.
    time_limit_seconds : for the solver, in seconds of the wall.
    price : (W,) money for a kWh at each step, carbon included where it is priced; None for the configured constant.

    Raises
    ------
    InputError
        When there is no demand to plan for, or an input is invalid; the caller keeps its last plan.
    """
    machines = machine_types(settings)
    scale = np.array([kind.capacity for kind in machines]).max(axis=0)
    if (scale <= 0).any():
        raise InputError("no machine type has cpu and memory", field="provisioning.machineTypes")
    shares = tuple(replace(kind, capacity=_shares(kind.capacity, scale)) for kind in machines)
    capacity = np.array([kind.capacity for kind in shares])
    needs = _both(_tasks(settings, view, history, capacity, scale), _services(settings, view, capacity, scale))
    classes = tuple(
        ContainerClass(name, tuple(size), overprovisioning, service_level=level)
        for name, size, level in zip(needs.names, needs.sizes.tolist(), needs.levels, strict=True)
    )
    model = CapacityModel(shares, classes, settings.step_seconds, settings.horizon_steps, settings.service_level)
    on = np.array([float(sum(node.kind == kind.name for node in view.nodes)) for kind in machines])
    constant = np.full(settings.horizon_steps, settings.energy_price)
    outlook = Outlook(PROBABILITIES, needs.demand, constant if price is None else price)
    program, solver = CapacityProgram(model, len(PROBABILITIES)), HighsSolver(time_limit_seconds=time_limit_seconds)
    underway = underway or Underway()
    park = _park(model, on, underway)
    planned = plan_capacity(program, solver, park, outlook)
    now = float(outlook.price[0])
    standing = _standing(model, view, underway, park.available, scale, moves)
    plan = first_step(planned, model, standing, now)
    raised_by = plan.machines[0] - planned.machines[0]
    beyond = np.zeros(len(machines))
    if underway.barred:
        free = _park(model, on, replace(underway, barred=frozenset()))
        beyond = _would_want(program, solver, free, outlook, planned, underway.barred)
    minimum = np.array([kind.minimum_on for kind in settings.machine_types], dtype=np.float64)
    minimum = np.minimum(minimum, _to_be_had(model, underway))  # a person may hold one of them: no other one exists
    raised = replace(plan, machines=np.maximum(plan.machines, minimum[None]))
    beyond = np.maximum(beyond - (raised.machines[0] - plan.machines[0]), 0.0)
    names = tuple(kind.name for kind in machines)
    reasons = np.column_stack((_reasons(model, raised, needs.present, raised_by), beyond))
    return Advice(names, on, raised, needs.demand, PROBABILITIES, needs.names, needs.present, reasons)


def _would_want(
    program: CapacityProgram, solver: HighsSolver, free: Park, outlook: Outlook, plan: CapacityPlan, barred: Set[str]
) -> Floats:
    """Return (M,): machines of resting types that a plan for the unserved demand would start now."""
    served = np.maximum(outlook.demand[:, :, -1] - plan.unserved, 0.0)
    left = replace(outlook, demand=np.maximum(outlook.demand - served[:, :, None], 0.0))
    rests = np.array([kind.name in barred for kind in program.model.machines])
    to_be_had = np.where(rests, np.maximum(free.available - free.powered, 0.0), 0.0)
    park = replace(Park.of(program.model, np.zeros(len(rests))), available=to_be_had)
    wanted: Floats = plan_capacity(program, solver, park, left).machines[0]
    return wanted


def machine_types(settings: ProvisioningSettings) -> tuple[MachineType, ...]:
    """Return the machine types of the configuration, in millicores and bytes."""
    step = settings.step_seconds
    return tuple(
        MachineType(
            kind.name,
            (float(resource_amount(CPU, kind.cpu)), float(resource_amount(MEMORY, kind.memory))),
            kind.count,
            PowerCurve((kind.idle_watts, kind.peak_watts)),
            kind.switch_cost,
            0.0,
            int(np.ceil(kind.boot_seconds / step)),
            int(np.ceil(kind.minimum_up_seconds / step)),
            kind.hourly_cost,
        )
        for kind in settings.machine_types
    )


def _tasks(
    settings: ProvisioningSettings, view: ClusterView, history: History | None, capacity: Floats, scale: Floats
) -> _Needs | None:
    """Return the needs of pods that end, present and future ones; None when no such pod is known."""
    here = ~view.online
    need, priority = view.need[here] / scale, view.priority[here]
    if history is not None and len(history.arrival):
        last = history.arrival.max() if history.until is None else history.until
        steps = (last - history.arrival.min()) / settings.step_seconds
        if steps > MAX_STEPS:
            words = f"goes over {steps:.0f} steps of {settings.step_seconds:g} s, at most {MAX_STEPS} are allowed"
            raise InputError(words, field="history")
        past = history.need / scale
        classes = TaskClasses().fit(past, history.priority, history.seconds)
        demand = calibrated_demand(
            classes, past, history.priority, history.arrival, history.seconds,
            step_seconds=settings.step_seconds, horizon=settings.horizon_steps, until=history.until,
        )  # fmt: skip
    elif len(need):
        classes = TaskClasses().fit(need, priority, np.full(len(need), settings.run_seconds))
        demand = ContainerDemand(
            classes=classes, step_seconds=settings.step_seconds, horizon=settings.horizon_steps
        )  # fmt: skip
    else:
        return None
    label = classes.at_arrival(need, priority) if len(need) else np.zeros(0, dtype=np.int64)
    waits, age = view.waiting[here], view.age[here]
    waiting = np.bincount(label[waits], minlength=len(classes.sizes_)).astype(np.float64)
    wanted = demand.predict(label[~waits], age[~waits], waiting, PROBABILITIES)
    long = classes.is_long(label, age) & ~waits
    present = np.array([float(((label == index) & (long == tall)).sum()) for index, tall in demand.labels_])
    sizes = _sizes(
        [classes.sizes_[index] for index, _ in demand.labels_], [tall for _, tall in demand.labels_], capacity
    )
    names = tuple(
        f"{_words(size, scale)}{' long' if tall else ''}" for size, (_, tall) in zip(sizes, demand.labels_, strict=True)
    )
    return _Needs(names, sizes, wanted, present, (None,) * len(names))


def _services(settings: ProvisioningSettings, view: ClusterView, capacity: Floats, scale: Floats) -> _Needs | None:
    """Return the needs of online pods, which stay; None when there are none."""
    if not view.online.any():
        return None
    need, priority = view.need[view.online] / scale, view.priority[view.online]
    classes = TaskClasses().fit(need, priority, np.ones(len(need)))
    present = np.bincount(classes.at_arrival(need, priority), minlength=len(classes.sizes_)).astype(np.float64)
    sizes = _sizes(classes.sizes_, [False] * len(classes.sizes_), capacity)
    shape = (settings.horizon_steps, len(present), len(PROBABILITIES))
    demand = np.broadcast_to(present[None, :, None], shape)
    names = tuple(f"{_words(size, scale)} online" for size in sizes)
    return _Needs(names, sizes, demand, present, (ONLINE_LEVEL,) * len(names))


def _both(tasks: _Needs | None, services: _Needs | None) -> _Needs:
    found = [needs for needs in (tasks, services) if needs is not None]
    if not found:
        raise InputError("there is no pod and no history to plan for: the demand is unknown", field="pods")
    return _Needs(
        tuple(name for needs in found for name in needs.names),
        np.concatenate([needs.sizes for needs in found]),
        np.concatenate([needs.demand for needs in found], axis=1),
        np.concatenate([needs.present for needs in found]),
        tuple(level for needs in found for level in needs.levels),
    )


def _sizes(classes: Sequence[SizeClass], long: Sequence[bool], capacity: Floats) -> Floats:
    """Return (K, R) container sizes, each for the long or the short tasks of a class."""
    mean, deviation, largest = (
        np.stack([getattr(size_class, part)[int(tall)] for size_class, tall in zip(classes, long, strict=True)])
        for part in ("mean", "deviation", "largest")
    )
    groups = groups_per_machine(mean, deviation, capacity, FIT_PROBABILITY)
    return container_sizes(mean, deviation, largest, groups, FIT_PROBABILITY)


def _words(size: Floats, scale: Floats) -> str:
    return f"{size[0] * scale[0]:.0f}m {size[1] * scale[1] / 2**20:.0f}Mi"


def _shares(capacity: tuple[float, ...], scale: Floats) -> tuple[float, ...]:
    return tuple(float(part) for part in np.array(capacity) / scale)


def _park(model: CapacityModel, on: Floats, underway: Underway) -> Park:
    """Return the existing machines; an overdue machine counts as up one step from now."""
    begins = np.arange(model.horizon) * model.step_seconds
    coming = [np.maximum(underway.coming.get(kind.name, ()), 1.0) for kind in model.machines]
    held = [np.asarray(underway.held.get(kind.name, ()), dtype=np.float64) for kind in model.machines]
    powered = on + [len(one) for one in coming]
    counts = _to_be_had(model, underway)
    barred = np.array([kind.name in underway.barred for kind in model.machines])
    return Park(
        powered,
        np.where(barred, np.minimum(powered, counts), counts),
        np.array([[float((one > at).sum()) for at in begins] for one in coming]),
        np.array([[float((samples > at).sum()) for at in begins] for samples in held]),
    )


def _to_be_had(model: CapacityModel, underway: Underway) -> Floats:
    """Return (M,) machines that are on or could be."""
    return np.array([float(max(kind.count - underway.away.get(kind.name, 0), 0)) for kind in model.machines])


def _standing(
    model: CapacityModel, view: ClusterView, underway: Underway, available: Floats, scale: Floats, moves: bool
) -> Standing:
    """Return the nodes that take pods now or later, their free room, and the waiting pods.

    A node that refuses the waiting pods exists without helping: it counts as busy and full.
    """
    index = {kind.name: number for number, kind in enumerate(model.machines)}
    rows = [row for row, node in enumerate(view.nodes) if not node.cordoned]
    kind = [index[view.nodes[row].kind] for row in rows]
    coming = [index[name] for name, seconds in underway.coming.items() for _ in seconds if name in index]
    types = np.array(kind + coming, dtype=np.int64)
    whole = model.capacity[types].reshape(-1, 2)
    free = np.concatenate((view.free[rows] / scale, whole[len(rows) :]))
    free = np.maximum(np.where(np.isnan(free), whole, free), 0.0)
    shut = np.array([view.nodes[row].name in view.shut for row in rows] + [False] * len(coming), dtype=np.bool_)
    free[shut] = 0.0
    busy = np.array([bool(view.nodes[row].pods) for row in rows] + [False] * len(coming), dtype=np.bool_)
    return Standing(
        available=available,
        free=free,
        kind=types,
        busy=busy | shut,
        waiting=view.need[view.waiting] / scale,
        takes=None if view.takes is None else view.takes[view.waiting],
        moves=moves,
    )


def _reasons(model: CapacityModel, plan: CapacityPlan, present: Floats, raised_by: Floats) -> Floats:
    """Return (M, 3), the first three reasons of `Advice`, at the step when machines that are ordered now are up.

    ``raised_by``: (M,) machines that `first_step` added to the plan, for waiting or running pods.
    """
    step = min(model.horizon - 1, max(kind.boot_steps for kind in model.machines))
    containers, wanted = plan.containers[step], plan.machines[0]
    total = containers.sum(axis=0)
    here = np.minimum(np.divide(present, total, out=np.ones_like(total), where=total > 0), 1.0)
    omega = np.array([container_class.overprovisioning for container_class in model.classes])
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [
            np.nan_to_num(((containers * share * omega) @ model.sizes) / model.capacity).max(axis=1)
            for share in (here, np.ones_like(here))
        ]
    pods, filled = (np.minimum(np.ceil(part - 1e-6) + raised_by, wanted) for part in parts)
    reasons: Floats = np.stack((pods, filled - pods, wanted - filled), axis=1)
    return reasons
