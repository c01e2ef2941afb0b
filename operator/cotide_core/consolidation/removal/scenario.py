"""`play_scenario`: the engine's own decisions if nodes went or came, a workload grew, or another policy decided.

Called by `cotide whatif`. A second engine gets the changed cluster. Pods of nodes that go wait again, those of nodes
that stay run on, and copies of a scaled workload's pods wait as new ones. Then it decides, with its queue, its filters,
its guard of latency limits and its policy. A gang that lost pods starts as many as it lacks or none. If none, the rest
of it would be released after its time-out. This module carries nothing out. Host-load forecasts are not carried over: a
policy that wants them falls back to requests, as it does whenever they are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.consolidation.removal.gangs import succeeded_of
from cotide_core.consolidation.removal.stays import UNKNOWN, PodFacts
from cotide_core.consolidation.removal.what_if import Left, Move
from cotide_core.cycle import Scheduler
from cotide_core.errors import InputError
from cotide_core.events import (
    Event,
    Node,
    NodeUpserted,
    Pod,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Tick,
    WorkloadUpserted,
)
from cotide_core.forecasts import ModelCatalogue
from cotide_core.instructions import Bind, Evict, Wait
from cotide_core.placement.node_predicates import uncordoned
from cotide_core.state.cluster_state import ClusterState, PodRecord

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
HOSTNAME: Final = "kubernetes.io/hostname"
MOST_ADDED: Final = 100_000
"""Pods that workloads may grow by; chosen: as many as a large cluster has."""
MOST_CYCLES: Final = 10_000
"""Cycles after which a scenario ends as it is (chosen: five million placements)."""
COPY: Final = "whatif"
"""Marks the names of pods and nodes that exist in the scenario only."""


@dataclass(frozen=True)
class Scenario:
    """The changes to the cluster.

    Attributes
    ----------
    without : names of removed nodes. added : new nodes.
    scaled : Workload or Job (``namespace/name``) to a factor from 0 up.
    policy : that decides; None for the configured one.
    """

    without: tuple[str, ...] = ()
    added: tuple[Node, ...] = ()
    scaled: Mapping[str, float] = field(default_factory=dict)
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that would wait, the reason, and whether it waits already."""

    pod: str
    why: str
    reason: str
    already: bool


@dataclass(frozen=True, slots=True)
class ScenarioAnswer:
    """The result of a scenario.

    Attributes
    ----------
    moves : pods of removed nodes, and their new nodes. placed : waiting and new pods that would run, by their node.
    waits : pods without a node; reasons `QosAtRisk` are latency limits that a placement would break.
    at_risk : online pods of moves and placed on a node that is predicted to break a latency limit.
    evicted : pods that the policy would evict to make room, and those of gangs that would be released.
    removed : pods that a workload scaled down gives up.
    """

    moves: tuple[Move, ...]
    placed: tuple[Move, ...]
    waits: tuple[Waiting, ...]
    evicted: tuple[Left, ...]
    removed: tuple[str, ...]
    at_risk: tuple[Left, ...] = ()


def clones(state: ClusterState, model: str, count: int) -> tuple[Node, ...]:
    """Return `count` new empty nodes like a node of this name, or like the first of this instance type.

    Raises
    ------
    InputError
        When there is neither.
    """
    nodes = [node for node in state.columns.nodes if node is not None]
    like = next((node for node in nodes if node.name == model), None)
    like = like or next((node for node in nodes if dict(node.labels).get(INSTANCE_TYPE) == model), None)
    if like is None:
        types = sorted({dict(node.labels).get(INSTANCE_TYPE, "") for node in nodes} - {""})
        known = f"; types: {', '.join(types[:10])}" if types else ""
        raise InputError(f"no node and no instance type is called {model!r}{known}", field="--add-node")
    made = []
    for number in range(count):
        name = f"{like.name}-{COPY}-{number}"
        labels = tuple((key, name if key == HOSTNAME else value) for key, value in like.labels)
        made.append(replace(uncordoned(like), name=name, labels=labels, ready=True))
    return tuple(made)


