"""Dominant resource fairness over time on one pool: the job of the owner with the least use comes next.

Called by the trace replay for `fair`. The use of an owner (a user, or a group) is counted as the live engine counts it
for namespaces (`cotide_core.state.fair_usage`). Half is an average of past use that fades with a half-life, half is
present use. A pool has one resource, so that the dominant share is that of processors. As in the live engine, a job
that does not fit delays no other job; so no processors are kept free for a wide one.

Invariant: while a job waits, no job of an owner with a larger share starts that could have left it its processors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import inlined, with_steps
from cotide_core.kernels.ordered_jobs import insert, remove_at
from cotide_core.state.fair_usage import NEGLIGIBLE
from cotide_lab.trace_replay.kernels.event_loop import replay, start_job
from cotide_lab.trace_replay.kernels.replay_state import ENDED, NEW_FROM, TAKEN, WAITING, Jobs, ReplayState


class FairRule(NamedTuple):
    """Owners of the jobs on one pool.

    Attributes
    ----------
    capacity : processors.
    half_life : seconds.
    owner : (n,) numbers from 0, of each job.
    held, average : (k,) processors of each owner, now and on average.
    moment : (1,) seconds up to which the averages are; -1 before the first.
    """

    capacity: int
    half_life: float
    owner: Integers
    held: Floats
    average: Floats
    moment: Integers


def fair_rule(capacity: int, half_life_seconds: float, owner: Integers) -> FairRule:
    """Return the rule before the first moment; negative owners are unknown, and one owner together."""
    owners, numbered = np.unique(np.maximum(owner, -1), return_inverse=True)
    nothing = np.zeros(len(owners), np.float64)
    moment = np.full(1, -1, np.int64)
    return FairRule(capacity, half_life_seconds, numbered.astype(np.int64), nothing, nothing.copy(), moment)


@inlined
def _open_round(now: int, jobs: Jobs, state: ReplayState, rule: FairRule) -> FairRule:
    """Let the averages fade up to now."""
    passed = now - rule.moment[0] if rule.moment[0] >= 0 else 0
    rule.moment[0] = now
    if passed > 0:
        stays = 2.0 ** (-passed / rule.half_life)
        for owner in range(rule.held.shape[0]):
            held = rule.held[owner]
            average = rule.average[owner] * stays + held * (1.0 - stays)
            rule.average[owner] = 0.0 if held == 0.0 and average / rule.capacity < NEGLIGIBLE else average
    return rule


@inlined
def _ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: FairRule) -> FairRule:
    rule.held[rule.owner[job]] -= jobs.demand[job]
    return rule


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: FairRule) -> FairRule:
    state.counts[WAITING] = insert(state.queues[0, 0], state.queues[0, 1], state.counts[WAITING], 0, job)
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: FairRule) -> FairRule:
    """Start jobs one after another: of those that fit, the one of the owner with the smallest share."""
    counts, demand = state.counts, jobs.demand
    queue_key, queue = state.queues[0, 0], state.queues[0, 1]
    waiting = counts[WAITING]
    free = rule.capacity - counts[TAKEN]
    # What did not fit before fits only where processors came free.
    first_new = 0 if counts[ENDED] > 0 else counts[NEW_FROM]
    while free > 0:
        chosen: int = -1
        least = 0.0
        for index in range(waiting):
            job = queue[index]
            if demand[job] > free or job < first_new:
                continue
            owner = rule.owner[job]
            share = (rule.average[owner] + rule.held[owner]) / 2.0
            if chosen < 0 or share < least:
                chosen, least = index, share
        if chosen < 0:
            break
        job = queue[chosen]
        waiting = remove_at(queue_key, queue, waiting, chosen)
        free -= demand[job]
        rule.held[rule.owner[job]] += demand[job]
        start_job(now, job, jobs.forecast[job], jobs, state)
    counts[WAITING] = waiting
    return rule


replay_fair = with_steps(
    replay, "replay_fair", open_round=_open_round, ended=_ended, submitted=_submitted, decide=_decide
)
"""Replays a log under dominant resource fairness over time, see `event_loop.replay`; it promises no starts."""
