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
from cotide_core.events import Namespace, NamespaceUpserted, PodDeleted, PodPhase
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
"""Objects by which the highest of many looks may differ: what is held rises and falls as it is cleared."""


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
        if number % KEPT == 0:
            counts.append(held(engine))
    half = len(counts) // 2
    assert max(counts[half:]) <= max(counts[:half]) + SPARE


@pytest.mark.parametrize("policy", ["qpsm", "hierarchical", "fair"])
@pytest.mark.parametrize("queued_pods", [None, 1])
def test_who_comes_and_goes_beside_one_that_waits_is_forgotten(policy: str, queued_pods: int | None) -> None:
    engine = Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())
    limits = NamespaceUpserted(Namespace("d", queued_pods=queued_pods))
    engine.handle([node_upserted(cpu=10), *([limits] if queued_pods else []), pod_upserted("stays", cpu=20)], 0.0)
    counts = []
    for number in range(2 * PODS):
        name = f"p{number}"
        engine.handle([pod_upserted(name, cpu=20, created_seconds=1.0 + number)], 1.0 + number)
        engine.handle([PodDeleted(f"d/{name}", f"u-{name}")], 1.5 + number)
        if number % KEPT == 0:
            counts.append(held(engine))
    half = len(counts) // 2
    assert max(counts[half:]) <= max(counts[:half]) + SPARE
