"""Plans on a node that is chosen once for each pod: the node with the least work (LW), or a random one (RANDOM).

A method of `planning`. Naghshnejad 2019, section 3.2.2, knows all jobs at time 0. Here a pod gets its node when it is
first planned, in the order of the plan, and normally keeps it until it starts. It gets another node if it can't start
there at all, or if a pod there outlives its expected end. Otherwise an overdue pod would delay those behind it for
ever.

"Workload" is the unfinished work of a node, as time x its largest share of the node. It includes the rest of running
pods, and all of waiting ones. Invariant: with all pods there from the start on alike nodes, and run times as planned,
the schedule is that of `offline.list_scheduling`.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.given_plan import compile_given, plan_on_given
from cotide_core.kernels.machine_plan import Plan
from cotide_core.kernels.machines import Profiles
from cotide_core.placement.plan_rule import Machines
from cotide_core.planning.availability import PHYSICAL
from cotide_core.planning.earliest_start import PlanContext, PlanMethod, PlanRequest
from cotide_core.queueing.queued_pod import QueuedPod, QueueState
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN


class GivenMachines(PlanMethod):
    """The earliest start on a node that was chosen before."""

    gangs_in_turn = False

    def __init__(self, context: PlanContext) -> None:
        super().__init__(context)
        compile_given()
        self._draws = np.random.default_rng(context.seed)
        self._given: dict[QueuedPod, str] = {}

    def solve(self, base: Profiles, request: PlanRequest) -> Profiles:
        """Choose nodes for those that have none, then plan each on its own."""
        chosen = self._choose(base, request)
        problem = request.problem

        def step(profiles: Profiles, plan: Plan) -> int:
            plan.machine[:] = chosen
            demands = problem.demands(request.group, len(profiles.sizes), request.moment)
            return plan_on_given(profiles, request.moment, demands, request.most_starts, plan)

        profiles = self.run(base, request, step)
        if int((request.start == request.moment).sum()) < request.most_starts:
            for index in np.flatnonzero(request.machine < 0).tolist():
                self._given.pop(request.waiting[index], None)
        return profiles

    def _choose(self, base: Profiles, request: PlanRequest) -> Integers:
        """Return (n,) the row of each pod; -1 if no node can ever take it."""
        snapshot = request.snapshot
        self._given = {entry: node for entry, node in self._given.items() if entry.queue_state is QueueState.PLANNED}
        chosen = np.full(len(request.group), -1, np.int64)
        at_last = base.free[np.arange(len(base.sizes)), base.sizes - 1]
        for index, entry in enumerate(request.waiting):
            row = snapshot.columns.row_of.get(self._given.get(entry, ""), -1)
            if row in self.context.availability.outlived:
                continue
            if row >= 0 and self._takes(request, index, at_last[row : row + 1], slice(row, row + 1)).any():
                chosen[index] = row
        fresh = np.flatnonzero(chosen < 0).tolist()
        if not fresh:
            return chosen
        work = self._work(request, chosen) if self.context.rule.machines is Machines.LEAST_WORK else None
        for index in fresh:
            rows = np.flatnonzero(self._takes(request, index, at_last, slice(None)))
            if not len(rows):
                continue
            if work is None:
                row = int(rows[self._draws.integers(len(rows))])
            else:
                row = int(rows[np.argmin(work.most()[rows])])
                work.add(request, index, row)
            chosen[index] = row
            self._given[request.waiting[index]] = snapshot.name(row)
        return chosen

    @staticmethod
    def _takes(request: PlanRequest, index: int, at_last: Integers, rows: slice) -> Booleans:
        """Return for some rows whether a pod may use them and has room there after all running pods end."""
        problem = request.problem
        of = request.group[index]
        need = problem.need[of]
        room: Booleans = ((at_last >= need) | (need == 0)).all(axis=1)
        return room & problem.may[problem.fit[of], rows]

    def _work(self, request: PlanRequest, chosen: Integers) -> _Work:
        physical = slice(-PHYSICAL, None)
        whole = self.context.availability
        work = _Work(request)
        last = whole.free[np.arange(len(whole.sizes)), whole.sizes - 1][:, physical]
        for at in range(int(whole.sizes.max(initial=1)) - 1):
            more = whole.sizes > at + 1
            begin = np.maximum(whole.times[:, at], request.moment)
            seconds = np.maximum(whole.times[:, min(at + 1, whole.times.shape[1] - 1)] - begin, 0)
            held = (last - whole.free[:, at, physical]).astype(np.float64)
            work.amounts += np.where(more, seconds, 0)[:, None] * held
        for index in np.flatnonzero(chosen >= 0).tolist():
            work.add(request, index, int(chosen[index]))
        return work


class _Work:
    """The work of each node, by resource."""

    def __init__(self, request: PlanRequest) -> None:
        snapshot = request.snapshot
        self.amounts: Floats = np.zeros((snapshot.size, PHYSICAL))
        self._whole: Floats = np.maximum(1, snapshot.allocatable[CPU_COLUMN : MEMORY_COLUMN + 1].T).astype(np.float64)

    def add(self, request: PlanRequest, index: int, row: int) -> None:
        """Add a pod's work to a node."""
        of = int(request.group[index])
        self.amounts[row] += request.problem.amounts[of] * float(request.problem.lasts_of(of, row))

    def most(self) -> Floats:
        """Return (N,) microseconds of the whole node, of the resource that takes longest."""
        shares: Floats = (self.amounts / self._whole).max(axis=1)
        return shares
