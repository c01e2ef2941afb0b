"""One run of one rule over a workload, and what it came to.

Called by the phases experiment, its benchmark and tests. Invariant: the same workload, rule and weights give the same
outcome; every job ends, or the run is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_lab.phases.node_report import desk
from cotide_lab.phases.rules import groups_of, weights_of
from cotide_lab.phases.tables import MAX_TASKS, NONE, tables
from cotide_lab.phases.utility import Weights
from cotide_lab.phases.workload import Workload
from cotide_lab.phases.world_kernel import Plan, Seen, play


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run came to; times in seconds.

    Attributes
    ----------
    job_seconds, wait_seconds : (J,) from submission to the end, and to the first start.
    paused_seconds : (T,) that tasks paused in all.
    longest_pause_seconds : of any task.
    makespan_seconds : from the first submission to the last end.
    utilisation : (R,) what tasks truly used, over what there was until the last end.
    slowed : share of jobs that took over 10 % longer than with a fair share of their own (`slowed_share`).
    reports : of nodes.
    """

    job_seconds: Floats
    wait_seconds: Floats
    paused_seconds: Floats
    longest_pause_seconds: float
    makespan_seconds: float
    utilisation: Floats
    slowed: float
    reports: int


def run(
    workload: Workload, rule: str, weights: Weights | None = None, growing_milliseconds: int = 0, size: float = 1.0
) -> Outcome:
    """Play a workload under a rule.

    Parameters
    ----------
    size : the most cpu that a task holds, as a share of its largest need (`rules.groups_of`).
    growing_milliseconds : from the grant to a paused task until it goes on: in a live cluster, a kubelet's resize.

    Raises
    ------
    InputError
        When some task fits on no node.
    RuntimeError
        When a job did not end: a fault of the scheduler that must not pass for a result.
    """
    groups, capacity = groups_of(rule, workload, size)
    jobs = len(workload.submitted)
    work, nodes = tables(groups, capacity, jobs=jobs)
    first, follower = np.full(jobs, NONE, np.int64), np.full(len(groups), NONE, np.int64)
    for index, (job, _, _) in enumerate(groups):
        if first[job] == NONE:
            first[job] = index
        else:
            follower[index - 1] = index
    plan = Plan(workload.submitted, first, follower, work.waiting.copy(), workload.factor, growing_milliseconds)
    most = workload.tasks + len(capacity)
    running = len(capacity) * (MAX_TASKS + 1)
    seen = Seen(
        started=np.full(jobs, NONE, np.int64),
        finished=np.full(jobs, NONE, np.int64),
        paused=np.zeros(workload.tasks, np.int64),
        longest=np.zeros(workload.tasks, np.int64),
        times=np.zeros(min(most, running), np.int64),
        events=np.zeros(min(most, running), np.int64),
        beating=np.zeros(len(capacity), np.int64),
        tried=np.zeros(len(capacity), np.int64),
        scalar=np.zeros(3, np.int64),
    )
    end = play(work, nodes, weights_of(rule, weights or Weights()), plan, seen, desk(work))
    if (seen.finished == NONE).any():
        raise RuntimeError(f"{int((seen.finished == NONE).sum())} jobs did not end under {rule}")
    span = (end - int(workload.submitted[0])) / 1000.0
    area, length = needed(workload)
    return Outcome(
        job_seconds=(seen.finished - workload.submitted) / 1000.0,
        wait_seconds=(seen.started - workload.submitted) / 1000.0,
        paused_seconds=seen.paused / 1000.0,
        longest_pause_seconds=float(seen.longest.max(initial=0)) / 1000.0,
        makespan_seconds=span,
        utilisation=area.sum(axis=0) / (workload.capacity.sum(axis=0) * span),
        slowed=slowed_share(workload.submitted, seen.finished, area / workload.capacity.sum(axis=0), length),
        reports=int(seen.scalar[1]),
    )


