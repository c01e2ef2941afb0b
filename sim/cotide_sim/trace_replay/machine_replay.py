"""Replay of a log on many machines with vector demands: strict order, EASY, conservative, and plans (Naghshnejad 2019,
4.2.1).

Called by the trace replay. The same policies and the same rounds as in `easy`, `conservative` and `plan`, where a
processor was like any other: here each piece of a job needs all its resources on one machine (`gangs`). Rounds take
place at each moment at which a job is submitted, ends or outlives its forecast: first ends, then submissions, then
decisions.

- ``IN_ORDER``: the first of the queue starts as soon as it fits; nobody overtakes.
- ``EASY``: the first that does not fit has its machines reserved at the earliest start; any other job that fits now,
  and leaves those machines alone at that time, may start.
- ``CONSERVATIVE``: machines are reserved for every job at its submission; after an early end the waiting move
  forward, in order of submission, each to the earliest start now open to it. When a job outlives its forecast all
  reservations are made anew.
- ``PLAN``: all waiting jobs are planned anew in each round, in order; those planned for now start.

Invariants: no machine is ever overfilled in any resource; on one machine with one resource the schedules are those
of the kernels named above.
"""

from __future__ import annotations

from typing import Final

from cotide_core.kernels.array_types import Integers
from cotide_predictors.run_time.kernels.run_forecasts import Past
from cotide_sim.trace_replay.kernels.easy import NO_BACKFILL
from cotide_sim.trace_replay.kernels.gang_conservative import gang_conservative_rule, replay_gang_conservative
from cotide_sim.trace_replay.kernels.gang_lists import FILLED, Held
from cotide_sim.trace_replay.kernels.gang_plan import gang_plan_rule, replay_gang_plan
from cotide_sim.trace_replay.kernels.gang_queue import gang_queue_rule, replay_gang_queue
from cotide_sim.trace_replay.kernels.gangs import Gangs
from cotide_sim.trace_replay.kernels.kept import Jobs, kept_of

IN_ORDER: Final = 0
EASY: Final = 1
CONSERVATIVE: Final = 2
PLAN: Final = 3


def replay_machines(
    jobs: Jobs, gangs: Gangs, past: Past, mode: int, rule: int, order: int, backfill: int, progress: Integers
) -> tuple[int, Held]:
    """Replay a log; return the number of rounds and which machines each job held, the lists cut to their length.

    Parameters
    ----------
    jobs : as in `event_loop.replay`, but ``demand`` is what stands for processors where jobs are ordered by volume.
        Promises: under EASY the first reserved start of a job, under conservative that at submission; else -1.
    past, mode, progress : as in `event_loop.replay`.
    rule, order, backfill : see above; order of the queue, and of the jobs tried behind a reservation.
    """
    kept = kept_of(len(jobs.submit))
    common = (jobs, past, mode, 0, progress, kept)
    if rule in (IN_ORDER, EASY):
        queue = gang_queue_rule(gangs, order, NO_BACKFILL if rule == IN_ORDER else backfill)
        rounds, held = replay_gang_queue(*common, queue), queue.held
    elif rule == PLAN:
        plan = gang_plan_rule(gangs, order)
        rounds, held = replay_gang_plan(*common, plan), plan.holding.held
    else:
        reservations = gang_conservative_rule(gangs)
        rounds, held = replay_gang_conservative(*common, reservations), reservations.holding.held
    filled = int(kept.counts[FILLED])
    return rounds, held._replace(placed=held.placed[:filled].copy(), counts=held.counts[:filled].copy())
