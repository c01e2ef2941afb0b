"""Events a second of the general world: vector demands, classes, interference, and the engine itself.

Run with ``python benchmarks/simulation/bench_world.py [--nodes 100] [--seconds 900]``. A generated plan of services and
jobs is played in `cotide_sim.cluster.world.World`, machines and physics included, with ``fifo`` and with ``qpsm``. An
event is what is fed to `Scheduler.handle`: a pod that came, started, ended or was deleted, a sample of a service. Timed
is all of a run. Prints medians of several, by the wall clock and by processor time, which others stretch less.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import platform
import pstats
import statistics
import time
from collections.abc import Sequence

from cotide_core.config import SchedulerConfig
from cotide_core.events import Event
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Instruction
from cotide_sim.cluster.comparison import TrainedModels, prepare
from cotide_sim.cluster.world import World
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.workloads.generated import generate
from cotide_sim.workloads.plan import Plan


class Counter:
    """Counts what was fed to the engine."""

    def __init__(self) -> None:
        self.events = 0

    def __call__(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        del now, instructions
        self.events += len(events)


def world(plan: Plan, policy: str, nodes: int, models: TrainedModels | None, counter: Counter) -> World:
    config = SchedulerConfig(policy=policy, seed=1)
    trained = None if models is None else models.event
    catalogue = HeuristicCatalogue() if models is None else models
    return World(plan, GeneratedInterference(), config, catalogue, models=trained, nodes=nodes, listener=counter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=900.0, help="simulated")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profile", choices=("fifo", "qpsm"), help="print where the time of one run goes")
    asked = parser.parse_args()
    plan = generate(1, asked.nodes, asked.seconds)
    _, models = prepare(None, 1)
    if asked.profile:
        profiler = cProfile.Profile()
        chosen = world(plan, asked.profile, asked.nodes, models if asked.profile == "qpsm" else None, Counter())
        profiler.runcall(chosen.run)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
        return
    figures: dict[str, object] = {
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "jobs": len(plan.jobs),
        "services": len(plan.services),
    }
    for policy in ("fifo", "qpsm"):
        walls, own = [], []
        for _ in range(asked.runs):
            counter = Counter()
            chosen = world(plan, policy, asked.nodes, models if policy == "qpsm" else None, counter)
            wall_start, own_start = time.perf_counter(), time.process_time()
            run = chosen.run()
            own.append(time.process_time() - own_start)
            walls.append(time.perf_counter() - wall_start)
        wall, cpu = statistics.median(walls), statistics.median(own)
        figures[policy] = {
            "events": counter.events,
            "cycles": run.cycles,
            "pods_bound": run.summary["pods_bound"],
            "wall_seconds": round(wall, 2),
            "cpu_seconds": round(cpu, 2),
            "events_per_second": round(counter.events / wall),
            "events_per_cpu_second": round(counter.events / cpu),
        }
    if asked.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:10} {value}")


if __name__ == "__main__":
    main()
