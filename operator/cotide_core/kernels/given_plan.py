"""Plans of waiting pods on machines that were chosen beforehand: each at its earliest feasible start there.

Called by `preassigned` for least work and random machines; the live counterpart of `offline.given_machine`.
Invariant: no start of a call overfills a machine at any time.
"""

from __future__ import annotations

from functools import cache

from cotide_core.kernels.compiled import uncounted
from cotide_core.kernels.machine_plan import NO_ROOM, Demands, Plan, lasts_on, smallest
from cotide_core.kernels.machines import NEVER, Profiles, earliest_on, has_room, hold


@cache
def compile_given() -> None:
    """Have the kernel compiled, once in a process."""
    profiles, demands, plan = smallest()
    plan_on_given(profiles, 0, demands, 1, plan)


@uncounted
def plan_on_given(profiles: Profiles, now: int, demands: Demands, most_starts: int, plan: Plan) -> int:
    """Plan n pods in order; return how many start now, or `NO_ROOM`.

    Parameters as in `machine_plan.plan_machines`, except the plan's ``machine``. In: where each pod runs, -1 for
    nowhere; out: -1 for pods without a start.
    """
    machine, start = plan.machine, plan.start
    starts = 0
    for pod in range(demands.group.shape[0]):
        at = machine[pod]
        start[pod] = -1
        if at < 0 or starts >= most_starts:
            machine[pod] = -1
            continue
        of = demands.group[pod]
        lasts = lasts_on(demands, of, at)
        times, free, size = profiles.times[at], profiles.free[at], profiles.sizes[at]
        begin = earliest_on(times, free, size, now, lasts, demands.need[of], NEVER)
        if begin >= NEVER:
            machine[pod] = -1
            continue
        if not has_room(profiles, at):
            return NO_ROOM
        hold(profiles, at, begin, lasts, demands.take[of], 1)
        start[pod] = begin
        starts += begin == now
    return starts
