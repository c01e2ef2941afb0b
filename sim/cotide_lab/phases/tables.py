"""Jobs, groups, tasks and nodes as arrays: what Algorithm 2 reads and writes.

A job has groups (its maps, its reduces); a group has equal tasks, each a chain of phases. Made by `tables`, changed by
`node_report` only. A group is closed (its turn has not come, or it has no task left to start) or open::

    closed --open_group--> open --last task starts--> closed

A task waits for its start, then runs and pauses until its last phase ends::

    waiting --grant--> running --phase ends, next needs more--> paused --grant--> running ... --> done
                          +--phase ends, next needs no more--> running

Invariant: ``free`` of a node is its capacity less what its tasks hold. A running task holds the need of its phase. A
paused one does no work and holds no cpu. Of each other resource it holds the smaller amount of two: that of the phase
before and that of the requested phase. What it needs less of is given back at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.phases.profile import Profile

WAITING: Final = 0
RUNNING: Final = 1
PAUSED: Final = 2
DONE: Final = 3
NONE: Final = -1
MAX_TASKS: Final = 128
"""Tasks on one node. Chosen: a kubelet admits 110 pods as shipped (``maxPods``)."""

NOT_DONE: Final = 0
OPEN: Final = 1


class Work(NamedTuple):
    """J jobs with G groups of T tasks in all, and P phases; times in milliseconds.

    Attributes
    ----------
    held : (J, R) holdings of the tasks of each job.
    job, first : (G,) the group's job, and its first phase; the phases of a chain are consecutive rows.
    waiting, running : (G,) tasks that have not started, and those that have and are not done.
    next_task : (G,) the task that starts next; a group's tasks are consecutive.
    since : (G,) when the group opened or last started a task.
    position : position of the group in ``open``; -1 where it is closed.
    reserved : (G,) the node that is kept free for the group; -1 for none.
    need : (P, R) of each phase, as stated.
    rest : (P, R) the most that this phase and those after it need.
    mean : (P, R) what they need in the mean of their time.
    last : (P,) whether it is the last of its chain.
    milliseconds : how long it lasts with its stated needs.
    group, phase, state, node, paused : (T,) of each task; ``phase`` is the one that runs or is asked for, ``paused``
        when the pause began.
    kept : 1 where a paused task keeps what it has; 0 for resources that only work takes.
    open : (G,) the open groups, in no order.
    counts : unfinished jobs, and open groups.
    left : (J,) the remaining work of each job, as a part of the initial work of all jobs. The work of a task is
        the sum over its phases of time and need, of the resource that it takes most of.
    cost : (G,) the work of one task of the group, as a part of the same.
    """

    held: Integers
    job: Integers
    first: Integers
    waiting: Integers
    running: Integers
    next_task: Integers
    since: Integers
    position: Integers
    reserved: Integers
    need: Integers
    rest: Integers
    mean: Integers
    last: Integers
    milliseconds: Integers
    group: Integers
    phase: Integers
    state: Integers
    node: Integers
    paused: Integers
    kept: Integers
    open: Integers
    counts: Integers
    left: Floats
    cost: Floats


class Nodes(NamedTuple):
    """N nodes.

    Attributes
    ----------
    capacity, free : (N, R).
    expected : (N, R) what the tasks of each will need in the mean of the time that they have left.
    total : (R,) of all nodes.
    tasks, held : (N, `MAX_TASKS`) tasks on each node, the first ``held`` of a row.
    kept_for : (N,) the group that a node is reserved for; -1 for none.
    declined : (N,) whether the last report left room unused that some task fits into.
    """

    capacity: Integers
    free: Integers
    expected: Integers
    total: Integers
    tasks: Integers
    held: Integers
    kept_for: Integers
    declined: Integers


def tables(
    groups: Sequence[tuple[int, Profile, int]],
    capacity: Integers,
    *,
    jobs: int | None = None,
    kept: Sequence[bool] | None = None,
) -> tuple[Work, Nodes]:
    """Return the arrays of some groups, all closed, and of idle nodes.

    Parameters
    ----------
    groups : job (from 0), profile and number of tasks of each.
    capacity : (N, R), in the unit of the needs.
    jobs : number of jobs; by default as many as the groups name.
    kept : (R,) whether a paused task keeps a resource; by default all but the first, which is cpu.

    Raises
    ------
    InputError
        When some phase fits on no node, or a need has another number of resources.
    """
    capacity = np.ascontiguousarray(capacity, np.int64)
    profiles: dict[int, int] = {}
    need: list[tuple[int, ...]] = []
    last: list[int] = []
    lengths: list[int] = []
    first = []
    for job, profile, _ in groups:
        if len(profile.phases[0].need) != capacity.shape[1]:
            raise InputError(f"names {len(profile.phases[0].need)} of {capacity.shape[1]} resources", field="need")
        if id(profile) not in profiles:
            if not (np.array(profile.largest()) <= capacity).all(axis=1).any():
                raise InputError(f"job {job}: no node has room for all its phases", field="need")
            profiles[id(profile)] = len(need)
            need += [phase.need for phase in profile.phases]
            last += [0] * (len(profile.phases) - 1) + [1]
            lengths += [phase.milliseconds for phase in profile.phases]
        first.append(profiles[id(profile)])
    needs = np.array(need, np.int64).reshape(len(need), capacity.shape[1])
    sizes = np.array([size for _, _, size in groups], np.int64)
    job_of = np.array([job for job, _, _ in groups], np.int64)
    ends = np.cumsum(sizes)
    count = len(groups)
    tasks = int(ends[-1]) if count else 0
    total_jobs = jobs if jobs is not None else int(job_of.max(initial=-1)) + 1
    cost = _cost([profile for _, profile, _ in groups], sizes, capacity)
    work = Work(
        held=np.zeros((total_jobs, capacity.shape[1]), np.int64),
        job=job_of,
        first=np.array(first, np.int64),
        waiting=sizes.copy(),
        running=np.zeros(count, np.int64),
        next_task=ends - sizes,
        since=np.zeros(count, np.int64),
        position=np.full(count, NONE, np.int64),
        reserved=np.full(count, NONE, np.int64),
        need=needs,
        rest=_rest(needs, last),
        mean=_mean(needs, lengths, last),
        last=np.array(last, np.int64),
        milliseconds=np.array(lengths, np.int64),
        group=np.repeat(np.arange(count, dtype=np.int64), sizes),
        phase=np.repeat(np.array(first, np.int64), sizes),
        state=np.full(tasks, WAITING, np.int64),
        node=np.full(tasks, NONE, np.int64),
        paused=np.zeros(tasks, np.int64),
        kept=np.array([index > 0 for index in range(capacity.shape[1])] if kept is None else kept, np.int64),
        open=np.zeros(count, np.int64),
        counts=np.zeros(2, np.int64),
        left=np.bincount(job_of, weights=cost * sizes, minlength=total_jobs).astype(np.float64),
        cost=cost,
    )
    return work, _idle(capacity)


def _idle(capacity: Integers) -> Nodes:
    """Return nodes that hold nothing."""
    nodes = len(capacity)
    return Nodes(
        capacity=capacity,
        free=capacity.copy(),
        expected=np.zeros_like(capacity),
        total=capacity.sum(axis=0),
        tasks=np.full((nodes, MAX_TASKS), NONE, np.int64),
        held=np.zeros(nodes, np.int64),
        kept_for=np.full(nodes, NONE, np.int64),
        declined=np.zeros(nodes, np.int64),
    )


def _cost(profiles: Sequence[Profile], sizes: Integers, capacity: Integers) -> Floats:
    """Return the work of a task of each group; all tasks together are 1."""
    total = np.maximum(capacity.sum(axis=0), 1).astype(np.float64)
    known: dict[int, float] = {}
    for profile in profiles:
        if id(profile) not in known:
            needs = np.array([phase.need for phase in profile.phases], np.float64) / total
            known[id(profile)] = float((np.array([phase.milliseconds for phase in profile.phases]) @ needs).max())
    cost = np.array([known[id(profile)] for profile in profiles], np.float64)
    return cost / max(float(cost @ sizes), np.finfo(np.float64).tiny)


def _rest(need: Integers, last: Sequence[int]) -> Integers:
    """Return the most that each phase and those after it need."""
    rest = need.copy()
    for row in range(len(need) - 2, -1, -1):
        if not last[row]:
            rest[row] = np.maximum(rest[row], rest[row + 1])
    return rest


def _mean(need: Integers, milliseconds: Sequence[int], last: Sequence[int]) -> Integers:
    """Return what each phase and those after it need in the mean of their time."""
    mean = need.copy()
    area, length = np.zeros(need.shape[1]), 0
    for row in range(len(need) - 1, -1, -1):
        if last[row]:
            area, length = np.zeros(need.shape[1]), 0
        area, length = area + need[row].astype(np.float64) * milliseconds[row], length + milliseconds[row]
        mean[row] = np.rint(area / length).astype(np.int64)
    return mean
