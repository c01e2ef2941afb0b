"""Continuous consolidation: what to do now, given a plan and the marks on the nodes.

Called by the operator's `consolidation.controller` at each look. Each action on a node is written on it and read back
from there. So after a kill the next process knows everything that binds it::

    (open) --a plan frees it, for `stable_seconds`--> draining --empty--> freed --taken by an autoscaler--> gone
                                                         |                 |
       ^-- undone: surprise, stop, start after a kill <--'                 |
       ^-- given back: pods wait for it, or it was not taken <-------------'
    (open) --its pods all end soon--> emptying --empty--> freed;  --not empty in time--> (open)
    freed --capacity has it switched off--> stopping --its machine is off--> gone

Three rules keep a varying load from moving pods to and fro. Nodes are freed only when each look of `stable_seconds`
could have freed them. For `cooldown_seconds` after a node was given back because pods waited, nothing is drained; the
same pause holds for each node given back. At most `moves_per_hour` pods are moved, whatever was planned. Pure; times
are seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Final

from cotide_core.consolidation.removal.drain_plan import DrainPlan, Emptying, Freed
from cotide_core.events import Node

HOUR_SECONDS: Final = 3600.0


class Mark(StrEnum):
    """Our action on a node, as written on it."""

    NONE = ""
    DRAINING = "draining"
    EMPTYING = "emptying"
    FREED = "freed"
    STOPPING = "stopping"
    """Handed over: its machine may be off at any moment, so it is never given back."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many nodes may go, where another component decides how many there must be.

    Attributes
    ----------
    label : the label that gives a node's kind.
    left : open nodes of each kind that may go; a node of another kind is not limited.
    """

    label: str
    left: Mapping[str, int]

    def kind_of(self, node: Node | None) -> str | None:
        """Return the kind of a counted node; None for another."""
        kind = None if node is None else dict(node.labels).get(self.label)
        return kind if kind in self.left else None


@dataclass(frozen=True, slots=True)
class Standing:
    """A node with our mark or record.

    Attributes
    ----------
    mark, since : our action and its time.
    pods : on it now that would need another node; meaningless without a mark.
    p50_seconds, p90_seconds : of an `EMPTYING` node, counted from `since`.
    given_back, demanded : time of our last uncordoning, and whether the reason was waiting pods.
    moved : time of each eviction by us from it, by the pod's uid.
    """

    mark: Mark = Mark.NONE
    since: float = -inf
    pods: int = 0
    p50_seconds: float = inf
    p90_seconds: float = inf
    given_back: float = -inf
    demanded: bool = False
    moved: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchRules:
    """How fast consolidation acts, and how easily it changes its mind.

    Attributes
    ----------
    moves_per_hour, moves_at_once : pods.
    stable_seconds : for how long each look must have been able to free a node.
    cooldown_seconds : see the module.
    keep_freed_seconds : after it a freed node that was not taken is given back.
    spare_nodes : empty nodes that stay open, so that the next pods need not wait for one.
    opens_spares : whether freed ones are opened where fewer are empty. Only where pods go to the fullest node: a
        scheduler that spreads puts the next moved pods on the node just opened, and so on without end.
    """

    moves_per_hour: int = 60
    moves_at_once: int = 1
    stable_seconds: float = 600.0
    cooldown_seconds: float = 3600.0
    keep_freed_seconds: float = 3600.0
    spare_nodes: int = 1
    opens_spares: bool = True


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A node to uncordon, and why; `demanded`: because pods wait; `late`: it was not empty in time."""

    node: str
    why: str
    demanded: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Acts:
    """What to do now: nodes to drain, to leave to empty, to mark as freed, to give back."""

    drain: tuple[Freed, ...] = ()
    leave: tuple[Emptying, ...] = ()
    freed: tuple[str, ...] = ()
    give_back: tuple[GivenBack, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one moment.

    Attributes
    ----------
    plan : of the nodes that are open; None if there was no time for one, or pods wait.
    standings : of the nodes that carry our mark or our record.
    draining : nodes that are being drained by this process.
    beside : pods that may be on their way from these, beyond one of each: those of a gang leave at once.
    wanted : our nodes that pods wait for (`wanted`).
    """

    now: float
    plan: DrainPlan | None
    standings: Mapping[str, Standing]
    draining: frozenset[str] = frozenset()
    beside: int = 0
    wanted: tuple[str, ...] = ()


def within(plan: DrainPlan, allowed: Allowance, kinds: Mapping[str, str | None]) -> DrainPlan:
    """Return a plan without the nodes that may not go.

    The rest of it holds: where a node stays there is only more room. ``kinds``: by node, see `Allowance.kind_of`.
    """
    left = dict(allowed.left)

    def goes(node: str) -> bool:
        kind = kinds.get(node)
        if kind is None:
            return True
        left[kind] -= 1
        return left[kind] >= 0

    return replace(
        plan,
        freed=tuple(freed for freed in plan.freed if goes(freed.node)),
        emptying=tuple(emptying for emptying in plan.emptying if goes(emptying.node)),
    )


def moves_left(standings: Mapping[str, Standing], now: float, per_hour: int) -> int:
    """Return how many pods may still be moved in the hour up to now."""
    lately = sum(now - HOUR_SECONDS < at for standing in standings.values() for at in standing.moved.values())
    return max(0, per_hour - lately)


class Watch:
    """Decides at each look; remembers only since when nodes could have been freed, which a restart may forget."""

    def __init__(self, rules: WatchRules) -> None:
        self._rules = rules
        self._since: dict[str, float] = {}

    def decide(self, view: ClusterView) -> Acts:
        """Return what to do now."""
        give_back = self._give_back(view)
        freed = tuple(
            name for name, standing in view.standings.items() if standing.mark is Mark.EMPTYING and not standing.pods
        )  # fmt: skip
        back = {given_back.node for given_back in give_back}
        drain, leave = ((), ()) if view.plan is None or view.wanted else self._drain(view, view.plan)
        return Acts(drain, leave, tuple(name for name in freed if name not in back), give_back)

    def _give_back(self, view: ClusterView) -> tuple[GivenBack, ...]:
        found = [GivenBack(name, "pods wait that would run there", demanded=True) for name in view.wanted]
        for name, standing in view.standings.items():
            why = self._over(name, standing, view)
            if why and name not in view.wanted:
                found.append(GivenBack(name, why, late=_is_late(standing, view)))
        return (*found, *self._spares(view, {given_back.node for given_back in found}))

    def _spares(self, view: ClusterView, given: set[str]) -> list[GivenBack]:
        """Return freed nodes to open, the youngest first, where fewer empty ones are open than the spare number.

        Without them the first pod that comes to a full cluster waits, and all drains are undone for it.
        """
        if view.plan is None or view.wanted or not self._rules.opens_spares:
            return []
        lacking = self._rules.spare_nodes - sum(not freed.moves for freed in view.plan.freed)
        ours = [
            name
            for name, standing in view.standings.items()
            if standing.mark is Mark.FREED and not standing.pods and name not in given
        ]
        ours.sort(key=lambda name: (-view.standings[name].since, name))
        return [GivenBack(name, "it stays open as a spare") for name in ours[: max(lacking, 0)]]

    def _over(self, name: str, standing: Standing, view: ClusterView) -> str:
        """Return why a node of ours is given back although no pod waits for it; empty to keep it."""
        age = view.now - standing.since
        if standing.mark is Mark.DRAINING and name not in view.draining:
            return "an operator that was killed left it draining"
        if _is_late(standing, view):
            return (
                f"its p90 forecast to be empty was {standing.p90_seconds:.0f} s, and it is not empty after {age:.0f} s"
            )
        if standing.mark is Mark.FREED and standing.pods:
            return "pods came to it although it is cordoned"
        if standing.mark is Mark.FREED and age > self._rules.keep_freed_seconds:
            return f"it was not taken in {age:.0f} s"
        return ""

    def _drain(self, view: ClusterView, plan: DrainPlan) -> tuple[tuple[Freed, ...], tuple[Emptying, ...]]:
        rules, now = self._rules, view.now
        candidates = {freed.node for freed in plan.freed} | {emptying.node for emptying in plan.emptying}
        self._since = {name: self._since.get(name, now) for name in candidates}
        demanded = max((standing.given_back for standing in view.standings.values() if standing.demanded), default=-inf)
        if now - demanded < rules.cooldown_seconds:
            return (), ()
        ripe = {name for name, since in self._since.items() if now - since >= rules.stable_seconds}
        ripe -= {
            name for name, standing in view.standings.items() if now - standing.given_back < rules.cooldown_seconds
        }
        left = moves_left(view.standings, now, rules.moves_per_hour)
        lanes = max(0, rules.moves_at_once - len(view.draining) - view.beside)
        spare = rules.spare_nodes
        drain: list[Freed] = []
        for freed in plan.freed:
            moves = len(freed.moves)
            if not moves and spare:
                spare -= 1
                continue
            # A planned gang may go alone, whatever its size: the plan has bounded that.
            wide = freed.at_once > lanes and not (freed.together and lanes == rules.moves_at_once)
            if freed.node not in ripe or moves > left or wide:
                continue
            lanes = max(0, lanes - freed.at_once)
            left -= moves
            drain.append(freed)
        return tuple(drain), tuple(emptying for emptying in plan.emptying if emptying.node in ripe)


def _is_late(standing: Standing, view: ClusterView) -> bool:
    """Whether a node that should empty by itself has had its time, and is not empty."""
    age = view.now - standing.since
    return bool(
        standing.mark is Mark.EMPTYING
        and standing.pods
        and age > max(2 * standing.p90_seconds, standing.p90_seconds + 60.0)
    )
