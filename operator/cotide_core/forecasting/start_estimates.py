"""When may a waiting pod start? A coarse estimate from predicted finishes and the queue order.

Called by `cycle.Scheduler.predicted_starts` for statuses and explanations; no decision depends on it. The cluster is
treated as one pool of cpu. Running jobs release their requests at their p50, and each waiting pod in turn takes its
request for its own p50. A pod that could be tried now is expected now. Not modelled: which node the cpu is on, memory
and other resources, the guard (it can only delay), future arrivals. The estimate therefore means "not much before".
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Mapping, Sequence
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.forecasting.run_time_cache import RunTimes
from cotide_core.queueing.queued_pod import QueuedPod, QueueState
from cotide_core.state.cluster_state import ClusterState

PODS_A_STEP: Final = 1000
"""Pods of one step; chosen: a few milliseconds."""


def start_steps(
    waiting: Sequence[QueuedPod],
    state: ClusterState,
    run_times: RunTimes,
    stretched: Mapping[str, float],
    now: float,
) -> Generator[None, None, dict[str, float]]:
    """Return start times in seconds of the driver's clock, for pods in queue order; nothing must change between steps.

    Parameters
    ----------
    waiting : in the order of their attempts.
    run_times : isolated run times, for jobs that were bound before this engine started.
    stretched : pod key to predicted p50 on its node, slowdown included.
    """
    returns = yield from _returns(state, run_times, stretched, now)
    heapq.heapify(returns)
    free, clock = 0, now
    starts: dict[str, float] = {}
    for number, entry in enumerate(waiting):
        if number % PODS_A_STEP == 0:
            yield
        need = entry.shape.fit.millicores
        if entry.queue_state is QueueState.ACTIVE:
            starts[entry.pod.key] = now
            continue
        while free < need and returns:
            clock, millicores = heapq.heappop(returns)
            free += millicores
        if free < need:
            continue  # larger than all future releases: no estimate is possible
        start = max(clock, entry.ready_seconds, now)
        starts[entry.pod.key] = start
        free -= need
        if not entry.shape.online:
            heapq.heappush(returns, (start + entry.seconds_p50, need))
    return starts


def _returns(
    state: ClusterState, run_times: RunTimes, stretched: Mapping[str, float], now: float
) -> Generator[None, None, list[tuple[float, int]]]:
    running = [r for r in state.records() if r.row >= 0 and r.pod.workload_class is not WorkloadClass.ONLINE]
    returns = []
    for first in range(0, len(running), PODS_A_STEP):
        yield
        part = running[first : first + PODS_A_STEP]
        run_times.learn(record.pod for record in part)
        for record in part:
            pod = record.pod
            seconds = stretched.get(pod.key) or run_times.of(pod)[0]
            started = pod.started_seconds if pod.started_seconds is not None else record.assumed_seconds
            finish = (now if started is None else started) + seconds
            returns.append((max(now, finish), state.demand(pod.requests).millicores))
    yield
    return returns
