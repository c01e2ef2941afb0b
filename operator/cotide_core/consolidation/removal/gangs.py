"""Gangs in plans of removal: how many pods of each may go, which gangs go as a whole, and what stays if too many go.

Called by `columns`, `what_if` and `scenario`. A gang below its minimum does no work. So a plan moves no more of it at
once than it can spare or, where that is asked for, all of it off its one node. Of the pods that lost their node, as
many find another as the gang then lacks, or none, as when gangs start. Pods that succeeded count as holding
(`queueing.gangs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cotide_core.consolidation.removal.stays import Stay
from cotide_core.events import Gang, Pod, PodPhase
from cotide_core.kernels.array_types import Integers
from cotide_core.state.cluster_state import PodRecord


def succeeded_of(pods: Iterable[Pod]) -> dict[str, int]:
    """Return how many pods of each gang succeeded: by its Job's count, or by the number seen, by key of the gang."""
    seen: dict[str, int] = {}
    counted: dict[str, int] = {}
    for pod in pods:
        if pod.gang is not None:
            key = pod.gang.key
            seen[key] = seen.get(key, 0) + (pod.phase is PodPhase.SUCCEEDED)
            counted[key] = max(counted.get(key, 0), pod.gang.succeeded)
    return {key: max(seen[key], counted[key]) for key in seen}


def gangs_of(everybody: Iterable[PodRecord], placed: Sequence[PodRecord]) -> tuple[Integers, Integers, Integers]:
    """Number the gangs of placed pods.

    Parameters
    ----------
    everybody : all pods; those that succeeded count. placed : the P pods on nodes.

    Returns
    -------
    tuple
        (P,) the number of each pod's gang, -1 for none; (G,) pods of each beyond its minimum; (G,) pods of each that
        hold a node and are not leaving.
    """
    gangs: dict[str, int] = {}
    rules: list[Gang] = []
    gang_of = np.full(len(placed), -1, np.int64)
    for index, record in enumerate(placed):
        rule = record.pod.gang
        if rule is not None:
            gang_of[index] = gangs.setdefault(rule.key, len(gangs))
            rules += [rule] if len(gangs) > len(rules) else []
    if not gangs:
        return gang_of, np.zeros(0, np.int64), np.zeros(0, np.int64)
    ended = (PodPhase.SUCCEEDED, PodPhase.FAILED)
    holds = np.array(
        [not pod_record.pod.terminating and pod_record.pod.phase not in ended for pod_record in placed], np.bool_
    )
    holding = np.bincount(gang_of[holds & (gang_of >= 0)], minlength=len(gangs))
    succeeded = succeeded_of(pod_record.pod for pod_record in everybody)
    spare = [int(count) + succeeded[rule.key] - rule.minimum for count, rule in zip(holding, rules, strict=True)]
    return gang_of, np.array(spare, np.int64), holding


def whole_gangs(
    gang_of: Integers,
    spare: Integers,
    holding: Integers,
    row_of: Integers,
    stays: Integers,
    budgets_of: Sequence[tuple[str, ...]],
    budgets: Mapping[str, int],
    most: int,
) -> Integers:
    """Find the gangs that leave their node as a whole, if at all: all of each is there, and may go at once.

    A gang that can spare as many as are on any one node moves pod by pod; a gang below its minimum is skipped.

    Parameters
    ----------
    gang_of, row_of, stays : (P,) of each pod; ``stays`` gets the reason for each gang that would have to move as a
    whole and can't.
    spare, holding : (G,) see `gangs_of`.
    budgets_of, budgets : disruption budgets that cover each pod, and how many pods each allows to go now.
    most : pods of a gang that may leave together.

    Returns
    -------
    (P,) the number of the gang that leaves together with a pod, -1 for none.
    """
    whole_of = np.full(len(gang_of), -1, np.int64)
    movable = np.flatnonzero((gang_of >= 0) & (stays == Stay.NONE))
    movable = movable[np.argsort(gang_of[movable], kind="stable")]
    for pods in np.split(movable, np.flatnonzero(np.diff(gang_of[movable])) + 1) if len(movable) else ():
        gang = int(gang_of[pods[0]])
        _, on_row = np.unique(row_of[pods], return_counts=True)
        if spare[gang] < 0 or len(pods) < holding[gang] or on_row.max() <= spare[gang]:
            continue
        covered: dict[str, int] = {}
        for name in (name for pod in pods for name in budgets_of[pod]):
            covered[name] = covered.get(name, 0) + 1
        if len(on_row) > 1:
            if spare[gang] == 0:  # a gang that can spare some pods moves as far as it can, node by node
                stays[pods] = Stay.GANG_APART
        elif len(pods) > most:
            stays[pods] = Stay.GANG_LARGE
        elif any(budgets.get(name, count) < count for name, count in covered.items()):
            stays[pods] = Stay.GANG_BUDGET
        else:
            whole_of[pods] = gang
    return whole_of


def whole_or_none(gang_of: Integers, gang_spare: Integers, question: Integers, targets: Integers) -> Integers:
    """Take back the targets of pods if their gang would still lack some; returns those pods.

    The room that they would have taken is not given to others: an answer errs towards waiting.

    Parameters
    ----------
    gang_of, question : (P,) each pod's gang, -1 for none; and the removal that it belongs to.
    targets : (P,) nodes, -1 for a pod that finds none, -2 for one that needs none; written.
    """
    asked = np.flatnonzero((gang_of >= 0) & (targets > -2))
    if not len(asked):
        return asked
    _, group = np.unique(np.stack((question[asked], gang_of[asked])), axis=1, return_inverse=True)
    group = group.reshape(-1)
    lacks = np.bincount(group) - gang_spare[gang_of[asked]][_first(group)]
    found = np.bincount(group, weights=targets[asked] >= 0)
    lost = asked[(found < lacks)[group] & (targets[asked] >= 0)]
    targets[lost] = -1
    return lost


def _first(group: Integers) -> Integers:
    return np.unique(group, return_index=True)[1]
