"""The facts of one policy's run so far: the only input of the live view and the summary.

Written by `observer` from the API server's watch and from the fake nodes' metrics, in simulated seconds.
Invariant: a pod is counted by its uid, so that a name used twice is two pods.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cotide_core.classes import WorkloadClass

RECENT_DECISIONS: Final = 8
"""Chosen: decisions that the live view shows."""


class Stage(StrEnum):
    """Where a pod is in its life, as the demo counts it."""

    QUEUED = "queued"
    PLACED = "placed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(slots=True)
class PodFact:
    """One pod, as last seen."""

    name: str
    workload_class: WorkloadClass
    stage: Stage
    node: str | None = None
    evicted: bool = False
    millicores: int = 0
    memory_bytes: int = 0
    """Its request, plain or reclaimed."""

    @property
    def holds(self) -> bool:
        """Whether it holds its request on its node: from binding to its end."""
        return self.node is not None and self.stage in (Stage.PLACED, Stage.RUNNING)


@dataclass(frozen=True, slots=True)
class ServiceFact:
    """The latest sample of one online pod."""

    name: str
    node: str
    requests_per_second: float
    latency_milliseconds: float
    limit_milliseconds: float

    @property
    def over_limit(self) -> bool:
        """Whether the sample breaks the limit."""
        return self.latency_milliseconds > self.limit_milliseconds


@dataclass(frozen=True, slots=True)
class DecisionFact:
    """A decision in one line, with the simulated second at which it was seen."""

    at_seconds: float
    pod: str
    node: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Moment:
    """The data of one moment of a run for the demo's page."""

    elapsed_seconds: float
    queued: int
    """Batch and gratis pods that wait for a node."""
    over_limit_share: float
    cpu_share: float


@dataclass(slots=True)
class RunFacts:
    """Everything seen of one policy's run."""

    policy: str
    started_seconds: float
    duration_seconds: float
    now_seconds: float = 0.0
    pods: dict[str, PodFact] = field(default_factory=dict)
    services: dict[str, ServiceFact] = field(default_factory=dict)
    node_cpu_share: dict[str, float] = field(default_factory=dict)
    """CPU in use over capacity, by node."""
    node_load_share: dict[str, float] = field(default_factory=dict)
    """Real use of online pods and allocation of all others over capacity, by node: the larger of cpu and memory."""
    overload_slots: int = 0
    reclaimed_millicores: dict[str, int] = field(default_factory=dict)
    """Published as ``cotide.dev/reclaimed-cpu``, by node; empty when nothing is published."""
    jobs_submitted: int = 0
    jobs_planned: int = 0
    late_seconds: float = 0.0
    """Waiting of batch and gratis pods that the machine added: first pods made late, bound pods started late."""
    history: list[Moment] = field(default_factory=list)
    decisions: deque[DecisionFact] = field(default_factory=lambda: deque(maxlen=RECENT_DECISIONS))

    @property
    def elapsed_seconds(self) -> float:
        """Simulated seconds since the run started, at most its duration."""
        return min(self.duration_seconds, max(0.0, self.now_seconds - self.started_seconds))

    def count(self, workload_class: WorkloadClass, stage: Stage) -> int:
        """Return the number of pods of a class at a stage."""
        return sum(1 for pod in self.pods.values() if pod.workload_class is workload_class and pod.stage is stage)

    def services_over_limit(self) -> int:
        """Return the number of online pods over their limit in the latest sample."""
        return sum(1 for service in self.services.values() if service.over_limit)

    def keep_moment(self) -> None:
        """Add the present facts to the history."""
        queued = sum(
            self.count(workload_class, Stage.QUEUED) for workload_class in (WorkloadClass.BATCH, WorkloadClass.GRATIS)
        )
        over = self.services_over_limit() / len(self.services) if self.services else 0.0
        self.history.append(Moment(self.elapsed_seconds, queued, over, self.cpu_share()))

    def held_millicores(self) -> int:
        """Return the cpu that batch and gratis pods hold on all nodes."""
        others = (pod for pod in self.pods.values() if pod.workload_class is not WorkloadClass.ONLINE)
        return sum(pod.millicores for pod in others if pod.holds)

    def cpu_share(self) -> float:
        """Return the mean share of CPU in use over all nodes, 0 to 1."""
        shares = self.node_cpu_share.values()
        return sum(shares) / len(shares) if shares else 0.0
