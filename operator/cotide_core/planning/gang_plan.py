"""Gangs in plans: which pods stand together in the line, and how a method plans them.

Called by `planner` if a gang waits. Most methods plan a gang in its turn (`kernels.machine_gangs`). Methods that move
reservations or choose nodes by other rules plan the gangs first and the other pods behind them. Invariant: pods of an
incomplete gang are planned together or not at all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.machine_gangs import plan_among_ends
from cotide_core.kernels.machine_plan import Plan
from cotide_core.kernels.machines import Profiles
from cotide_core.planning.availability import Availability
from cotide_core.planning.earliest_start import PlanMethod, PlanRequest
from cotide_core.queueing.gangs import Gangs
from cotide_core.queueing.queued_pod import QueuedPod, QueueState


def together(waiting: list[QueuedPod], gangs: Gangs) -> tuple[list[QueuedPod], Integers | None]:
    """Return a line that keeps the pods of each gang together behind its first, and (n,) their numbers; None for no
    gang.

    Pods of a complete gang count as pods without a gang.
    """
    numbers: dict[str, int] = {}
    whole: dict[str, bool] = {}
    line: list[QueuedPod] = []
    gang: list[int] = []
    for entry in waiting:
        key = entry.shape.gang
        if key and key not in whole:
            standing = gangs.standing(key)
            planned = [queued_pod for queued_pod in standing.waiting if queued_pod.queue_state is QueueState.PLANNED]
            # Equal pods are adjacent: the kernel counts them together.
            planned.sort(
                key=lambda member: (
                    -member.shape.fit.millicores,
                    member.shape.order,
                    member.seconds_p50,
                    member.sequence,
                )
            )
            whole[key] = standing.lacks == 0
            if standing.lacks == len(planned) > 0 and not standing.leaves:
                numbers[key] = len(numbers)
                line += planned
                gang += [numbers[key]] * len(planned)
        if not key or whole[key]:
            line.append(entry)
            gang.append(-1)
    return line, np.array(gang, np.int64) if numbers else None


def solve_with_gangs(method: PlanMethod, base: Profiles, request: PlanRequest) -> tuple[Profiles, PlanRequest | None]:
    """Plan gangs and all others; returns the free amounts behind the plan, and the part that the method must settle, if
    any.
    """
    if method.gangs_in_turn or request.gang is None:
        return method.solve(base, request), request
    with_gang = np.flatnonzero(request.gang >= 0)
    others = np.flatnonzero(request.gang < 0)
    first = _part(request, with_gang)
    profiles = PlanMethod.earliest(method, base, first)
    started = int((first.start == first.moment).sum())
    rest = _part(request, others)
    rest.gang = None
    rest.most = None if rest.most is None else max(1, rest.most - started)
    if len(others):
        profiles = method.solve(profiles, rest)
    for part, indexes in ((first, with_gang), (rest, others)):
        request.machine[indexes], request.start[indexes] = part.machine, part.start
    request.opened |= first.opened | rest.opened
    if rest.beside is not None:
        request.beside = np.zeros(len(request.group), np.bool_)
        request.beside[others] = rest.beside
    return profiles, rest if len(others) else None


def fits_at_last(method: PlanMethod, request: PlanRequest, availability: Availability, indexes: Integers) -> bool:
    """Whether the pods of a gang find nodes once all running pods have ended, placed as plans place them."""
    rows = np.arange(len(availability.sizes))
    free = availability.free[rows, availability.sizes - 1][:, None, request.problem.used]
    ones, count = np.ones(len(rows), np.int64), len(indexes)
    nowhere = np.full(count, -1, np.int64)
    alone = replace(
        _part(request, indexes), machine=nowhere, start=nowhere.copy(), opened=np.zeros(len(rows), np.bool_)
    )

    def step(profiles: Profiles, plan: Plan) -> int:
        demands = request.problem.demands(alone.group, len(rows), 0)
        return plan_among_ends(profiles, 0, demands, plan)

    method.run(Profiles(np.zeros((len(rows), 1), np.int64), np.ascontiguousarray(free), ones), alone, step)
    return bool((alone.machine >= 0).all())


def _part(request: PlanRequest, indexes: Integers) -> PlanRequest:
    """Return a request for some of the pods, in the same order."""
    rank = np.argsort(np.argsort(request.second[np.isin(request.second, indexes)]))
    second = np.argsort(np.argsort(indexes))[rank]
    return replace(
        request,
        waiting=[request.waiting[index] for index in indexes.tolist()],
        group=request.group[indexes],
        second=second,
        machine=request.machine[indexes],
        start=request.start[indexes],
        opened=request.opened.copy(),
        gang=None if request.gang is None else request.gang[indexes],
    )
