"""What-ifs a second and the time and memory of a live plan; one thread.

Run with ``python benchmarks/consolidation/bench_removal.py``. Nodes of 32 cores and 128 GiB, half full of pods of a
hundred shapes, a tenth of them with constraints, ports or a budget. Time is from the engine's state to the answer;
laying the columns out is apart. Memory is what the process grew by at most.
"""

from __future__ import annotations

import platform
import resource
import time

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.consolidation.removal.columns import columns_of
from cotide_core.consolidation.removal.drain_plan import drain_plan
from cotide_core.consolidation.removal.stays import Constraints, MoveRules, PodFacts
from cotide_core.consolidation.removal.what_if import node_by_node
from cotide_core.events import HostPort, Node, NodeUpserted, Pod, PodPhase, PodUpserted, Taint
from cotide_core.state.cluster_state import ClusterState

GIB = 2**30


def cluster(nodes: int, pods: int, seed: int) -> tuple[ClusterState, Constraints]:
    generator = np.random.default_rng(seed)
    state = ClusterState()
    allocatable = (("cpu", 32_000), ("memory", 128 * GIB), ("pods", 110))
    for number in range(nodes):
        taints = (Taint("dedicated", "gpu", "NoSchedule"),) if number % 20 == 0 else ()
        labels = (("zone", f"z{number % 3}"),)
        state.apply(NodeUpserted(Node(f"n{number}", allocatable, labels, taints)))
    # Sizes such that the cluster is about half full.
    mean = 32_000 * nodes / pods / 2
    cpus = np.maximum(10, generator.gamma(2.0, mean / 2.0, 100)).astype(int).tolist()
    memories = (np.array(cpus) * 4 * GIB // 1000 * generator.uniform(0.5, 1.5, 100)).astype(int).tolist()
    facts = {}
    on = generator.integers(0, nodes, pods).tolist()
    shapes = generator.integers(0, 100, pods).tolist()
    for number in range(pods):
        shape = shapes[number]
        key = f"d/p{number}"
        pod = Pod(
            key, f"u{number}", WorkloadClass.ONLINE if number % 2 else WorkloadClass.BATCH,
            (("cpu", cpus[shape]), ("memory", memories[shape])), 0.0, PodPhase.RUNNING, f"n{on[number]}",
            node_selector=(("zone", f"z{on[number] % 3}"),) if shape % 10 == 0 else (),
            host_ports=(HostPort("TCP", "0.0.0.0", 9000 + shape),) if shape == 7 else (),  # noqa: S104 - data
        )  # fmt: skip
        state.apply(PodUpserted(pod))
        if number % 50 == 0:
            facts[key] = PodFacts(budgets=(f"b{shape % 7}",))
    return state, Constraints(facts=facts, budgets={f"b{number}": number % 3 for number in range(7)})


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    print(f"{platform.machine()}, Python {platform.python_version()}")
    small = columns_of(*cluster(20, 60, 0), 1e6)
    node_by_node(small, np.arange(20))
    drain_plan(small, MoveRules())
    for nodes, pods in ((100, 3_000), (1_000, 30_000), (10_000, 100_000)):
        state, constraints = cluster(nodes, pods, 0)
        before = memory_mib()
        begin = time.perf_counter()
        columns = columns_of(state, constraints, 1e6)
        laid = time.perf_counter() - begin
        asked = np.arange(min(nodes, 1_000))
        begin = time.perf_counter()
        missing, _ = node_by_node(columns, asked)
        answered = time.perf_counter() - begin
        begin = time.perf_counter()
        plan = drain_plan(columns, MoveRules(most_moves=10**9))
        planned = time.perf_counter() - begin
        print(
            f"{nodes:>6} nodes, {pods:>7} pods, {len(columns.shapes):>4} shapes: columns {laid:.2f} s,"
            f" {len(asked)} what-ifs {answered:.2f} s ({int((missing == 0).sum())} can go), plan {planned:.2f} s:"
            f" {plan.used_before} -> {plan.used_after} nodes (at least {plan.fewest}), {plan.moves} moves;"
            f" {memory_mib() - before:.0f} MiB more"
        )


if __name__ == "__main__":
    main()
