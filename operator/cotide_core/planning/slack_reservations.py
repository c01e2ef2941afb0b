"""Slack-based backfilling as a plan (Talby and Feitelson 1999): a promise is a reservation and some slack.

A method of `planning`. The slack is the mean wait of the started pods, times 2 less a hundredth of the Job's priority.
The default priority of 100 gives the mean wait, 0 gives twice that, and 200 or more gives none. Invariant: a promise
holds while pods stay below the planned run time, no online pod takes the room and no node goes. Otherwise the pod gets
a new promise.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.machine_plan import Plan
from cotide_core.kernels.machine_slack import compile_slack, spend_slack
from cotide_core.kernels.machines import Profiles
from cotide_core.planning.availability import microseconds
from cotide_core.planning.earliest_start import PlanContext, PlanMethod, PlanRequest
from cotide_core.queueing.queued_pod import QueuedPod, QueueState

PRIORITY_TOP: Final = 200
"""From this priority of a Job on there is no slack; the default of 100 has the mean wait, as in the replay."""
REMEMBERED: Final = 4096
"""Number of started pods that halves the weight of earlier ones (chosen): the mean follows current waits."""


class SlackPromises(PlanMethod):
    """The earliest start for each pod; then slack is spent where that brings others forward by more."""

    gangs_in_turn = False

    def __init__(self, context: PlanContext) -> None:
        super().__init__(context)
        compile_slack()
        self._promises: dict[QueuedPod, int] = {}
        self._given: Integers = np.zeros(0, np.int64)
        self._waited = 0
        self._started = 0

    def solve(self, base: Profiles, request: PlanRequest) -> Profiles:
        """Lay reservations, promise the starts that have no promise yet, and spend slack."""
        problem, count = request.problem, len(request.group)
        line = np.lexsort((np.arange(count), problem.length[request.group]))

        def spend(profiles: Profiles, plan: Plan) -> int:
            self._given = self._promised(request, plan.start)
            demands = problem.demands(request.group, len(profiles.sizes), request.moment)
            return spend_slack(profiles, request.moment, demands, line, self._given, request.most_starts, plan)

        return self.earliest(base, request, spend)

    def settle(self, request: PlanRequest) -> None:
        """Keep the promises of a plan."""
        promises = {
            entry: number for entry, number in self._promises.items() if entry.queue_state is QueueState.PLANNED
        }
        for entry, promise, row in zip(request.waiting, self._given.tolist(), request.machine.tolist(), strict=True):
            promises.pop(entry, None)
            if row >= 0:
                promises[entry] = promise
        self._promises = promises

    def started(self, entry: QueuedPod, moment: int) -> None:
        """Count its wait in the mean."""
        self._promises.pop(entry, None)
        self._waited += max(0, moment - microseconds(entry.pod.created_seconds))
        self._started += 1
        if self._started >= REMEMBERED:
            self._waited, self._started = self._waited // 2, self._started // 2

    def latest(self, entry: QueuedPod) -> int | None:
        """Return its promise."""
        return self._promises.get(entry)

    def _promised(self, request: PlanRequest, start: Integers) -> Integers:
        """Return (n,) the promise of each pod: the current one, its start if that is later, or a new one."""
        given = start.copy()
        for index, entry in enumerate(request.waiting):
            known = self._promises.get(entry)
            given[index] = given[index] + self._slack(entry) if known is None else max(known, given[index])
        return given

    def _slack(self, entry: QueuedPod) -> int:
        """Return microseconds; as `kernels.slack.slack_of`, in numbers that can't overflow."""
        left = max(0, PRIORITY_TOP - entry.pod.job_priority)
        return left * self._waited // (PRIORITY_TOP // 2 * self._started) if self._started else 0
