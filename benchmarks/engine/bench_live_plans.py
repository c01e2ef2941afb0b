"""Processor time of a cycle under the policies that plan: full nodes, a long queue, and one pod that ends each second.

Run with ``python benchmarks/engine/bench_live_plans.py``. 1,000 nodes of 32 cores hold online pods on every second one
and some 17,600 running pods of batch jobs; 2,000 larger pods wait. In each cycle a random running pod succeeds and a
new one arrives. Forecasts are the heuristic's: what is timed is state, queue and plan. ``shapes`` says how many kinds
of waiting pods there are; with as many as pods, no two share what was found for one of them.
"""

from __future__ import annotations

import argparse
import gc
import platform
import time
from dataclasses import replace

import numpy as np
from bench_engine import arrivals, cluster

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, Pod, PodPhase, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind

POLICIES = (
    "fifo", "easy", "easy-sjbf", "conservative", "svf", "slack", "hybrid", "hybrid-machines", "sjf-ef", "svf-lw",
    "svf-random", "easy-guarded", "conservative-guarded", "svf-guarded", "slack-guarded",
)  # fmt: skip
WIDER = 6
"""Waiting pods ask for 3 to 12 cores, so that they wait for several to end."""


def running(nodes: int, served: float) -> list[Pod]:
    """Pods that leave less than three cores of a node free, and end within 5,000 s."""
    rng = np.random.default_rng(0)
    pods: list[Pod] = []
    for number in range(nodes):
        free = 32_000 - (4000 if number < nodes * served else 0)
        while free >= 3000:
            cpu = int(rng.choice((500, 1000, 2000, 3000)))
            free -= cpu
            name = f"{number}-{len(pods)}"
            requests = (("cpu", cpu), ("memory", cpu * 2_000_000))
            pod = Pod(
                f"running/{name}", f"r{name}", WorkloadClass.BATCH, requests, 0.0, phase=PodPhase.RUNNING,
                node=f"node-{number}", ours=True, started_seconds=0.0, requested_seconds=float(rng.integers(100, 5000)),
            )  # fmt: skip
            pods.append(pod)
    return pods


def wider(event: Event, **fields: object) -> PodUpserted:
    """Return an arrival that asks for `WIDER` times as much."""
    assert isinstance(event, PodUpserted)
    pod = event.pod._replace(**fields)  # type: ignore[arg-type]  # as named
    return PodUpserted(pod._replace(requests=tuple((name, WIDER * amount) for name, amount in pod.requests)))


def measure(policy: str, nodes: int, waiting: int, cycles: int, distinct: bool) -> tuple[float, list[float], int]:
    """Return the seconds of processor time of the first plan and of each cycle, and how many were bound."""
    scheduler = Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())
    scheduler.handle(list(cluster(nodes, 0.5)), 0.0)
    held = running(nodes, 0.5)
    scheduler.handle([PodUpserted(pod) for pod in held], 0.0)
    events = [wider(event) for event in arrivals(waiting, distinct)]
    began = time.process_time()
    scheduler.handle(events, 1.0)
    first = time.process_time() - began
    gc.collect()
    gc.freeze()  # as the operator does once everything is listed
    order = np.random.default_rng(1).permutation(len(held))
    (template,) = arrivals(1, distinct=False)
    seconds, bound = [], 0
    for cycle in range(cycles):
        now = 2.0 + cycle
        ended = PodUpserted(replace(held[order[cycle]], phase=PodPhase.SUCCEEDED))
        new = wider(template, key=f"new/{cycle}", uid=f"n{cycle}", created_seconds=now)
        began = time.process_time()
        out = scheduler.handle([ended, new], now)
        seconds.append(time.process_time() - began)
        bound += sum(isinstance(instruction, Bind) for instruction in out)
    gc.unfreeze()
    return first, seconds, bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--waiting", type=int, default=2000)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--policies", default=",".join(POLICIES), help="separated by commas")
    args = parser.parse_args()
    print(f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    print(f"{args.nodes} nodes, {args.waiting} waiting pods, {args.cycles} cycles")
    print(f"{'policy':<14}{'shapes':>10}{'first ms':>10}{'cycle p50 ms':>14}{'p99 ms':>9}{'bound':>8}")
    for policy in args.policies.split(","):
        measure(policy, 10, 20, 2, distinct=False)  # compiles the kernel
        for distinct in (False, True):
            first, seconds, bound = measure(policy, args.nodes, args.waiting, args.cycles, distinct)
            p50, p99 = np.quantile(seconds, (0.5, 0.99)) * 1e3
            shapes = "distinct" if distinct else "192"
            print(f"{policy:<14}{shapes:>10}{first * 1e3:>10.0f}{p50:>14.1f}{p99:>9.1f}{bound:>8}", flush=True)


if __name__ == "__main__":
    main()