def play_scenario(
    state: ClusterState,
    scenario: Scenario,
    now: float,
    config: SchedulerConfig,
    catalogue: ModelCatalogue,
    facts: Mapping[str, PodFacts] | None = None,
) -> ScenarioAnswer:
    """Run the engine's decisions on the changed cluster.

    Raises
    ------
    InputError
        When a named node, workload or policy does not exist.
    """
    known = {node.name for node in state.columns.nodes if node is not None}
    unknown = next((name for name in scenario.without if name not in known), None)
    if unknown is not None:
        raise InputError(f"no node is called {unknown!r}", field="--without-node")
    gone = frozenset(scenario.without)
    records = state.records()
    added, removed = _scaled(records, scenario.scaled)
    policy = config.policy if scenario.policy is None else scenario.policy
    engine = Scheduler(replace(config, policy=policy, hierarchical=None), catalogue)
    events: list[Event] = [WorkloadUpserted(one) for key in _workloads(records) if (one := state.workload(key))]
    events += [NodeUpserted(node) for node in state.columns.nodes if node is not None and node.name not in gone]
    events += [NodeUpserted(node) for node in scenario.added]
    waiting: dict[str, tuple[str, bool]] = {}
    succeeded = succeeded_of(record.pod for record in records)
    for record in records:
        pod, source = record.pod, record.node
        if pod.gang is not None:
            pod = pod._replace(gang=pod.gang._replace(succeeded=succeeded[pod.gang.key]))
        if pod.key in removed or pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            continue
        if source in gone:
            if (facts or {}).get(pod.key, UNKNOWN).goes_with_node or pod.terminating:
                continue
            waiting[pod.key] = source or "", False
            pod = _again(pod)
        elif source is None and pod.ours:
            waiting[pod.key] = "", True
        elif source is not None:
            pod = pod._replace(node=source)
        events.append(PodUpserted(pod))
    for pod in added:
        waiting[pod.key] = "", False
        events.append(PodUpserted(_again(pod)))
    measured = [(pod_record.pod.key, pod_record.requests_per_second) for pod_record in records]
    events += [ServiceSampled(key, rate) for key, rate in measured if rate is not None]
    return _decided(engine, events, now, waiting, removed)


def _decided(
    engine: Scheduler, events: list[Event], now: float, waiting: dict[str, tuple[str, bool]], removed: frozenset[str]
) -> ScenarioAnswer:
    moves: list[Move] = []
    placed: list[Move] = []
    waits: dict[str, Waiting] = {}
    evicted: list[Left] = []
    at_risk: list[Left] = []
    bound: set[str] = set()
    for _ in range(MOST_CYCLES):
        made = engine.handle(events, now)
        decided = 0
        for instruction in made:
            if isinstance(instruction, Bind) and instruction.key in waiting:
                source = waiting[instruction.key][0]
                (moves if source else placed).append(Move(instruction.key, source, instruction.node))
                bound.add(instruction.key)
                if instruction.at_risk:
                    at_risk.append(Left(instruction.key, instruction.node, instruction.reason))
                decided += 1
            elif isinstance(instruction, Wait) and instruction.key in waiting:
                waits[instruction.key] = Waiting(
                    instruction.key, instruction.message, str(instruction.reason), waiting[instruction.key][1]
                )
            elif isinstance(instruction, Evict):
                evicted.append(Left(instruction.key, instruction.node, instruction.reason))
        events = [Tick()]
        if not decided:
            break
    for key, (_, already) in waiting.items():
        if key not in bound and key not in waits:
            waits[key] = Waiting(key, "the policy did not come to it, or holds it back", "WaitingForTurn", already)
    left = tuple(wait for key, wait in waits.items() if key not in bound)
    evicted += _released(engine, {eviction.pod for eviction in evicted})
    return ScenarioAnswer(tuple(moves), tuple(placed), left, tuple(evicted), tuple(sorted(removed)), tuple(at_risk))


def _released(engine: Scheduler, evicted: set[str]) -> list[Left]:
    """Return the pods that hold nodes for gangs that are left below their minimum."""
    found = []
    for standing in engine.gangs:
        if standing.lacks == 0 or not standing.holding:
            continue
        gang, held = standing.gang, standing.holding + standing.succeeded
        words = f"gang {gang.key}: {held} of {gang.minimum} hold a node, and after {gang.timeout_seconds:.0f} s they go"
        holders = engine.gangs.holders(gang.key)
        found += [Left(holder.pod.key, holder.node or "", words) for holder in holders if holder.pod.key not in evicted]
    return found


def _again(pod: Pod) -> Pod:
    """Return a pod as its controller would make it again: new in the queue, to be placed by Cotide."""
    return pod._replace(
        node=None, phase=PodPhase.PENDING, ours=True, terminating=False, started_seconds=None, nominated_node=None
    )


def _workloads(records: Iterable[PodRecord]) -> list[str]:
    return list(dict.fromkeys(record.pod.workload for record in records if record.pod.workload is not None))


def _scaled(records: list[PodRecord], scaled: Mapping[str, float]) -> tuple[list[Pod], frozenset[str]]:
    """Return the new pods and the keys of the removed ones, the newest first."""
    added: list[Pod] = []
    removed: set[str] = set()
    for name, factor in scaled.items():
        members = [record.pod for record in records if name in (record.pod.workload, record.pod.job)]
        members = [pod for pod in members if pod.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED)]
        if not members:
            raise InputError(f"no Workload and no Job with pods is called {name!r}", field="--scale-workload")
        wanted = ceil(len(members) * factor - 1e-9)
        newest = sorted(members, key=lambda pod: (-pod.created_seconds, pod.key))
        removed.update(pod.key for pod in newest[: max(0, len(members) - wanted)])
        more = wanted - len(members)
        if len(added) + more > MOST_ADDED:
            words = f"{more} pods more for {name!r}, of all workloads at most {MOST_ADDED} are played"
            raise InputError(words, field="--scale-workload")
        for number in range(more):
            like = newest[number % len(newest)]
            key = f"{like.key}-{COPY}-{number}"
            added.append(like._replace(key=key, uid=f"{like.uid}-{COPY}-{number}"))
    return added, frozenset(removed)
