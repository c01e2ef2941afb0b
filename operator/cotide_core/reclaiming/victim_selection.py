"""Chooses the pods to take off a node: a pure choice among pods that may go.

Called by `slack_scheduler` for a batch pod that needs room and by `overload_monitor` for an overloaded node. A
candidate frees some of the lacking amounts. A choice frees at least the lack, and contains only pods that it needs.
Invariants: an online pod is never a candidate, and a protected pod only where an administrator overrides its owner.
Pods that would rather stay are chosen only where the others don't suffice. Same candidates give the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.kernels.array_types import Floats
from cotide_core.state.cluster_state import PodRecord

Lost = Callable[[PodRecord], float]
"""Returns the work that is lost with a pod, in core seconds."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that may go.

    Attributes
    ----------
    frees : (K,) what it would free of each of the K lacking amounts.
    lost : core seconds of work that are lost with it.
    """

    record: PodRecord
    frees: Floats
    lost: float

    @property
    def cost(self) -> tuple[int, float, str]:
        """The cost of its leaving: its owner's preference first, then the work lost; the key breaks ties."""
        pod = self.record.pod
        return (pod.deletion_cost, self.lost, pod.key)


def may_go(record: PodRecord, workload_class: WorkloadClass, now: float, *, despite_owner: bool = False) -> bool:
    """Whether a pod of this class, bound and confirmed, may be asked to go.

    Parameters
    ----------
    despite_owner : takes only the gratis pods that their owner protects from disruption.
    """
    pod = record.pod
    return (
        workload_class is not WorkloadClass.ONLINE
        and pod.workload_class is workload_class
        and record.assumed_seconds is None
        and record.row >= 0
        and not pod.terminating
        and pod.is_protected(now) is (despite_owner and workload_class is WorkloadClass.GRATIS)
    )


def fewest(candidates: Sequence[Candidate], lacking: Floats) -> list[Candidate] | None:
    """Return few pods that together free what is lacking, the least work lost among equals; None if all together don't.

    One pod where one suffices, the cheapest one. Otherwise the pod that fills most of the gap first. At the end pods
    that are not needed drop out again. (The smallest set is a knapsack cover; this is the usual greedy.)
    """
    return _willing_first(candidates, lacking, _fewest)


def cheapest(candidates: Sequence[Candidate], lacking: Floats) -> list[Candidate] | None:
    """Return pods in order of their cost until they free what is lacking; None if all together don't."""

    def chosen(among: Sequence[Candidate], gap: Floats) -> list[Candidate] | None:
        return _until_enough(sorted(among, key=lambda candidate: candidate.cost), gap)

    return _willing_first(candidates, lacking, chosen)


def drawn(candidates: Sequence[Candidate], lacking: Floats, generator: np.random.Generator) -> list[Candidate] | None:
    """Return pods in a random order until they free what is lacking (Jiang et al., Algorithm 1, line 12)."""
    order = generator.permutation(len(candidates)).tolist()
    taken: list[Candidate] = []
    freed = np.zeros(len(lacking))
    for index in order:
        if (freed >= lacking).all():
            break
        taken.append(candidates[index])
        freed = freed + candidates[index].frees
    return taken if (freed >= lacking).all() else None


def _willing_first(
    candidates: Sequence[Candidate],
    lacking: Floats,
    choose: Callable[[Sequence[Candidate], Floats], list[Candidate] | None],
) -> list[Candidate] | None:
    willing = [candidate for candidate in candidates if not candidate.record.pod.prefer_no_eviction]
    found = choose(willing, lacking)
    if found is None and len(willing) < len(candidates):
        return choose(candidates, lacking)
    return found


def _fewest(candidates: Sequence[Candidate], lacking: Floats) -> list[Candidate] | None:
    if (lacking <= 0).all():
        return []
    alone = [candidate for candidate in candidates if (candidate.frees >= lacking).all()]
    if alone:
        return [min(alone, key=lambda candidate: candidate.cost)]
    left = sorted(candidates, key=lambda candidate: candidate.cost)
    gap, taken = lacking, list[Candidate]()
    while (gap > 0).any():
        share = [float((np.minimum(candidate.frees, gap) / np.maximum(gap, 1e-9))[gap > 0].sum()) for candidate in left]
        if not share or max(share) <= 0:
            return None
        best = left.pop(share.index(max(share)))
        taken.append(best)
        gap = gap - best.frees
    return _without_needless(taken, lacking)


def _until_enough(ordered: Sequence[Candidate], lacking: Floats) -> list[Candidate] | None:
    gap, taken = lacking, list[Candidate]()
    for candidate in ordered:
        if not (gap > 0).any():
            break
        if (candidate.frees[gap > 0] > 0).any():
            taken.append(candidate)
            gap = gap - candidate.frees
    return _without_needless(taken, lacking) if not (gap > 0).any() else None


def _without_needless(taken: list[Candidate], lacking: Floats) -> list[Candidate]:
    freed = np.sum([candidate.frees for candidate in taken], axis=0) if taken else np.zeros(len(lacking))
    for candidate in sorted(taken, key=lambda candidate: candidate.cost, reverse=True):
        if (freed - candidate.frees >= lacking).all():
            taken.remove(candidate)
            freed = freed - candidate.frees
    return taken
