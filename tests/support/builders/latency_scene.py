"""A service and jobs on one node, under a law of latencies that fits on a line.

p = rate / 1000 x the sum of the weights of the jobs on the node, .1 a quiet one and .8 a loud one. Jobs are placed
while the service has no requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from engine_objects import pod, running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    Node,
    NodeUpserted,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCompletion, HeuristicQos
from cotide_core.forecasts import CompletionForecaster, MixBatch, QosAnswers, QosForecaster
from cotide_core.instructions import Bind, Evict, EvictCause
from cotide_core.kernels.array_types import Floats

NODE = NodeUpserted(Node("n", (("cotide.dev/reclaimed-cpu", 8000), ("cpu", 8000), ("memory", 2**35), ("pods", 110))))
KNOBS = HierarchicalConfig(overload_observation_seconds=15.0, overload_pause_seconds=30.0)
WEIGHTS = {"quiet": 0.1, "loud": 0.8}
BROKEN, HELD = 12.0, 9.0
GRATIS = WorkloadClass.GRATIS


class Law(HeuristicQos):
    """The law above; ``alone`` is what the service risks without any job."""

    alone = 0.0

    def violation_probability(self, mixes: MixBatch) -> Floats:
        weights = mixes.counts @ np.array([WEIGHTS.get(name, 0.0) for name in mixes.types])
        return np.minimum(1.0, self.alone + mixes.requests_per_second / 1000 * weights)

    def answer(self, mixes: MixBatch) -> QosAnswers:
        return QosAnswers.within(self.violation_probability(mixes))


class Models:
    def __init__(self, alone: float) -> None:
        self.law = Law()
        self.law.alone = alone

    def qos(self, model_id: str) -> QosForecaster:
        return self.law

    def completion(self, model_id: str) -> CompletionForecaster:
        return HeuristicCompletion()


class Scene:
    """A service on one node, and jobs of one cpu that the engine puts beside it while nobody asks for anything."""

    def __init__(self, policy: str = "predictive", alone: float = 0.0, **knobs: Any) -> None:
        config = SchedulerConfig(policy=policy, hierarchical=replace(KNOBS, **knobs), qos_risk_threshold=0.1)
        self.scheduler = Scheduler(config, Models(alone))
        web = running_pod("web", "n", cls=WorkloadClass.ONLINE, workload="d/web", ours=False)
        self.handle(0.0, NODE, WorkloadUpserted(Workload("d/web", 10.0)), PodUpserted(web))
        self.handle(0.0, ServiceSampled("d/web", 0.0, HELD))

    def starts(self, name: str, at: float, seconds: float, kind: str = "quiet", **fields: Any) -> Scene:
        """Let a job start that is predicted to take so long."""
        cls = fields.pop("cls", WorkloadClass.BATCH)
        waiting = pod(name, cls=cls, type=kind, requested_seconds=seconds, **fields)
        (bind,) = [one for one in self.scheduler.handle([PodUpserted(waiting)], at) if isinstance(one, Bind)]
        self.handle(at, PodUpserted(waiting._replace(node=bind.node, phase=PodPhase.RUNNING, started_seconds=at)))
        return self

    def handle(self, now: float, *events: Event) -> list[str]:
        out = [one for one in self.scheduler.handle(events, now) if isinstance(one, Evict)]
        assert all(one.cause in (EvictCause.LATENCY, EvictCause.LATENCY_RISES) for one in out)
        self.causes = [one.cause for one in out]
        self.reasons = [one.reason for one in out]
        self.evictions = out
        return [one.key[2:] for one in out]

    def measured(self, now: float, milliseconds: float) -> list[str]:
        return self.handle(now, ServiceSampled("d/web", 1000.0, milliseconds))

    def broken_from(self, since: float) -> list[str]:
        """Let the limit break, for as long as is watched."""
        assert self.measured(since, BROKEN) == []
        assert self.measured(since + 14.0, BROKEN) == []
        return self.measured(since + 15.0, BROKEN)
