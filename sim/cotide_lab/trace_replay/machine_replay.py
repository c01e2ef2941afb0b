"""Replay of a log on many machines with vector demands (Naghshnejad 2019, chapters 3 and 4): the rules there are.

Called by the trace replay. The same policies and the same rounds as on one pool, where a processor was like any other:
here each piece of a job needs all its resources on one machine (`gangs`). Rounds take place at each moment at which a
job is submitted, ends or outlives its forecast: first ends, then submissions, then decisions.

- ``IN_ORDER``: the first of the queue starts as soon as it fits; no job overtakes.
- ``EASY``: the first that does not fit has its machines reserved at the earliest start; any other job that fits now,
  and leaves those machines alone at that time, may start.
- ``CONSERVATIVE``: machines are reserved for every job at its submission; after an early end the waiting move
  forward, in order of submission, each to the earliest start now open to it. When a job exceeds its forecast, all
  reservations are made again.
- ``SLACK``: the same reservations, kept within a promise that lies some slack behind, so that others may be brought
  forward (`gang_slack`).
- ``PLAN``: each round plans all waiting jobs again, in order; those planned for now start.
- ``LEAST_WORK``, ``DRAWN``: the same on machines that each job was given once (`given_plan`).
- ``PLATFORM``: predictable jobs on a share, the others on the rest (`gang_platform`).

Invariants: no machine is ever overfilled in any resource; on one machine with one resource the schedules are those
of the pool's kernels.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_lab.predictors.run_time.kernels.run_forecasts import Past
from cotide_lab.trace_replay.kernels.easy import BY_SUBMIT, NO_BACKFILL
from cotide_lab.trace_replay.kernels.on_machines import given_plan
from cotide_lab.trace_replay.kernels.on_machines.gang_conservative import (
    gang_conservative_rule,
    replay_gang_conservative,
)
from cotide_lab.trace_replay.kernels.on_machines.gang_lists import FILLED, Held
from cotide_lab.trace_replay.kernels.on_machines.gang_plan import gang_plan_rule, replay_gang_plan
from cotide_lab.trace_replay.kernels.on_machines.gang_platform import gang_platform_rule, replay_gang_platform
from cotide_lab.trace_replay.kernels.on_machines.gang_queue import gang_queue_rule, replay_gang_queue
from cotide_lab.trace_replay.kernels.on_machines.gang_slack import gang_slack_rule, replay_gang_slack
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs
from cotide_lab.trace_replay.kernels.platform import PlatformRule
from cotide_lab.trace_replay.kernels.replay_state import Jobs, new_replay_state
from cotide_lab.trace_replay.kernels.slack import MIDDLING_PRIORITY

IN_ORDER: Final = 0
EASY: Final = 1
CONSERVATIVE: Final = 2
PLAN: Final = 3
LEAST_WORK: Final = 4
DRAWN: Final = 5
PLATFORM: Final = 6
SLACK: Final = 7
CHOICES: Final = {LEAST_WORK: given_plan.LEAST_WORK, DRAWN: given_plan.DRAWN}


class MachineRule(NamedTuple):
    """What decides on machines.

    Attributes
    ----------
    code : see above.
    order, backfill : of the queue, and of the jobs tried behind a reservation, as in `easy`.
    seed : of the draws of ``DRAWN``.
    platform : lists and shares of ``PLATFORM``, which needs them.
    priority : of every job under ``SLACK``, from 0 to 100.
    """

    code: int
    order: int = BY_SUBMIT
    backfill: int = NO_BACKFILL
    seed: int = 0
    platform: PlatformRule | None = None
    priority: int = MIDDLING_PRIORITY


def replay_machines(
    jobs: Jobs, gangs: Gangs, past: Past, mode: int, rule: MachineRule, progress: Integers
) -> tuple[int, Held]:
    """Replay a log; return the number of rounds and which machines each job held, the lists cut to their length.

    Parameters
    ----------
    jobs : as in `event_loop.replay`, but ``demand`` is what stands for processors where jobs are ordered by volume.
        Promises: under EASY the first reserved start of a job, under conservative that at submission, under slack
        the latest start; else -1.
    past, mode, progress : as in `event_loop.replay`.
    """
    state = new_replay_state(len(jobs.submit))
    common = (jobs, past, mode, 0, progress, state)
    if rule.code in (IN_ORDER, EASY):
        queue = gang_queue_rule(gangs, rule.order, NO_BACKFILL if rule.code == IN_ORDER else rule.backfill)
        rounds, held = replay_gang_queue(*common, queue), queue.held
    elif rule.code == PLAN:
        plan = gang_plan_rule(gangs, rule.order)
        rounds, held = replay_gang_plan(*common, plan), plan.holding.held
    elif rule.code in CHOICES:
        draws = np.random.default_rng(rule.seed).integers(1, given_plan.DRAW_MODULUS, len(jobs.submit))
        given = given_plan.given_plan_rule(gangs, rule.order, CHOICES[rule.code], draws)
        rounds, held = given_plan.replay_given_plan(*common, given), given.holding.held
    elif rule.code == PLATFORM:
        if rule.platform is None:
            raise InputError("the hybrid platform needs its lists", field="platform")
        platform = gang_platform_rule(rule.platform, gangs)
        rounds, held = replay_gang_platform(*common, platform), platform.holding.held
    elif rule.code == SLACK:
        slack = gang_slack_rule(gangs, np.full(len(jobs.submit), rule.priority))
        rounds, held = replay_gang_slack(*common, slack), slack.base.holding.held
    else:
        reservations = gang_conservative_rule(gangs)
        rounds, held = replay_gang_conservative(*common, reservations), reservations.holding.held
    filled = int(state.counts[FILLED])
    return rounds, held._replace(placed=held.placed[:filled].copy(), counts=held.counts[:filled].copy())
