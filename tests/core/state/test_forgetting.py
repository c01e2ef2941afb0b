"""An engine through which pods of ever new types, sizes and requests pass holds no more after many than after few."""

from __future__ import annotations

import gc
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest
from engine_objects import node_upserted, pod_upserted

from cotide_core import cycle
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import PodDeleted, PodPhase
from cotide_core.forecasting import reliability, run_time_cache, slowdown_cache
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.placement import placer
from cotide_core.planning import availability
from cotide_core.queueing import lazy_heap
from cotide_core.state import cluster_state

BOUNDS = [
    (cycle, "SHAPES_KEPT"),
    (cluster_state, "DEMANDS_KEPT"),
    (run_time_cache, "REMEMBERED"),
    (slowdown_cache, "REMEMBERED"),
    (reliability, "TYPES_KEPT"),
    (availability, "VECTORS_KEPT"),
    (placer, "SHAPES_REMEMBERED"),
    (lazy_heap, "SPARE"),
]
KEPT = 16
PODS = 10 * 2 * KEPT
SPARE = 100
"""Objects that may come and go between two looks: parts of a queue, of a heap."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are reached within a test."""
    for module, name in BOUNDS:
        monkeypatch.setattr(module, name, KEPT)


def held(root: object) -> int:
    """Count what an object holds, and what that holds, and so on; not code, nor what all of it shares."""
    seen: set[int] = set()
    stack: list[Any] = [root]
    while stack:
        one = stack.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType | MethodType):
            continue
        seen.add(id(one))
        stack.extend(gc.get_referents(one))
    return len(seen)


@pytest.mark.parametrize("policy", ["qpsm", "hierarchical", "fair", "easy", "conservative", "hybrid"])
def test_what_is_gone_is_forgotten(policy: str) -> None:
    engine = Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())
    engine.handle([node_upserted(cpu=100_000)], 0.0)
    counts = []
    for number in range(2 * PODS):
        now = 10.0 * number
        name, job = f"p{number}", {"type": f"t{number}", "input_bytes": number, "cpu": 1 + number}
        (bind,) = (one for one in engine.handle([pod_upserted(name, **job)], now) if isinstance(one, Bind))
        runs = pod_upserted(name, **job, node=bind.node, phase=PodPhase.RUNNING, started_seconds=now)
        engine.handle([runs], now + 1.0)
        engine.predicted_starts(now + 1.0)
        engine.handle([pod_upserted(name, **job, node=bind.node, phase=PodPhase.SUCCEEDED)], now + 8.0)
        engine.handle([PodDeleted(bind.key, bind.uid)], now + 9.0)
        if number % PODS == PODS - 1:
            counts.append(held(engine))
    assert counts[1] <= counts[0] + SPARE
