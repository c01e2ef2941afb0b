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

import numpy as np
import numpy.typing as npt

from cotide_predictors.run_time.kernels.run_forecasts import Past
from cotide_sim.trace_replay.kernels.easy import NO_BACKFILL
from cotide_sim.trace_replay.kernels.gang_conservative import replay_gang_conservative
from cotide_sim.trace_replay.kernels.gang_plan import replay_gang_plan
from cotide_sim.trace_replay.kernels.gang_queue import replay_gang_queue

Integers = npt.NDArray[np.int64]

IN_ORDER: Final = 0
EASY: Final = 1
CONSERVATIVE: Final = 2
PLAN: Final = 3


def replay_machines(
    submit: Integers,
    run: Integers,
    pieces: Integers,
    need: Integers,
    allowed: Integers,
    shape: Integers,
    request: Integers,
    user: Integers,
    past: Past,
    capacity: Integers,
    kind: Integers,
    rule: int,
    order: int,
    backfill: int,
    mode: int,
    volume: Integers,
    forecast: Integers,
    start: Integers,
    promise: Integers,
    first: Integers,
    used: Integers,
    progress: Integers,
) -> tuple[int, Integers, Integers]:
    """Replay a log; return the number of rounds, and for all jobs end to end the machines and the pieces on each.

    Parameters
    ----------
    submit, run, request, user, past, mode, forecast, start, progress : as in `easy.replay_queue`.
    pieces, need : (n,) and (n, R): a job is so many pieces, each of which needs its row on one machine.
    shape : (n,) jobs of one number need the same on the same kinds of machines; numbered from 0.
    allowed, kind : (n,) and (N,): bit k of a job's number is set when it may use machines of kind k, k < 62.
    capacity : (N, R). Every job must fit the empty machines.
    rule, order, backfill : see above; order of the queue, and of the jobs tried behind a reservation.
    volume : (n,) what stands for processors where jobs are ordered by volume.
    promise : (n,) out: under EASY the first reserved start of a job, under conservative that at submission; else -1.
    first, used : (n,) out: where a job's machines begin in what is returned, and how many there are.
    """
    if rule in (IN_ORDER, EASY):
        return replay_gang_queue(
            submit, run, pieces, need, allowed, shape, request, user, past, capacity, kind, order,
            NO_BACKFILL if rule == IN_ORDER else backfill, mode, volume, forecast, start, promise, first, used,
            progress,
        )  # fmt: skip
    if rule == PLAN:
        return replay_gang_plan(
            submit, run, pieces, need, allowed, shape, request, user, past, capacity, kind, order, mode, volume,
            forecast, start, promise, first, used, progress,
        )  # fmt: skip
    return replay_gang_conservative(
        submit, run, pieces, need, allowed, request, user, past, capacity, kind, mode, forecast, start, promise, first,
        used, progress,
    )  # fmt: skip
