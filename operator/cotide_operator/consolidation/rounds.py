"""`Rounds`: consolidation round after round from a terminal, by the rules of the operator's `controller`.

``cotide consolidate --watch`` calls it. In each round it reads the cluster and plans, and `removal.watching.Watch`
decides. On request it then carries out the decisions, a node at a time, by the same `Carrier`::

    (interval) -> read -> WantedNodes, drain_plan -> Watch.decide -> shown
                    ^                                      |  with --apply
                    `----- marks and records of the nodes <-- Carrier -> API server

A round ends early at a surprise, or when a pod waits; the next one plans again. The nodes' records outlive the process:
a kill leaves at most one node draining, which the next run uncordons first. `leave` also uncordons nodes that are to
empty by themselves, because only a living process may hold those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cotide_core.consolidation.removal.drain_plan import DrainPlan
from cotide_core.consolidation.removal.wanted import WantedNodes
from cotide_core.consolidation.removal.watching import (
    Acts,
    ClusterView,
    Mark,
    Standing,
    Watch,
    WatchRules,
    moves_left,
)
from cotide_core.errors import ClusterError
from cotide_core.events import PodPhase
from cotide_operator.clock import Clock
from cotide_operator.consolidation.carrier import Carried, Carrier, ClusterHands
from cotide_operator.consolidation.node_record import Recorded, standing_of
from cotide_operator.consolidation.picture import Picture


class RoundHands(ClusterHands, Protocol):
    """Actions on a cluster that rounds need in addition to those of a `Carrier`: `watch_hands.WatchHands`."""

    def read(self) -> Picture:
        """Read the cluster."""
        ...

    async def records(self) -> dict[str, Recorded]:
        """Return the annotations of the nodes that carry our mark or a record."""
        ...

    async def write(
        self,
        name: str,
        mark: Mark,
        *,
        cordoned: bool,
        demanded: bool = False,
        forecast: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """Cordon or uncordon a node with our mark and record."""
        ...


@dataclass(frozen=True)
class Round:
    """The observations and decisions of one round.

    Attributes
    ----------
    number : from 1. now : epoch seconds.
    plan : None while pods wait that a node could take. waiting : pods that no node would take.
    moves_left : pods that may still be moved within the hour.
    uids : of all pods, by key. held : nodes that carry our mark, whatever its author.
    taken : nodes with our mark that another program or user uncordoned, and now owns.
    """

    number: int
    now: float
    plan: DrainPlan | None
    waiting: int
    acts: Acts
    moves_left: int
    uids: Mapping[str, str]
    held: Mapping[str, str]
    taken: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Rounds:
    """One run of the command.

    Parameters
    ----------
    plan : makes a plan from a picture, as the command does.
    carrier : with `goes` as its set of pods that go with their node; None to change nothing.
    goes : filled again in each round.
    """

    def __init__(
        self,
        hands: RoundHands,
        clock: Clock,
        plan: Callable[[Picture], DrainPlan],
        pace: WatchRules,
        carrier: Carrier | None = None,
        goes: set[str] | None = None,
    ) -> None:
        self._hands, self._clock, self._plan, self._pace = hands, clock, plan, pace
        self._carrier = carrier
        self._goes = set[str]() if goes is None else goes
        self._watch = Watch(pace)
        self._number = 0

    async def begin(self) -> None:
        """Uncordon nodes that a killed run left draining or emptying; call it once before any change.

        Raises
        ------
        ClusterError
            When the operator holds nodes: both would undo each other's work.
        """
        for name, record in (await self._hands.records()).items():
            if record.mark and record.holder == "operator":
                raise ClusterError(
                    f"the operator consolidates this cluster (it holds node {name}): --watch shows its work,"
                    " --apply is not possible"
                )
        await self.leave()

    async def look(self) -> Round:
        """Read, plan and decide; changes nothing."""
        self._number += 1
        picture = await asyncio.to_thread(self._hands.read)
        now = self._clock.now()
        records = await self._hands.records()
        loads = _loads(picture)
        standings = {
            name: standing_of(record.mark, record.record, loads.get(name, 0), self._clock)
            for name, record in records.items()
            if record.holder == "watch" or (self._carrier is None and record.holder == "operator")
        }
        taken = tuple(
            name for name, record in records.items() if record.holder == "watch" and record.mark and not record.cordoned
        )  # fmt: skip
        for name in taken:
            standings[name] = replace(standings[name], mark=Mark.NONE)
        ours = [name for name, standing in standings.items() if standing.mark is not Mark.NONE]
        refused = {pod.key for pod in await self._hands.pods() if pod.refused and not pod.node}
        waiting = [record.pod for record in picture.state.records() if record.pod.key in refused]
        wanted, hope, _ = WantedNodes().of(picture.state, waiting, ours)
        plan = None if hope else await asyncio.to_thread(self._plan, picture)
        acts = self._watch.decide(ClusterView(now, plan, standings, self._draining(standings), wanted=wanted))
        self._goes.clear()
        self._goes.update(record.pod.key for record in picture.state.records() if record.pod.terminating)
        self._goes.update(key for key, facts in picture.facts.items() if facts.goes_with_node)
        return Round(
            self._number,
            now,
            plan,
            len(waiting),
            acts,
            moves_left(standings, now, self._pace.moves_per_hour),
            {record.pod.key: record.pod.uid for record in picture.state.records()},
            {name: record.mark for name, record in records.items() if record.mark},
            taken,
            picture.warnings,
        )

    def _draining(self, standings: Mapping[str, Standing]) -> frozenset[str]:
        """Return nodes that another process drains now, when this run only observes: their drains are not leftovers of
        a kill."""
        if self._carrier is not None:
            return frozenset()
        return frozenset(name for name, standing in standings.items() if standing.mark is Mark.DRAINING)

    async def carry_out(self, seen: Round) -> Carried:
        """Carry out the decisions of a round; ends at the first surprise, or when a pod waits."""
        if self._carrier is None:
            return Carried((), (), "")
        failed: list[str] = []
        for name in seen.taken:
            await self._write(failed, name, Mark.NONE, cordoned=False)
        for back in seen.acts.give_back:
            await self._write(failed, back.node, Mark.NONE, cordoned=False, demanded=back.demanded)
        marked = [name for name in seen.acts.freed if await self._write(failed, name, Mark.FREED, cordoned=True)]
        for emptying in seen.acts.leave:
            forecast = (emptying.p50_seconds, emptying.p90_seconds)
            await self._write(failed, emptying.node, Mark.EMPTYING, cordoned=True, forecast=forecast)
        freed: tuple[str, ...] = tuple(marked)
        moved: tuple[str, ...] = ()
        for step in seen.acts.drain:
            carried = await self._carrier.carry_out((step,), seen.uids)
            freed, moved = (*freed, *carried.freed), (*moved, *carried.moved)
            if carried.surprise:
                return Carried(freed, moved, carried.surprise)
            if any(pod.refused and not pod.node for pod in await self._hands.pods()):
                return Carried(freed, moved, "a pod waits for a node: the plan is postponed")
        return Carried(freed, moved, "; ".join(failed))

    async def _write(self, failed: list[str], name: str, mark: Mark, *, cordoned: bool, **more: Any) -> bool:
        """Write to one node; a refusal is noted, and other nodes go on."""
        try:
            await self._hands.write(name, mark, cordoned=cordoned, **more)
        except ClusterError as error:
            failed.append(f"{name}: {error}")
            return False
        return True

    async def leave(self) -> list[str]:
        """Uncordon our nodes that no process drains or awaits any more; returns them.

        Raises
        ------
        ClusterError
            When some are refused, after all were tried.
        """
        left = [
            name
            for name, record in (await self._hands.records()).items()
            if record.holder == "watch" and record.mark in (Mark.DRAINING, Mark.EMPTYING)
        ]
        failed: list[str] = []
        opened = [name for name in left if await self._write(failed, name, Mark.NONE, cordoned=False)]
        if failed:
            raise ClusterError(f"left cordoned, until --watch --apply starts again: {'; '.join(failed)}")
        return opened


def _loads(picture: Picture) -> dict[str, int]:
    """Return by node how many of its pods would need another."""
    found: dict[str, int] = {}
    for record in picture.state.records():
        ended = record.pod.terminating or record.pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        if record.node is not None and not ended and not picture.facts[record.pod.key].goes_with_node:
            found[record.node] = found.get(record.node, 0) + 1
    return found
