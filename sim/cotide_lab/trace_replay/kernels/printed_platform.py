"""The hybrid platform on one pool as printed (Naghshnejad 2019, sections 4.4.1 to 4.4.3), the rival of `platform`.

Called by the trace replay. Every event plans the predictable jobs on the share alpha of the processors, smallest volume
first, each by its forecast. Then backfilling in order of submission gives the rest of the machine to the others, each
by the user's request. What the text leaves open:

- alpha is that of `platform`, since eq. 4.1 runs to zero.
- The unpredictable may use all that is free, of the share, too: so a planned job needs room in the share *and* in the
  machine.
- A planned job that is larger than alpha has become is backfilled until alpha has grown.
- Backfilling reserves for the first that can't start (FCFS-BF, section 4.2.1), behind all that is planned.
- A job that outlives its forecast is given its upper forecast, then its request, as in every replay.

Invariant: no start delays a planned or a reserved start of the same round; the planned hold no more than alpha.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined, with_steps
from cotide_lab.trace_replay.kernels.event_loop import replay
from cotide_lab.trace_replay.kernels.platform import (
    HELD,
    LENGTHS,
    PlatformRule,
    ended_on_platform,
    is_free,
    prepare_platform,
    share_of,
    start_on_platform,
    submitted_to_platform,
)
from cotide_lab.trace_replay.kernels.profile import change, earliest_start, profile_of
from cotide_lab.trace_replay.kernels.replay_state import RUNNING, TAKEN, WAITING, Jobs, ReplayState


class PrintedRule(NamedTuple):
    """The platform as printed.

    Attributes
    ----------
    platform : forecasts, which jobs are predictable, the share, and the waiting jobs by kind.
    profile : (2, 2n + 16) times and free processors of the share.
    planned : (n,) processors of a job that is predictable, else 0.
    """

    platform: PlatformRule
    profile: Integers
    planned: Integers


def printed_rule(platform: PlatformRule) -> PrintedRule:
    """Return the rule for the jobs that a platform's rule is for."""
    count = len(platform.upper)
    return PrintedRule(platform, np.empty((2, 2 * count + 16), np.int64), np.zeros(count, np.int64))


@inlined
def _prepare(jobs: Jobs, state: ReplayState, rule: PrintedRule) -> PrintedRule:
    prepare_platform(jobs, state, rule.platform)
    return rule


@inlined
def _ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: PrintedRule) -> PrintedRule:
    ended_on_platform(now, job, jobs, state, rule.platform)
    return rule


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: PrintedRule) -> PrintedRule:
    submitted_to_platform(now, job, jobs, state, rule.platform)
    rule.planned[job] = jobs.demand[job] * rule.platform.predictable[job]
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: PrintedRule) -> PrintedRule:
    counts, platform = state.counts, rule.platform
    free = platform.capacity - counts[TAKEN]
    if counts[WAITING] == 0 or free == 0:
        return rule
    times, levels = state.profile[0], state.profile[1]
    size = profile_of(times, levels, now, free, state.ends[0], state.ends[1], counts[RUNNING], jobs.demand)
    size = _plan(now, size, jobs, state, rule)
    _backfill(now, size, jobs, state, rule)
    return rule


@inlined
def _plan(now: int, size: int, jobs: Jobs, state: ReplayState, rule: PrintedRule) -> int:
    """Start or reserve the predictable in order of volume; return the segments of the machine's profile."""
    counts, platform, demand = state.counts, rule.platform, jobs.demand
    times, levels = state.profile[0], state.profile[1]
    own_times, own_levels = rule.profile[0], rule.profile[1]
    share = share_of(platform)
    left = share - counts[HELD]
    own = profile_of(own_times, own_levels, now, left, state.ends[0], state.ends[1], counts[RUNNING], rule.planned)
    index = 0
    while index < counts[LENGTHS + 1] and counts[TAKEN] < platform.capacity:
        job = platform.lines[1, index]
        if demand[job] > share:
            index += 1
            continue
        length = jobs.forecast[job]
        begin = earliest_start(own_times, own_levels, own, now, length, demand[job])
        later = earliest_start(times, levels, size, begin, length, demand[job])
        while later > begin:
            begin = earliest_start(own_times, own_levels, own, later, length, demand[job])
            later = earliest_start(times, levels, size, begin, length, demand[job])
        own = change(own_times, own_levels, own, begin, begin + length, -demand[job])
        size = change(times, levels, size, begin, begin + length, -demand[job])
        if begin > now:
            index += 1
            continue
        start_on_platform(now, job, length, jobs, state, platform)
    return size


@inlined
def _backfill(now: int, size: int, jobs: Jobs, state: ReplayState, rule: PrintedRule) -> None:
    """Start the others in order of submission, with one reservation: for the first that can't start."""
    counts, platform, demand, queue = state.counts, rule.platform, jobs.demand, state.queues[0, 1]
    times, levels = state.profile[0], state.profile[1]
    share = share_of(platform)
    reserved = False
    index = 0
    while index < counts[WAITING] and counts[TAKEN] < platform.capacity:
        job = queue[index]
        length = jobs.request[job]
        if platform.predictable[job] == 1 and demand[job] <= share:
            index += 1
            continue
        if is_free(times, levels, size, length, demand[job]):
            size = change(times, levels, size, now, now + length, -demand[job])
            start_on_platform(now, job, length, jobs, state, platform)
            continue
        if not reserved:
            begin = earliest_start(times, levels, size, now, length, demand[job])
            size = change(times, levels, size, begin, begin + length, -demand[job])
            reserved = True
        index += 1


replay_printed = with_steps(
    replay, "replay_printed", prepare=_prepare, ended=_ended, submitted=_submitted, decide=_decide
)
"""Replays a log under the platform as printed, see `event_loop.replay`."""
