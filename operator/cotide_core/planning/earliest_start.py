"""The planning method of most policies, and the steps that other methods may replace.

Owned by `planning`, one object for each engine. `PlanMethod` gives each pod in turn the node with the earliest feasible
start, through `kernels.machine_plan`; the other methods build on it. Invariant: a method decides from its arguments,
and remembers only what `settle` and `started` passed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from cotide_core.config import PlansConfig
from cotide_core.events import Event
from cotide_core.forecasting.run_time_quantile import PlanQuantile
from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.kernels.machine_gangs import compile_gangs, plan_gangs
from cotide_core.kernels.machine_plan import NO_ROOM, Plan, compile_ahead, plan_machines
from cotide_core.kernels.machines import Profiles
from cotide_core.placement.plan_rule import PlanRule
from cotide_core.planning.availability import Availability
from cotide_core.planning.problem import PlanProblem
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.snapshot import Snapshot


class PlanContext(NamedTuple):
    """The inputs that a method may read."""

    rule: PlanRule
    plans: PlansConfig
    seed: int
    state: ClusterState
    availability: Availability


@dataclass(slots=True)
class PlanRequest:
    """One plan: its inputs and its outputs.

    Attributes
    ----------
    moment : microseconds.
    reservations, most : reservations and starts at most; None for no limit.
    group, second, machine, start, opened : see `kernels.machine_plan`; the last three are overwritten by the answer.
    """

    problem: PlanProblem
    waiting: Sequence[QueuedPod]
    snapshot: Snapshot
    moment: int
    reservations: int | None
    most: int | None
    group: Integers
    second: Integers
    machine: Integers
    start: Integers
    opened: Booleans
    gang: Integers | None = None
    """(n,) see `kernels.machine_gangs`; None if no pod waits for a gang."""
    beside: Booleans | None = None
    """(n,) pods that start next to a reservation, as part of the answer; None if a method plans both alike."""

    @property
    def most_starts(self) -> int:
        """Maximum number of starts, in the form that kernels take."""
        return len(self.group) + 1 if self.most is None else self.most


Step = Callable[[Profiles, Plan], int]
"""A kernel on copies of the profiles and of the plan; returns `NO_ROOM` if they are too short."""


class PlanMethod:
    """The earliest feasible start for each pod.

    Attributes
    ----------
    gangs_in_turn : whether gangs are planned in their turn; otherwise before all other pods.
    """

    gangs_in_turn: ClassVar[bool] = True

    def __init__(self, context: PlanContext) -> None:
        compile_ahead()
        compile_gangs()
        self.context = context
        self._quantile = PlanQuantile(context.plans.quantile)
        self._segments = 0

    def take(self, events: Sequence[Event]) -> None:
        """Process the events that happened."""

    def joined(self, entry: QueuedPod) -> None:
        """Record a pod that waits from now on."""

    def arranged(self, waiting: list[QueuedPod], snapshot: Snapshot, now: float) -> list[QueuedPod]:
        """Return the pods in the order of planning; they arrive in the policy's order."""
        del snapshot, now
        return waiting

    def seconds(self, entry: QueuedPod) -> float:
        """Return the isolated run time that a pod is planned with."""
        return self._quantile.seconds(entry.seconds_p50, entry.seconds_p90)

    def seconds_beside(self, entry: QueuedPod) -> float:
        """Return the isolated run time that a pod is planned with if it starts next to a reservation."""
        return self.seconds(entry)

    def restrict(self, problem: PlanProblem, snapshot: Snapshot) -> None:
        """Exclude nodes that a group must leave to others."""

    def solve(self, base: Profiles, request: PlanRequest) -> Profiles:
        """Plan; returns the free amounts behind the plan."""
        return self.earliest(base, request)

    def settle(self, request: PlanRequest) -> None:
        """Record that a plan is in force."""

    def started(self, entry: QueuedPod, moment: int) -> None:
        """Record that a planned pod was started."""

    def begun(self, entry: QueuedPod, row: int) -> None:
        """Record that a pod is on its node, as far as the engine knows."""

    def behind(self, left: list[int], waiting: Sequence[QueuedPod]) -> list[int]:
        """Return the pods without a reservation in the order of their planning."""
        del waiting
        return left

    def latest(self, entry: QueuedPod) -> int | None:
        """Return the latest start that a pod with a reservation is promised, if it differs from the reservation."""
        del entry
        return None

    def earliest(self, base: Profiles, request: PlanRequest, then: Step | None = None) -> Profiles:
        """Give each pod in turn the node with the earliest start, then run a further step on the outcome."""
        problem, moment, count = request.problem, request.moment, len(request.group)
        reserved = count + 1 if request.reservations is None else request.reservations

        def step(profiles: Profiles, plan: Plan) -> int:
            demands = problem.demands(request.group, len(profiles.sizes), moment)
            second, most, gang = request.second, request.most_starts, request.gang
            if gang is None:
                done = plan_machines(profiles, moment, demands, second, reserved, most, plan)
            else:
                done = plan_gangs(profiles, moment, demands, gang, second, reserved, most, plan)
            return done if done == NO_ROOM or then is None else then(profiles, plan)

        return self.run(base, request, step)

    def run(self, base: Profiles, request: PlanRequest, step: Step) -> Profiles:
        """Run a step on copies, with more segments until it has enough; the request receives the outcome."""
        rows, known = base.times.shape
        while True:
            self._segments = max(self._segments, known)
            times = np.zeros((rows, self._segments), np.int64)
            free = np.zeros((rows, self._segments, base.free.shape[2]), np.int64)
            times[:, :known], free[:, :known] = base.times, base.free
            profiles = Profiles(times, free, base.sizes.copy())
            plan = Plan(request.machine.copy(), request.start.copy(), request.opened.copy())
            if step(profiles, plan) != NO_ROOM:
                request.machine[:], request.start[:], request.opened[:] = plan
                return profiles
            self._segments *= 2
