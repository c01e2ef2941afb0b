"""The first step of a plan on the machines as they are: two rules beyond the paper.

Called by the code that carries a plan out, in the experiment and in the operator, after `plan_capacity`. The experiment
applies `raised` to rules without a plan as well. A plan counts containers of classes. It can't see that a task waits
because the free parts are each too small, and at a low service level it provides only for likely demand. So a waiting
task that fits on no machine that is up or on its way gets a machine at once, whatever the plan wants. Without migration
of tasks only idle machines go: a busy machine that must go takes no more tasks and idles until its last one ends.
Invariants: the wanted machines never exceed the available ones, and never fall below the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from cotide_core.provisioning.capacity_model import CapacityModel
from cotide_core.provisioning.capacity_plan import CapacityPlan
from cotide_core.provisioning.programs import Booleans, Floats, Integers

ROUNDING: Final = 1e-9
MANY: Final = 1e9
"""A task that needs no resource of a machine."""
LARGEST_SHAPES: Final = 2000
"""Most different needs of waiting tasks in one step, the largest first (chosen: the next step looks at the rest)."""


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Machines and waiting tasks at the moment of a plan.

    Attributes
    ----------
    available : (M,) machines that could be on.
    free, kind : (N, R) free parts of the machines that take or will take tasks, booting ones included, and their types.
    busy : (N,) whether each has a task, or had one recently.
    waiting : (n, R) needs of the tasks that wait.
    takes : (n, M) whether a machine of a type takes the task, apart from its size; None for all.
    moves : whether tasks are moved off machines that must go.
    """

    available: Floats
    free: Floats
    kind: Integers
    busy: Booleans
    waiting: Floats
    takes: Booleans | None = None
    moves: bool = False


def first_step(plan: CapacityPlan, model: CapacityModel, standing: Standing, price: float) -> CapacityPlan:
    """Return the plan with its first step raised by both rules; ``price`` as in `raised`."""
    now = raised(plan.machines[0], model, standing, price)
    return replace(plan, machines=np.concatenate((now[None], plan.machines[1:])))


def raised(wanted: Floats, model: CapacityModel, standing: Standing, price: float) -> Floats:
    """Return the (M,) machines that are wanted, raised by both rules.

    Parameters
    ----------
    price : money for a kWh now; among types that take a task the one with the cheapest idle power is started.
    """
    kinds = len(model.machines)
    on, busy = (np.bincount(rows, minlength=kinds) for rows in (standing.kind, standing.kind[standing.busy]))
    now = wanted if standing.moves else np.maximum(wanted, busy)
    if len(standing.waiting):
        power = np.array([kind.power.idle for kind in model.machines])
        rent = np.array([kind.hourly_cost for kind in model.machines])
        # If energy costs nothing, the one with the lowest draw.
        cost = max(price, ROUNDING) * power / 1000.0 + rent
        left = np.maximum(standing.available - on, 0.0)
        # Parts of machines that stay on anyway are filled first.
        order = np.argsort(~standing.busy, kind="stable")
        packed = pack_waiting(
            model.capacity, cost, left, standing.waiting,
            free=standing.free[order], kind=standing.kind[order], takes=standing.takes,
        )  # fmt: skip
        unused = order[packed.used & ~standing.busy[order]]
        more = np.bincount(standing.kind[unused], minlength=kinds) + packed.more
        # If a type helps no waiting task, the machines that the plan does not need may go.
        now = np.where(more > 0, np.maximum(now, busy + more), now)
    # Machines that are on and not available are the plan's matter: none of them is started here.
    return np.maximum(np.minimum(now, np.floor(standing.available)), wanted)


class Packed(NamedTuple):
    """Waiting tasks on machines: (M,) further machines by type, and (N,) whether a free part is used."""

    more: Floats
    used: Booleans


def pack_waiting(
    capacity: Floats,
    cost: Floats,
    left: Floats,
    waiting: Floats,
    *,
    free: Floats | None = None,
    kind: Integers | None = None,
    takes: Booleans | None = None,
) -> Packed:
    """Return where waiting tasks go, packed first-fit in decreasing size.

    Parameters
    ----------
    capacity : (M, R). cost : (M,), the cost that chooses the type of a new machine: the cheapest that holds the task.
    left : (M,) machines of each type that are off.
    waiting, takes : as in `Standing`; so are free and kind, None for no machine that is up.
    """
    room = np.zeros((0, capacity.shape[1])) if free is None else free.astype(np.float64)
    of = np.zeros(0, dtype=np.int64) if kind is None else kind
    able = np.ones((len(waiting), len(capacity)), dtype=np.bool_) if takes is None else takes
    more, used = np.zeros(len(left)), np.zeros(len(room), dtype=np.bool_)
    by_cost = np.argsort(cost, kind="stable")
    for need, types, count in _shapes(waiting, able):
        fits = np.where(types[of], _times(room, need), 0.0)
        here = np.clip(count - np.concatenate(([0.0], np.cumsum(fits)[:-1])), 0.0, fits) if len(fits) else fits
        room = room - here[:, None] * need[None]
        used |= here[: len(used)] > 0
        missing = count - here.sum()
        for type_ in by_cost[types[by_cost]]:
            held = float(_times(capacity[type_][None], need)[0])
            new = min(np.ceil(missing / held), left[type_] - more[type_]) if held and missing > 0 else 0.0
            if new <= 0:
                continue
            more[type_] += new
            tasks = np.full(int(new), held)
            tasks[-1] = min(held, missing - held * (new - 1))
            missing -= tasks.sum()
            room = np.concatenate((room, capacity[type_][None] - tasks[:, None] * need[None]))
            of = np.concatenate((of, np.full(int(new), type_)))
    return Packed(more, used)


def _shapes(waiting: Floats, takes: Booleans) -> list[tuple[Floats, Booleans, int]]:
    """Return different needs with the types that take them and how many tasks have them, the largest first."""
    if not len(waiting):
        return []
    joined = np.column_stack((waiting, takes))
    _, first, counts = np.unique(joined, axis=0, return_index=True, return_counts=True)
    order = np.lexsort((first, -waiting[first].max(axis=1)))[:LARGEST_SHAPES]
    return [(waiting[row], takes[row], int(count)) for row, count in zip(first[order], counts[order], strict=True)]


def _times(room: Floats, need: Floats) -> Floats:
    """Return (N,) how many tasks of one need each free part holds."""
    asked = need > 0
    if not asked.any():
        return np.full(len(room), MANY)
    found: Floats = np.floor(((room[:, asked] + ROUNDING) / need[asked]).min(axis=1))
    return np.maximum(found, 0.0)
