"""A cluster in which pods displace others: an engine that does so, pods that run, and what came of its decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine_objects import pod

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Budget, BudgetUpserted, Event, PodDeleted, PodPhase, PodUpserted, Requirement
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Evict, Instruction, Wait

ONLINE, BATCH, GRATIS = WorkloadClass.ONLINE, WorkloadClass.BATCH, WorkloadClass.GRATIS


def engine(*events: Event, policy: str = "fifo", **fields: Any) -> Scheduler:
    """An engine in which importance decides, told of some events at 0."""
    config = replace(SchedulerConfig(policy=policy, preempts_by_priority=True), **fields)
    scheduler = Scheduler(config, HeuristicCatalogue())
    scheduler.handle(events, 0.0)
    return scheduler


def runs(name: str, on: str, cpu: int, priority: int = 0, cls: WorkloadClass = ONLINE, **fields: Any) -> PodUpserted:
    """A pod that runs on a node, since 0 unless a field says otherwise."""
    given = {"node": on, "phase": PodPhase.RUNNING, "started_seconds": 0.0, "priority": priority, **fields}
    return PodUpserted(pod(name, cpu, cls, **given))


def comes(name: str, cpu: int, priority: int = 0, cls: WorkloadClass = ONLINE, **fields: Any) -> PodUpserted:
    """A pod that waits for a node."""
    return PodUpserted(pod(name, cpu, cls, priority=priority, **fields))


def leaves(before: PodUpserted) -> PodUpserted:
    """The event of a pod that is on its way out."""
    return PodUpserted(before.pod._replace(terminating=True))


def gone(name: str) -> PodDeleted:
    """The event of a pod that is gone."""
    return PodDeleted(f"d/{name}", f"u-{name}")


def budget(app: str, allowed: int = 0, **fields: Any) -> BudgetUpserted:
    """A disruption budget of the pods whose label ``app`` has a value."""
    return BudgetUpserted(Budget(f"d/{app}", (Requirement("app", "In", (app,)),), allowed, **fields))


def labelled(app: str) -> tuple[tuple[str, str], ...]:
    """The labels of a pod that a `budget` selects."""
    return (("app", app),)


def evicted(out: Sequence[Instruction]) -> list[str]:
    """The names of the pods that are asked to leave, sorted."""
    return sorted(one.key[2:] for one in out if isinstance(one, Evict))


def bound(out: Sequence[Instruction]) -> dict[str, str]:
    """The node of each pod that is bound, by name."""
    return {one.key[2:]: one.node for one in out if isinstance(one, Bind)}


def nominated(out: Sequence[Instruction]) -> dict[str, str]:
    """Where room is made for pods that wait, by name; empty where nowhere."""
    return {one.key[2:]: one.nominated_node for one in out if isinstance(one, Wait)}
