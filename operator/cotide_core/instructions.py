"""What the engine decides, each with its reason, as frozen values.

Made by policies through `cycle.Scheduler.handle`; carried out by the live binder or by simulated nodes, whose
outcome comes back as a new event. Every instruction can be written to a ledger and compared byte for byte. Fields that
are not compared (``compare=False``) are not written either: they repeat as data what a sentence names, so that nobody
reads sentences, and a ledger holds the sentence; written they would make each line longer, and an older ledger differ
from what the same engine decides today.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple


class WaitReason(StrEnum):
    """Why a pod waits: the reasons of the Job's ``Scheduled`` condition."""

    QOS_AT_RISK = "QosAtRisk"
    INSUFFICIENT_SLACK = "InsufficientSlack"
    NO_MATCHING_NODE = "NoMatchingNode"
    WAITING_FOR_TURN = "WaitingForTurn"
    MISCONFIGURED = "Misconfigured"
    WAITING_FOR_GANG = "WaitingForGang"
    """Others of its gang are not there, or can't start with it."""


@dataclass(unsafe_hash=True, slots=True)
class NodeVerdict:
    """Why a group of nodes was refused, in kube-scheduler's words, with how many nodes it was.

    Never changed once it is made; not frozen, since some are made for each attempt and that takes five times as long.
    """

    nodes: int
    message: str
    reason: WaitReason
    example: str = ""
    """Name of one such node."""
    probability: float | None = None
    """Predicted probability of breaking the limit, when that was the reason."""
    service: str = field(default="", compare=False, repr=False)
    """Key of the Workload whose limit it is, when that was the reason and the message names one. Not recorded."""


class Forecast(NamedTuple):
    """The forecasts behind a decision; None where there was nothing to predict.

    A tuple, as `Bind` is: a busy cycle makes hundreds of both, and a dataclass takes three times as long.
    """

    qos_violation_probability: float | None = None
    seconds_p50: float | None = None
    seconds_p90: float | None = None
    qos_model: str = ""
    """sha256 of the QoS model, ``heuristic``, or empty when no online service was concerned."""
    completion_model: str = ""
    """sha256 of the completion model, ``heuristic``, or ``habits`` where runs of pods like it told the run time."""
    qos_outside: tuple[str, ...] = ()
    """In what the node as it would be lies outside what the QoS model learned, or what nobody measured; words of
    `applicability.NAMES`. Empty inside: then the model's own probability counts, else the larger of it and the
    heuristic's."""
    qos_evidence: int | None = None
    """Samples of the service at risk that the QoS model learned from; None where no model answered."""


NO_FORECAST: Final = Forecast()
"""Nothing was predicted."""


class Bind(NamedTuple):
    """Bind a pod to a node; it is already assumed there."""

    key: str
    uid: str
    node: str
    reason: str
    """One sentence: why this node."""
    forecast: Forecast = NO_FORECAST
    refused: tuple[NodeVerdict, ...] = ()
    """Why the other nodes were not chosen."""
    attempts: int = 1
    queued_seconds: float = 0.0
    at_risk: bool = False
    """Whether the forecast refuses every node that fits: an online pod goes to the least risky one."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A pod stays in the queue. Emitted after each failed attempt, or when what it waits for changes."""

    key: str
    uid: str
    reason: WaitReason
    message: str
    """``0/40 nodes are available: ...``."""
    refused: tuple[NodeVerdict, ...] = ()
    forecast: Forecast = NO_FORECAST
    attempts: int = 0
    demotions: int = 0
    retry_at_seconds: float | None = None
    nominated_node: str = ""
    """Where space is being freed or kept for it; empty when nowhere."""
    victims: tuple[str, ...] = ()
    """Keys of the pods that leave for it."""
    cap: str = ""
    """The limit of its namespace that it waits for, as administrators write it; empty when it waits for none."""


class EvictCause(StrEnum):
    """Why a pod must go: what users count apart."""

    PREEMPTED = "Preempted"
    """A more important pod needs the space."""
    OVERLOADED = "NodeOverloaded"
    LATENCY = "LatencyBroken"
    """A service on the node was measured over its latency limit."""
    LATENCY_RISES = "LatencyRises"
    """A service on the node holds its limit, and is forecast to break it soon."""
    LATENCY_AT_RISK = "LatencyAtRisk"
    """An online pod comes to the node, where a latency limit is predicted to break."""
    GANG = "GangIncomplete"
    """Its gang held fewer nodes than it needs for longer than its time-out, or would without one that leaves."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Take a pod off its node: through the eviction API, which honours disruption budgets, but for `by_priority`."""

    key: str
    uid: str
    node: str
    reason: str
    cause: EvictCause = EvictCause.PREEMPTED
    nominee: str = ""
    """Key of the pod that gets the space; its claim is written down before anybody goes."""
    nominee_uid: str = ""
    override: bool = False
    """Whether it goes even where its owner or a disruption budget says no: an administrator's word, of gratis only."""
    by_priority: bool = False
    """Whether the nominee is of its class and of higher priority: then it is deleted, as kube-scheduler deletes it, and
    disruption budgets were a matter of the choice."""
    service: str = field(default="", compare=False, repr=False)
    """Key of the Workload for whose latency it goes, as the reason names it. Not recorded."""


Instruction = Bind | Wait | Evict
INSTRUCTION_TYPES: tuple[type[Instruction], ...] = (Bind, Wait, Evict)
