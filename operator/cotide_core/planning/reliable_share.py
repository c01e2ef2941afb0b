"""The hybrid platform as a plan: pods of predictable run time on a share of the capacity, the rest around them.

A method of `planning` (Naghshnejad 2019, section 4.4; the rules are those of `kernels.platform`, the replay's).
Co-located nodes have no cores of one kind. The share is therefore an amount of cpu and of memory, on any node, of the
capacity that online pods do not request. A pod is predictable if the expected accuracy of its forecast is 0.6 or more
(`reliability`) when the pod is queued. Invariant: on one node, with the same kinds and forecasts, pods start as in the
replay, while each stays within its planned run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cotide_core.events import Event, PodDeleted, PodPhase, PodUpserted
from cotide_core.forecasting.own_models import type_for
from cotide_core.forecasting.reliability import Reliability
from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.machine_plan import Plan
from cotide_core.kernels.machine_platform import (
    FIRST_DEMAND,
    FIRST_SHARE,
    PATIENCE,
    PATIENCE_SECONDS,
    PREDICTABLE,
    RECENT_JOBS,
    Shares,
    compile_platform,
    plan_platform,
)
from cotide_core.kernels.machines import Profiles
from cotide_core.planning.availability import microseconds
from cotide_core.planning.earliest_start import PlanContext, PlanMethod, PlanRequest
from cotide_core.queueing.ordering import demand_of
from cotide_core.queueing.queued_pod import QueuedPod, QueueState
from cotide_core.state.host_load import ONLINE_RANK
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN
from cotide_core.units import RECLAIMED_CPU, RECLAIMED_MEMORY

MILLICORES: Final = 1000.0
_ENDED: Final = (PodPhase.SUCCEEDED, PodPhase.FAILED)


class ReliableShare(PlanMethod):
    """Starts and reservations of the hybrid platform."""

    gangs_in_turn = False

    def __init__(self, context: PlanContext) -> None:
        super().__init__(context)
        compile_platform()
        self._reliability = Reliability()
        self._kinds: dict[QueuedPod, bool] = {}
        """Whether a waiting pod is predictable."""
        self._runs: dict[str, tuple[tuple[int, int], float]] = {}
        """The counted amount of a started pod (nothing if unpredictable), and its forecast run time, by uid."""
        self._asked = FIRST_DEMAND
        self._asked_by_predictable = FIRST_SHARE * FIRST_DEMAND

    def take(self, events: Sequence[Event]) -> None:
        """Learn from pods that ended, and drop deleted ones."""
        for event in events:
            if isinstance(event, PodUpserted) and event.pod.phase in _ENDED:
                pod = event.pod
                run = self._runs.pop(pod.uid, None)
                if run is None or pod.phase is not PodPhase.SUCCEEDED:
                    continue
                if pod.started_seconds is not None and pod.finished_seconds is not None:
                    self._reliability.learn(pod.type, run[1], max(0.0, pod.finished_seconds - pod.started_seconds))
            elif isinstance(event, PodDeleted):
                self._runs.pop(event.uid, None)

    def joined(self, entry: QueuedPod) -> None:
        """Count a pod as predictable or not, and adjust the share."""
        self._runs.pop(entry.pod.uid, None)
        if entry in self._kinds:
            return
        reliability = self._reliability.of(entry.pod.type, entry.seconds_p50, entry.seconds_p90)
        cores = demand_of(entry) / MILLICORES
        trusted = reliability >= PREDICTABLE
        self._asked += cores - self._asked / RECENT_JOBS
        self._asked_by_predictable += (cores if trusted else 0.0) - self._asked_by_predictable / RECENT_JOBS
        self._kinds[entry] = trusted and not self._is_too_large(entry)

    def seconds(self, entry: QueuedPod) -> float:
        """Return the upper quantile; for an unpredictable pod the user's estimate, if that is longer."""
        upper = super().seconds(entry)
        if self._kinds.get(entry, False):
            return upper
        return max(upper, entry.pod.requested_seconds or 0.0)

    def seconds_beside(self, entry: QueuedPod) -> float:
        """Return the upper quantile: with long estimates the room in front of a reservation would stay idle."""
        return super().seconds(entry)

    def behind(self, left: list[int], waiting: Sequence[QueuedPod]) -> list[int]:
        """Return the pods without a reservation by volume."""
        return sorted(left, key=lambda index: (*self._volume_key(waiting[index]), index))

    def solve(self, base: Profiles, request: PlanRequest) -> Profiles:
        """Plan in three passes."""
        problem, waiting, moment = request.problem, request.waiting, request.moment
        by_volume = np.array(self.behind(list(range(len(waiting))), waiting), np.int64)
        predictable = np.array([self._kinds[entry] for entry in waiting], np.bool_)
        length = problem.length[request.group]
        waited = np.array([moment - microseconds(entry.since_seconds) for entry in waiting], np.int64)
        patience = np.minimum(np.where(predictable, PATIENCE[1], PATIENCE[0]) * length, microseconds(PATIENCE_SECONDS))
        overdue = waited >= patience
        held = np.zeros(2, np.int64)
        for amounts, _ in self._runs.values():
            held += amounts
        share = self._share()
        beside = np.zeros(len(waiting), np.bool_)

        def step(profiles: Profiles, plan: Plan) -> int:
            rows = len(profiles.sizes)
            demands = problem.demands(request.group, rows, moment)
            shorter = problem.demands(request.group, rows, moment, beside=True)
            beside[:] = False
            shares = Shares(by_volume, overdue, predictable, problem.amounts, held.copy(), share, beside)
            return plan_platform(profiles, moment, demands, shorter, shares, request.most_starts, plan)

        request.beside = beside
        return self.run(base, request, step)

    def settle(self, request: PlanRequest) -> None:
        """Forget pods that no longer wait."""
        del request
        self._kinds = {entry: kind for entry, kind in self._kinds.items() if entry.queue_state is QueueState.PLANNED}

    def started(self, entry: QueuedPod, moment: int) -> None:
        """Count the amount that a predictable pod holds."""
        del moment
        demand = self.context.state.demand(entry.pod.requests)
        amounts = (demand.millicores, demand.memory_bytes) if self._kinds.pop(entry, False) else (0, 0)
        self._runs[entry.pod.uid] = (amounts, entry.seconds_p50)

    def begun(self, entry: QueuedPod, row: int) -> None:
        """Record the forecast of the run on its node."""
        amounts, seconds = self._runs[entry.pod.uid]
        columns = self.context.state.columns
        pressure = float(columns.batch_millicores[row]) / max(1, int(columns.allocatable[CPU_COLUMN, row]))
        forecaster = self.context.availability.run_times.forecaster
        rate = np.array([columns.service_rates[row]], np.float64)
        factor = float(forecaster.slowdown([type_for(forecaster, entry.pod)], rate, np.array([pressure]))[0])
        self._runs[entry.pod.uid] = (amounts, seconds * factor)

    def _volume_key(self, entry: QueuedPod) -> tuple[float, ...]:
        seconds = entry.seconds_p50 if self._kinds[entry] else super().seconds(entry)
        return (-entry.pod.workload_class.rank, -entry.pod.priority, demand_of(entry) * seconds)

    def _is_too_large(self, entry: QueuedPod) -> bool:
        demand = self.context.state.demand(entry.pod.requests)
        share = self._share()
        return bool(demand.millicores > share[0] or demand.memory_bytes > share[1])

    def _share(self) -> Integers:
        """Return (2,) millicores and bytes that the predictable pods may hold."""
        columns = self.context.state.columns
        size = columns.size
        offered = columns.allocatable[CPU_COLUMN : MEMORY_COLUMN + 1, :size] - columns.held[ONLINE_RANK, :, :size]
        for index, name in enumerate((RECLAIMED_CPU, RECLAIMED_MEMORY)):
            column = columns.resources.get(name)
            if column is not None:
                offered[index] = np.maximum(offered[index], columns.allocatable[column, :size])
        alpha = self._asked_by_predictable / self._asked
        share: Integers = (np.maximum(0, offered).sum(axis=1) * alpha).astype(np.int64)
        return share
