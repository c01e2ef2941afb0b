"""Decisions per second of the engine alone: no API, no network, one process.

Run with ``python benchmarks/engine/bench_engine.py``. 5,000 nodes of 32 cores; half or all of them run an online
service at a measured rate, so that qpsm must ask its model. Pods arrive in bursts and are decided by
`Scheduler.handle`, arrivals, state and queue included. Both models are really trained with `cotide_predictors`, on
made-up samples. Prints medians over several runs, and the quantiles of single cycles; decisions per second of cpu say
what a machine with nothing else to do would reach.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import time
from collections.abc import Iterator

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig, slack_knobs
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    ModelsChanged,
    Node,
    NodeUpserted,
    Pod,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.forecasts import (
    CompletionForecaster,
    CompletionSamples,
    MixBatch,
    QosForecaster,
    QosSamples,
)
from cotide_core.instructions import Bind
from cotide_core.policies.catalogue import by_slack
from cotide_predictors.completion.completion_model import train_completion
from cotide_predictors.qos.qos_model import train_qos

TYPES = ("grep", "md5", "randsample", "wordcount", "terasort", "select", "aggregate", "join")
SIZES = tuple(gigabytes << 30 for gigabytes in range(2, 17, 2))
RATES = (1e3, 5e3, 10e3, 50e3, 100e3, 150e3, 200e3)
GIB = 1 << 30


class Trained:
    """A catalogue of one trained model of each sort."""

    def __init__(self, qos: QosForecaster, completion: CompletionForecaster) -> None:
        self._qos, self._completion = qos, completion
        self._heuristics = HeuristicCatalogue()

    def qos(self, model_id: str) -> QosForecaster:
        return self._qos if model_id else self._heuristics.qos("")

    def completion(self, model_id: str) -> CompletionForecaster:
        return self._completion if model_id else self._heuristics.completion("")


def trained(rows: int) -> Trained:
    """Train both models on a plausible law: latency and run time grow with rate, jobs and size."""
    rng = np.random.default_rng(1)
    jobs = rng.integers(0, 4, (rows, len(TYPES))).astype(float)
    sizes = jobs * rng.choice(SIZES, (rows, len(TYPES)))
    rates = rng.choice(RATES, rows)
    pressure = jobs.sum(axis=1) / 32
    mixes = MixBatch(rates, np.zeros(rows), np.full(rows, 10.0), pressure, TYPES, jobs, sizes)
    latency = (
        np.exp(rng.normal(0.0, 0.1, rows)) * (1 + rates / 40e3) * (1 + 3 * pressure + sizes.sum(axis=1) / (200 * GIB))
    )
    qos = train_qos(QosSamples(mixes, latency), limits_milliseconds=(10.0,), random_state=0)
    kinds = rng.integers(0, len(TYPES), rows)
    input_bytes = rng.choice(SIZES, rows).astype(float)
    seconds = (10 + (1 + kinds) * input_bytes / (200e6)) * (1 + rates / 50e3)
    names = tuple(TYPES[kind] for kind in kinds)
    completion = train_completion(CompletionSamples(names, input_bytes, rates, pressure, seconds), random_state=0)
    return Trained(qos, completion)


def cluster(nodes: int, served: float) -> Iterator[Event]:
    """Nodes, one Workload, and running online pods on a share of the nodes."""
    allocatable = (("cpu", 32_000), ("memory", 128 * GIB), ("pods", 110))
    rng = np.random.default_rng(2)
    yield WorkloadUpserted(Workload("shop/web"))
    for number in range(nodes):
        yield NodeUpserted(Node(f"node-{number}", allocatable))
    requests = (("cpu", 4000), ("memory", 8 * GIB))
    for number in range(int(nodes * served)):
        pod = Pod(
            f"shop/web-{number}", f"w{number}", WorkloadClass.ONLINE, requests, 0.0,
            phase=PodPhase.RUNNING, node=f"node-{number}", workload="shop/web",
        )  # fmt: skip
        yield PodUpserted(pod)
        yield ServiceSampled(pod.key, float(rng.choice(RATES[:4])))


def arrivals(count: int, distinct: bool) -> list[Event]:
    """Batch pods of 8 types x 8 sizes x 3 requests; `distinct` gives every pod a size of its own."""
    rng = np.random.default_rng(3)
    events: list[Event] = []
    for number in range(count):
        cpu = int(rng.choice((500, 1000, 2000)))
        size = int(rng.choice(SIZES)) + (number if distinct else 0)
        requests = (("cpu", cpu), ("memory", cpu * 2_000_000))
        kind = TYPES[int(rng.integers(len(TYPES)))]
        pod = Pod(
            f"batch/job-{number}",
            f"j{number}",
            WorkloadClass.BATCH,
            requests,
            1.0,
            ours=True,
            type=kind,
            input_bytes=size,
        )
        events.append(PodUpserted(pod))
    return events


def measure(
    policy: str, catalogue: Trained, nodes: int, served: float, pods: int, burst: int, distinct: bool
) -> tuple[float, float, list[float], int]:
    """Return decisions per second and per second of cpu, the seconds of each cycle, and how many were bound."""
    knobs = slack_knobs(policy) if by_slack(policy) else None
    scheduler = Scheduler(SchedulerConfig(policy=policy, max_decisions_per_cycle=burst, hierarchical=knobs), catalogue)
    scheduler.handle([ModelsChanged("trained", "trained"), *cluster(nodes, served)], 0.0)
    events = arrivals(pods, distinct)
    gc.collect()
    gc.freeze()  # as the operator does once everything is listed
    cycles, bound, now, cpu_seconds = [], 0, 1.0, 0.0
    for start in range(0, pods, burst):
        now += 0.001
        began, cpu_began = time.perf_counter(), time.process_time()
        out = scheduler.handle(events[start : start + burst], now)
        cycles.append(time.perf_counter() - began)
        cpu_seconds += time.process_time() - cpu_began
        bound += sum(isinstance(instruction, Bind) for instruction in out)
    gc.unfreeze()
    return pods / sum(cycles), pods / cpu_seconds, cycles, bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--burst", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    print(f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    catalogue = trained(2000)
    cases = (
        ("fifo", 0.5, False),
        ("fifo", 0.5, True),
        ("random", 0.5, False),
        ("qpsm", 0.5, False),
        ("qpsm", 1.0, False),
        ("qpsm", 1.0, True),
        ("fifo-guarded", 1.0, False),
        ("random-guarded", 1.0, False),
        ("hierarchical", 1.0, False),
        ("predictive", 1.0, False),
    )
    print(f"{args.nodes} nodes, {args.pods} pods in bursts of {args.burst}, median of {args.runs} runs")
    columns = f"{'shapes':>10}{'decisions/s':>14}{'per cpu s':>11}{'cycle p50 ms':>14}{'p99 ms':>9}{'bound':>8}"
    print(f"{'policy':<16}{'services on':>12}{columns}")
    for policy, served, distinct in cases:
        runs = [
            measure(policy, catalogue, args.nodes, served, args.pods, args.burst, distinct) for _ in range(args.runs)
        ]
        rate, per_cpu = (statistics.median(run[which] for run in runs) for which in (0, 1))
        cycles = np.concatenate([run[2] for run in runs]) * 1e3
        shapes = "distinct" if distinct else "192"
        p50, p99 = np.quantile(cycles, (0.5, 0.99))
        print(
            f"{policy:<16}{served:>12.0%}{shapes:>10}{rate:>14,.0f}{per_cpu:>11,.0f}{p50:>14.1f}{p99:>9.1f}{runs[0][3]:>8}"
        )


if __name__ == "__main__":
    main()
