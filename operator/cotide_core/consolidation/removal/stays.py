"""Why a pod stays where it is: `Stay`, the facts about each pod for it, and the rules that decide.

Called by `columns`. The content of the API objects (owner, volumes, budgets) comes as `PodFacts` from the shell; the
rest is in the engine's state. Invariant: one reason for each pod, the first that holds in the order of `Stay`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod, PodPhase


class Stay(IntEnum):
    """Reasons, the first that holds wins; `NONE`: it can move. `GOES`: it needs no other node, and keeps no node."""

    NONE = 0
    GOES = 1
    EXCLUDED = 2
    NO_CONTROLLER = 3
    DO_NOT_DISRUPT = 4
    BUDGET = 5
    LOCAL_STORAGE = 6
    UNSUPPORTED = 7
    TOO_YOUNG = 8
    ENDS_SOON = 9
    PREFER_NO_EVICTION = 10
    TIED = 11
    GANG = 12
    GANG_APART = 13
    GANG_LARGE = 14
    GANG_BUDGET = 15


WORDS: Final[dict[Stay, str]] = {
    Stay.EXCLUDED: "its namespace is left out",
    Stay.NO_CONTROLLER: "it has no controller that would recreate it",
    Stay.DO_NOT_DISRUPT: "its owner protects it from disruption",
    Stay.BUDGET: "a disruption budget allows no eviction now",
    Stay.LOCAL_STORAGE: "it has local storage, which would be lost",
    Stay.UNSUPPORTED: "it has a constraint that Cotide does not support",
    Stay.TOO_YOUNG: "it started too recently",
    Stay.ENDS_SOON: "it ends before the move would pay",
    Stay.PREFER_NO_EVICTION: "its owner prefers that it is not evicted",
    Stay.TIED: "it has required rules about other pods, or volumes, which a plan of many moves can't promise to keep",
    Stay.GANG: "its gang would be below its minimum without it",
    Stay.GANG_APART: "its gang can only move as a whole, and is on several nodes",
    Stay.GANG_LARGE: "its gang can only move as a whole, which is more pods than may be on their way at once",
    Stay.GANG_BUDGET: "its gang can only move as a whole, and a disruption budget allows fewer at once",
}


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Facts about a pod that the engine does not keep.

    Attributes
    ----------
    controlled : whether a controller would recreate it.
    goes_with_node : a DaemonSet's or a mirror pod: it ends with its node and is no load to move.
    keeps_node : such a pod with a protected node: its owner forbids programs to disturb it, by Karpenter's annotation.
    local_storage : emptyDir or hostPath volumes that would lose their content.
    budgets : names of the disruption budgets that its eviction draws on.
    remaining_p50, remaining_p90 : seconds until it ends by itself; infinite for services.
    """

    controlled: bool = True
    goes_with_node: bool = False
    keeps_node: bool = False
    local_storage: bool = False
    budgets: tuple[str, ...] = ()
    remaining_p50: float = float("inf")
    remaining_p90: float = float("inf")


UNKNOWN: Final = PodFacts()


@dataclass(frozen=True, slots=True)
class MoveRules:
    """What may be moved, and how much.

    Attributes
    ----------
    excluded_namespaces : namespaces of pods that stay.
    minimum_age_seconds : a pod that started less than this ago stays (chosen: ten minutes): a moved pod is not
        moved again soon, which bounds the moves under a varying load.
    pays_after_seconds : a pod that ends sooner, by the median forecast, is not moved (chosen: half an hour).
    empties_within_seconds : a node with pods that end sooner, nine times in ten, may empty by itself.
    local_storage, prefer_no_eviction : whether such pods may be moved.
    reserve_share : share of each resource that stays free on a node that takes moved pods (chosen: a tenth): without it
        the next new pod would open again a node that was just closed.
    most_moves : pods that a plan moves at most.
    moves_per_node : pods that are moved at most for one node freed.
    gang_most : pods of a gang that may leave a node together, where it can't spare them one by one; 0: none do.
    """

    excluded_namespaces: frozenset[str] = frozenset({"kube-system"})
    minimum_age_seconds: float = 600.0
    pays_after_seconds: float = 1800.0
    empties_within_seconds: float = 900.0
    local_storage: bool = False
    prefer_no_eviction: bool = False
    reserve_share: float = 0.1
    most_moves: int = 1000
    moves_per_node: int = 50
    gang_most: int = 0


@dataclass(frozen=True, slots=True)
class Constraints:
    """Everything that decides whether a pod may move."""

    rules: MoveRules = field(default_factory=MoveRules)
    facts: Mapping[str, PodFacts] = field(default_factory=dict)
    """By key of the pod; `UNKNOWN` where there is none."""
    budgets: Mapping[str, int] = field(default_factory=dict)
    """Pods that each disruption budget allows to go now."""


def stay_of(pod: Pod, constraints: Constraints, now: float) -> Stay:
    """Return why a pod stays, or `Stay.NONE`."""
    rules = constraints.rules
    facts = constraints.facts.get(pod.key, UNKNOWN)
    if pod.terminating or pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
        return Stay.GOES
    if facts.goes_with_node:
        return Stay.DO_NOT_DISRUPT if facts.keeps_node and pod.is_protected(now) else Stay.GOES
    if pod.key.partition("/")[0] in rules.excluded_namespaces:
        return Stay.EXCLUDED
    if not facts.controlled:
        return Stay.NO_CONTROLLER
    if pod.is_protected(now):
        return Stay.DO_NOT_DISRUPT
    # Two budgets over one pod: the API server then refuses every eviction.
    if facts.budgets and (len(facts.budgets) > 1 or constraints.budgets.get(facts.budgets[0], 1) <= 0):
        return Stay.BUDGET
    if facts.local_storage and not rules.local_storage:
        return Stay.LOCAL_STORAGE
    if pod.unsupported:
        return Stay.UNSUPPORTED
    if _tied(pod):
        return Stay.TIED
    if now - (pod.created_seconds if pod.started_seconds is None else pod.started_seconds) < rules.minimum_age_seconds:
        return Stay.TOO_YOUNG
    if facts.remaining_p50 < rules.pays_after_seconds and pod.workload_class is not WorkloadClass.ONLINE:
        return Stay.ENDS_SOON
    return Stay.PREFER_NO_EVICTION if pod.prefer_no_eviction and not rules.prefer_no_eviction else Stay.NONE


def _tied(pod: Pod) -> bool:
    """Whether a pod's demands depend on the places of others, or on the places of its volumes."""
    if pod.volume_terms or pod.open_claims or pod.sole_claims or pod.blocked:
        return True
    rules = pod.rules
    return rules is not None and bool(
        rules.affinity or rules.anti_affinity or any(spread.required for spread in rules.spreads)
    )
