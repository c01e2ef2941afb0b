"""The worth of granting a phase: eqs. 14 to 17 of Zhang and Boutaba 2014.

Called by `node_report`. Fairness is dominant resource fairness (Ghodsi et al. 2011). A job's dominant share is the
largest part of any resource that it holds, and the fair share of n jobs is 1/n. The paper leaves the measure open
("according to fairness metrics such as DRF") and states that it is the user's, before less after the grant. Two
measures are available, both in fair shares:

    `DISTANCE`    the distance from the fair share. A grant beyond the fair share loses fairness: where performance is
                  worth less than that, the utility is not positive and lines 14 and 15 of Algorithm 2 decline the grant
    `LOGARITHM`   minus the logarithm of the share; its sum over jobs is least where shares are proportionally fair.
                  More is always better for the user. No grant is declined, so all room that a task fits into is used,
                  and a job that has the cluster for itself receives all of it

Added to the paper, which leaves the utility of performance to the user (sec. IV): a job with little left is worth more,
since it then gives back all it holds. It is weighed against fairness as logarithms: with the weight w a job is served
as if its share were multiplied by (its work left)^w.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled

EPSILON: Final = 0.5
"""Replaces zero running tasks in eq. 16 (chosen): the gains of 0, 1, 2 running tasks are then 1, 1/2, 1/6 of all."""
FLOOR: Final = 0.01
"""Added to shares before the logarithm, in fair shares, so that a job without a share has one, too (chosen)."""
LEAST: Final = 1e-12
"""Work left counts as at least this much; sums of floats end near zero, not at it (chosen)."""
UTILITY: Final = 0
DOMINANT_SHARE: Final = 1
ARRIVAL: Final = 2
LOGARITHM: Final = 0
DISTANCE: Final = 1


class Weights(NamedTuple):
    """How phases are chosen; the figures were chosen on mixes and logs of seed 101, which no experiment uses.

    Attributes
    ----------
    rule : `UTILITY`; `DOMINANT_SHARE`: the lowest dominant share first; `ARRIVAL`: the job that came first. By the last
        two no phase is declined.
    alpha : weight of performance (eq. 14), >= 0.
    wait_square, wait_constant : ``a`` per squared second and ``b`` of eq. 17, both > 0.
    pause_milliseconds : a pause longer than this stops all new starts on its node until it ends.
    shortness : weight of the little work that a job has left, added to eq. 14, >= 0; 0 is the paper.
    overcommit : a node starts no task beyond so many times its capacity, in what its tasks will need in the mean of the
        time that they have left; the first task always starts.
    start_milliseconds : a group that started no task for longer than this has a node kept free for it.
    measure : of fairness in eq. 15: `LOGARITHM` or `DISTANCE`.
    whole : 1 where a task starts only on a node with room for the largest of its needs, as a live pod does; 0 where its
        first phase must fit.
    """

    rule: int = UTILITY
    alpha: float = 0.0001
    wait_square: float = 0.1
    wait_constant: float = 10_000.0
    pause_milliseconds: int = 30_000
    start_milliseconds: int = 600_000
    overcommit: float = 1.3
    shortness: float = 0.5
    whole: int = 0
    measure: int = LOGARITHM


@compiled
def dominant_share(held: Integers, added: Integers, removed: Integers, total: Integers) -> float:
    """Return the largest part of any resource that is held, after a change; all arguments (R,)."""
    share = 0.0
    for resource in range(len(total)):
        if total[resource] > 0:
            share = max(share, (held[resource] + added[resource] - removed[resource]) / total[resource])
    return share


@compiled
def fairness_gain(before: float, after: float, jobs: int, measure: int) -> float:
    """Return eq. 15 for one dominant share after another; below 0 where `DISTANCE` sees the job leave its fair share.

    Parameters
    ----------
    before, after : dominant shares, in [0, 1].
    jobs : that are not done, at least 1.
    measure : `LOGARITHM` or `DISTANCE`.
    """
    if measure == DISTANCE:
        return abs(before * jobs - 1.0) - abs(after * jobs - 1.0)
    return math.log((after * jobs + FLOOR) / (before * jobs + FLOOR))


@compiled
def parallelism_gain(unfinished: int, running: int) -> float:
    """Return eq. 16: how many waves fewer the tasks of a group need with one more running."""
    return unfinished / max(float(running), EPSILON) - unfinished / (running + 1.0)


@compiled
def shortness_gain(left: float) -> float:
    """Return how near its end a job is: minus the logarithm of its remaining work, in (0, 1] of all jobs'."""
    return -math.log(max(left, LEAST))


@compiled
def wait_penalty(paused_seconds: float, square: float, constant: float) -> float:
    """Return eq. 17, rising with the square of the pause. The paper prints ``a p(T)^2 + b``; ``a T^2 + b`` is meant."""
    return square * paused_seconds * paused_seconds + constant
