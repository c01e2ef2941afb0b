"""Processor time of live host load: a reading of all pods, and the end of a slot.

One command, no input: ``python benchmarks/predictors/bench_live_host_load.py``. Ten thousand nodes with five online
pods each, around the real engine: every reading of cpu and memory is news, so every node's sample goes through a
decision cycle. The end of a slot scores and learns four forecasters, and tells forecasts and outlooks of every node.
Figures are the process's own time, which a busy machine stretches less than the wall's; the first slot, in which
kernels are compiled, is left out.

``--memory`` measures what forecasters of 5,000 nodes take instead, with the three longer horizons of ``predictive``:
the growth of the process's resident memory after 1, 12, 48, 300 and 600 slots (an hour is 12).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Event, Node, NodeUpserted, Pod, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_operator.host_load.factory import AHEAD_SLOTS
from cotide_operator.host_load.forecasters import Forecasters
from cotide_operator.host_load.live import Knobs, LiveHostLoad
from cotide_operator.host_load.node_rows import NodeRows
from cotide_operator.host_load.sampler import NodeTable
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed.node_outlook import Outlooks
from cotide_operator.usage.sources import CPU, MEMORY, UsageReading

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support" / "builders"))

from hand_clock import HandClock

SLOT = 300.0
PODS_A_NODE = 5
GIB = 2**30
MEMORY_SLOTS = (1, 12, 48, 300, 600)


class Loop:
    """Has the engine handle what was told when somebody waits for it."""

    def __init__(self, clock: HandClock) -> None:
        self.scheduler = Scheduler(SchedulerConfig(policy="hierarchical"), HeuristicCatalogue())
        self._clock = clock
        self._inbox: list[Event] = []

    def emit(self, event: Event) -> None:
        self._inbox.append(event)

    async def caught_up(self) -> None:
        inbox, self._inbox = self._inbox, []
        self.scheduler.handle(inbox, self._clock.now())


async def measure(nodes: int, slots: int) -> dict[str, float]:
    clock = HandClock(3_000_040.0)
    loop = Loop(clock)
    asked = (("cpu", 200), ("memory", GIB))
    pods = {
        f"ns/p{number}": Pod(f"ns/p{number}", "u", WorkloadClass.ONLINE, asked, 0.0, node=f"n{number // PODS_A_NODE}")
        for number in range(nodes * PODS_A_NODE)
    }
    amounts = (("cpu", 4000), ("memory", 16 * GIB), ("pods", 110))
    for number in range(nodes):
        loop.emit(NodeUpserted(Node(f"n{number}", amounts)))
    for pod in pods.values():
        loop.emit(PodUpserted(pod))
    await loop.caught_up()
    knobs = Knobs(SLOT, 0.9, 60.0, 60.0, 5.0, 0.95, 0.0, tells_scores=False)
    live = LiveHostLoad(
        knobs, state=loop.scheduler.state, pods=pods, clock=clock, loop=loop, metrics=Metrics(),
        outlooks=Outlooks(), rebuilding=None, wall=clock.now,
    )  # fmt: skip
    generator = np.random.default_rng(0)
    reading, ending = [], []
    for _ in range(slots + 1):
        used = generator.uniform(50, 150, len(pods)).tolist()
        readings = [UsageReading(pod, CPU, value, clock.now()) for pod, value in zip(pods, used, strict=True)]
        readings += [UsageReading(pod, MEMORY, GIB / 2, clock.now()) for pod in pods]
        started = time.process_time()
        await live.take(readings)
        reading.append(time.process_time() - started)
        clock.wall += SLOT
        started = time.process_time()
        await live.end_slots()
        ending.append(time.process_time() - started)
    return {"reading_seconds": statistics.median(reading[1:]), "slot_end_seconds": statistics.median(ending[1:])}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def memory(nodes: int) -> dict[str, float]:
    """Return KiB a node by slots that were learnt from."""
    names = [f"n{number}" for number in range(nodes)]
    whole, rows = np.ones((2, nodes)), NodeRows(SLOT)
    rows.follow(NodeTable(names, {name: index for index, name in enumerate(names)}, whole, whole), 0.0)
    for slot in range(3):  # kernels are compiled before
        Forecasters(2, ahead_slots=AHEAD_SLOTS).record(np.full((4, 2), 0.1 * slot))
    gc.collect()
    generator = np.random.default_rng(0)
    level, noise = generator.uniform(0.1, 0.7, (4, nodes)), np.zeros((4, nodes))
    before = resident_bytes()
    forecasters = Forecasters(rows.capacity, ahead_slots=AHEAD_SLOTS)
    found: dict[str, float] = {}
    for slot in range(1, MEMORY_SLOTS[-1] + 1):
        noise = 0.8 * noise + generator.normal(0, 0.03, (4, nodes))
        values = np.full((4, rows.capacity), np.nan)
        values[:, :nodes] = np.clip(level + noise, 0, 1)
        forecasters.record(values)
        forecasters.made()
        if slot in MEMORY_SLOTS:
            gc.collect()
            found[f"kib_a_node_after_{slot}_slots"] = round((resident_bytes() - before) / nodes / 1024, 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--memory", action="store_true", help="what forecasters take, not how long they do")
    asked = parser.parse_args()
    asked.nodes = asked.nodes or (5_000 if asked.memory else 10_000)
    if asked.memory:
        print(json.dumps({"nodes": asked.nodes, **memory(asked.nodes)}))
        return
    figures = asyncio.run(measure(asked.nodes, asked.slots))
    if asked.json:
        print(json.dumps({"nodes": asked.nodes, **figures}))
        return
    pods = asked.nodes * PODS_A_NODE
    print(f"{asked.nodes} nodes, {pods} online pods, processor time, median of {asked.slots}")
    print(f"a reading of all of them   {figures['reading_seconds']:.2f} s")
    print(f"the end of a slot          {figures['slot_end_seconds']:.2f} s")


if __name__ == "__main__":
    main()
