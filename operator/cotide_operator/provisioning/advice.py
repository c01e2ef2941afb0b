"""Advice: how many machines of each type should be on in the next hours, from what the cluster shows and a history.

Called by `cotide capacity`. Tasks that have ended (`History`) teach classes, run times and arrivals; without them all
pods are of the classes that the present ones form, run as long as the configuration says, and none is foreseen.
Invariant: slack is used up before a node is started, since the plan covers all pods, running ones included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_core.provisioning.capacity_model import CapacityModel, ContainerClass, MachineType, Outlook, Park
from cotide_core.provisioning.capacity_plan import CapacityPlan, plan_capacity
from cotide_core.provisioning.capacity_program import CapacityProgram
from cotide_core.provisioning.containers import container_sizes, groups_per_machine
from cotide_core.provisioning.power import PowerCurve
from cotide_core.units import CPU, MEMORY, resource_amount
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.provisioning.cluster_view import ClusterView
from cotide_predictors.capacity.calibration import calibrated_demand
from cotide_predictors.capacity.container_demand import ContainerDemand
from cotide_predictors.capacity.task_classes import TaskClasses
from cotide_solvers.highs import HighsSolver

Floats = NDArray[np.float64]

PROBABILITIES: Final = (0.5, 0.8, 0.95, 0.99)
FIT_PROBABILITY: Final = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Tasks that have ended: (n,) arrival and run in seconds, (n, 2) millicores and bytes, (n,) priority."""

    arrival: Floats
    seconds: Floats
    need: Floats
    priority: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """A plan and what it was made from.

    Attributes
    ----------
    kinds : names of the machine types.
    on : (M,) machines that are on now.
    demand : (W, K, J) quantiles of containers, ``probabilities`` (J,); ``classes`` (K,) in words.
    """

    kinds: tuple[str, ...]
    on: Floats
    plan: CapacityPlan
    demand: Floats
    probabilities: tuple[float, ...]
    classes: tuple[str, ...]


def advise(settings: ProvisioningSettings, view: ClusterView, history: History | None) -> Advice:
    """Return a plan for the next hours.

    Raises
    ------
    InputError
        When there is nothing to plan for, or an input makes no sense; the caller keeps its last plan.
    """
    machines = machine_types(settings)
    scale = np.array([kind.capacity for kind in machines]).max(axis=0)
    if (scale <= 0).any():
        raise InputError("no machine type has cpu and memory", field="provisioning.machineTypes")
    need = view.need / scale
    demand = _demand(settings, view, history, need, scale)
    label = demand.classes.at_arrival(need, view.priority)
    running = ~view.waiting
    waiting = np.bincount(label[view.waiting], minlength=len(demand.classes.sizes_)).astype(np.float64)
    wanted = demand.predict(label[running], view.age[running], waiting, PROBABILITIES)
    model, names = _model(settings, machines, demand, scale)
    on = np.array([float(sum(node.kind == kind.name for node in view.nodes)) for kind in machines])
    price = np.full(settings.horizon_steps, settings.price_per_kilowatt_hour)
    outlook = Outlook(PROBABILITIES, wanted, price)
    plan = plan_capacity(CapacityProgram(model, len(PROBABILITIES)), HighsSolver(), Park.of(model, on), outlook)
    return Advice(tuple(kind.name for kind in machines), on, plan, wanted, PROBABILITIES, names)


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


def _demand(
    settings: ProvisioningSettings, view: ClusterView, history: History | None, need: Floats, scale: Floats
) -> ContainerDemand:
    """Return forecasts taught by the history, or by what is there."""
    if history is not None and len(history.arrival):
        past = history.need / scale
        classes = TaskClasses().fit(past, history.priority, history.seconds)
        return calibrated_demand(
            classes, past, history.priority, history.arrival, history.seconds,
            step_seconds=settings.step_seconds, horizon=settings.horizon_steps,
        )  # fmt: skip
    if not len(need):
        raise InputError("there is no pod and no history to plan for: nothing is known of the demand", field="pods")
    classes = TaskClasses().fit(need, view.priority, np.full(len(need), settings.run_seconds))
    return ContainerDemand(classes=classes, step_seconds=settings.step_seconds, horizon=settings.horizon_steps)


def _model(
    settings: ProvisioningSettings, machines: tuple[MachineType, ...], demand: ContainerDemand, scale: Floats
) -> tuple[CapacityModel, tuple[str, ...]]:
    """Return the problem in shares of the largest machine, and the classes in words."""
    from dataclasses import replace

    shares = tuple(
        replace(kind, capacity=tuple(float(part) for part in np.array(kind.capacity) / scale)) for kind in machines
    )
    capacity = np.array([kind.capacity for kind in shares])
    mean, deviation, largest = (
        np.stack([getattr(demand.classes.sizes_[place], part)[int(long)] for place, long in demand.labels_])
        for part in ("mean", "deviation", "largest")
    )
    sizes = container_sizes(mean, deviation, largest, groups_per_machine(mean, capacity), FIT_PROBABILITY)
    names = tuple(
        f"{size[0] * scale[0]:.0f}m {size[1] * scale[1] / 2**20:.0f}Mi{' long' if long else ''}"
        for size, (_, long) in zip(sizes, demand.labels_, strict=True)
    )
    classes = tuple(
        ContainerClass(name, tuple(float(part) for part in size)) for name, size in zip(names, sizes, strict=True)
    )
    model = CapacityModel(shares, classes, settings.step_seconds, settings.horizon_steps, settings.service_level)
    return model, names
