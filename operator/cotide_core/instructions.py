"""The decisions of the engine, each with its reason, as frozen values.

Made by policies through `cycle.Scheduler.handle`; carried out by the live binder or by simulated nodes. The outcome
comes back as a new event. Every instruction can be written to a ledger and compared byte for byte. Fields that are not
compared (``compare=False``) are not written either. They repeat as data the facts of a sentence, so that no code parses
sentences, and a ledger holds the sentence. Writing them would make each line longer, and older ledgers would differ
from today's decisions of the same engine.
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
    """Others of its gang are missing, or can't start with it."""


@dataclass(unsafe_hash=True, slots=True)
class NodeVerdict:
    """Why a group of nodes was refused, in kube-scheduler's words, with the number of nodes.

    Never changed after its creation; not frozen, since some are made for each attempt and that takes five times as
    long.
    """

    nodes: int
    message: str
    reason: WaitReason
    example: str = ""
    """Name of one such node."""
    probability: float | None = None
    """Predicted probability of breaking the limit, if that was the reason."""
    service: str = field(default="", compare=False, repr=False)
    """Key of the Workload with the limit, if that was the reason and the message names one. Not recorded."""


class Forecast(NamedTuple):
    """The forecasts behind a decision; None if there was nothing to predict.

    A tuple, as `Bind` is: a busy cycle makes hundreds of both, and a dataclass takes three times as long.
    """

    qos_violation_probability: float | None = None
    seconds_p50: float | None = None
    seconds_p90: float | None = None
    qos_model: str = ""
    """sha256 of the QoS model, ``heuristic``, or empty if no online service was concerned."""
    completion_model: str = ""
    """sha256 of the completion model, ``heuristic``, or ``habits`` if runs of similar pods gave the run time."""
    qos_outside: tuple[str, ...] = ()
    """How the node after the placement lies outside the QoS model's training region, or its unmeasured values; words of
    `applicability.NAMES`. Empty inside: then the model's own probability counts, otherwise the larger of it and the
    heuristic's.
    """
    qos_evidence: int | None = None
    """Samples of the service at risk that the QoS model learned from; None if no model answered."""


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
    """A pod stays in the queue. Emitted after each failed attempt, or when its reason for waiting changes."""

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
    """Where space is being freed or kept for it; empty for none."""
    victims: tuple[str, ...] = ()
    """Keys of the pods that leave for it."""
    cap: str = ""
    """The limit of its namespace that it waits for, in the notation of administrators; empty for none."""


class EvictCause(StrEnum):
    """Why a pod must go: the causes that users count separately."""

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
    """Its gang held too few nodes for longer than its time-out, or would hold too few after a member leaves."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Remove a pod from its node by the eviction API, which honours disruption budgets, except for `by_priority`."""

    key: str
    uid: str
    node: str
    reason: str
    cause: EvictCause = EvictCause.PREEMPTED
    nominee: str = ""
    """Key of the pod that gets the space; its claim is recorded before any pod goes."""
    nominee_uid: str = ""
    override: bool = False
    """Whether it goes even if its owner or a disruption budget forbids it: an administrator's setting, for gratis pods
    only.
    """
    by_priority: bool = False
    """Whether the nominee has its class and a higher priority. Then it is deleted, as kube-scheduler deletes it, and
    disruption budgets already affected the choice.
    """
    service: str = field(default="", compare=False, repr=False)
    """Key of the Workload with the latency that causes the eviction, as named by the reason. Not recorded."""


Instruction = Bind | Wait | Evict
INSTRUCTION_TYPES: tuple[type[Instruction], ...] = (Bind, Wait, Evict)
