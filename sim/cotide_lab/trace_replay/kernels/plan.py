"""Online plans on one pool: each event plans all waiting jobs again, in order of a key (Naghshnejad 2019, section
4.2.1).

Called by the trace replay for online-SJF and online-SVF (and any other order). A round takes place whenever a job is
submitted, ends or exceeds its forecast. The waiting jobs, shortest or smallest in volume first, each get the earliest
start that the running jobs and the jobs planned before leave. Those planned for now start.

Invariant: a job never starts where it would delay the planned start of a job ahead of it in the same plan. Only starts
at the round's own moment are carried out, since the next round plans again; so planning stops once nothing is free now.
"""

from __future__ import annotations

from typing import NamedTuple

from cotide_core.kernels.compiled import inlined, with_steps
from cotide_core.kernels.ordered_jobs import remove_at
from cotide_lab.trace_replay.kernels.easy import enqueue
from cotide_lab.trace_replay.kernels.event_loop import replay, start_job
from cotide_lab.trace_replay.kernels.profile import change, earliest_start, profile_of
from cotide_lab.trace_replay.kernels.replay_state import RUNNING, TAKEN, WAITING, Jobs, ReplayState


class PlanRule(NamedTuple):
    """Plans on one pool.

    Attributes
    ----------
    capacity : processors.
    order : in which jobs are planned, as in `easy`.
    """

    capacity: int
    order: int


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: PlanRule) -> PlanRule:
    state.counts[WAITING] = enqueue(0, rule.order, job, jobs, state)
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: PlanRule) -> PlanRule:
    counts, demand, forecast = state.counts, jobs.demand, jobs.forecast
    queue_key, queue = state.queues[0, 0], state.queues[0, 1]
    times, levels = state.profile[0], state.profile[1]
    waiting = counts[WAITING]
    free = rule.capacity - counts[TAKEN]
    if waiting == 0 or free == 0:
        return rule
    size = profile_of(times, levels, now, free, state.ends[0], state.ends[1], counts[RUNNING], demand)
    index = 0
    while index < waiting and free > 0:
        job = queue[index]
        begin = earliest_start(times, levels, size, now, forecast[job], demand[job])
        size = change(times, levels, size, begin, begin + forecast[job], -demand[job])
        if begin > now:
            index += 1
            continue
        waiting = remove_at(queue_key, queue, waiting, index)
        free -= demand[job]
        start_job(now, job, forecast[job], jobs, state)
    counts[WAITING] = waiting
    return rule


replay_plan = with_steps(replay, "replay_plan", submitted=_submitted, decide=_decide)
"""Replays a log under online plans, see `event_loop.replay`."""