def refused(workload: Workload) -> Outcome:
    """Return what comes of a scheduler that starts nothing: the contender that every table has to reject.

    No job ends. Each counts as running until all work were done by one task after the other, which takes longer than
    under any scheduler that works.
    """
    spent = 0.0
    task = 0
    for stage in workload.stages:
        factor = workload.factor[task : task + stage.tasks].sum()
        task += stage.tasks
        spent += float(factor) * sum(phase.milliseconds for phase in stage.true.phases)
    end = int(workload.submitted[-1]) + spent
    waited: Floats = (np.full(len(workload.submitted), end) - workload.submitted) / 1000.0
    return Outcome(
        job_seconds=waited,
        wait_seconds=waited,
        paused_seconds=np.zeros(workload.tasks),
        longest_pause_seconds=0.0,
        makespan_seconds=(end - int(workload.submitted[0])) / 1000.0,
        utilisation=np.zeros(workload.capacity.shape[1]),
        slowed=1.0,
        reports=0,
    )


def needed(workload: Workload) -> tuple[Floats, Floats]:
    """Return what jobs truly need: resource-seconds (J, R), and the seconds of their longest chain (J,)."""
    jobs, resources = len(workload.submitted), workload.capacity.shape[1]
    area, length = np.zeros((jobs, resources)), np.zeros(jobs)
    task = 0
    for stage in workload.stages:
        factor = workload.factor[task : task + stage.tasks]
        task += stage.tasks
        seconds = np.array([phase.milliseconds for phase in stage.true.phases]) / 1000.0
        area[stage.job] += seconds @ np.array([phase.need for phase in stage.true.phases], np.float64) * factor.sum()
        length[stage.job] += seconds.sum() * factor.max(initial=0.0)
    return area, length


def slowed_share(submitted: Integers, finished: Integers, share_seconds: Floats, length: Floats) -> float:
    """Return the share of jobs that took over a tenth longer than alone on a fair share of the cluster.

    A job's fair share is 1 over the mean number of jobs during its life. On that share it takes its largest
    resource-time over the share, and never less than its longest chain (finish-time fairness, Mahajan et al. 2020).

    Parameters
    ----------
    submitted, finished : (J,) milliseconds.
    share_seconds : (J, R) what it needs, in seconds of the whole cluster.
    length : (J,) seconds of its longest chain.
    """
    moments = np.concatenate([submitted, finished])
    order = np.argsort(moments, kind="stable")
    changes = np.concatenate([np.ones(len(submitted)), -np.ones(len(finished))])[order]
    times = moments[order] / 1000.0
    there = np.cumsum(changes)
    integral = np.concatenate([[0.0], np.cumsum(there[:-1] * np.diff(times))])
    taken = np.maximum((finished - submitted) / 1000.0, 1e-3)
    mean = (np.interp(finished / 1000.0, times, integral) - np.interp(submitted / 1000.0, times, integral)) / taken
    alone = np.maximum(share_seconds.max(axis=1) * np.maximum(mean, 1.0), length)
    return float((taken > 1.1 * alone).mean())


def bound(workload: Workload) -> float:
    """Return a bound below the mean job time of any scheduler, that knew all and could cut work at will.

    For each resource the cluster as one machine that serves the job with the least left (optimal there, Schrage 1968);
    and each job's longest chain. The largest of these means.
    """
    area, length = needed(workload)
    shares = area / workload.capacity.sum(axis=0)
    arrivals = workload.submitted / 1000.0
    return max(float(length.mean()), *(_least_left_first(arrivals, column) for column in shares.T))


def _least_left_first(arrivals: Floats, seconds: Floats) -> float:
    import heapq

    left: list[float] = []
    now, spent, coming = float(arrivals[0]), 0.0, 0
    ends = []
    while coming < len(arrivals) or left:
        if not left:
            now = max(now, float(arrivals[coming]))
        while coming < len(arrivals) and arrivals[coming] <= now:
            heapq.heappush(left, float(seconds[coming]))
            coming += 1
        following = float(arrivals[coming]) if coming < len(arrivals) else np.inf
        spent = min(left[0], following - now)
        now += spent
        least = heapq.heappop(left) - spent
        if least > 1e-12 and now < following + 1e-12 and spent < least + spent:
            heapq.heappush(left, least)
        else:
            ends.append(now)
    return float((sum(ends) - float(arrivals.sum())) / len(arrivals))
