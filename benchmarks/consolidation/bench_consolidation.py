"""Seconds and packings of DMNS against the number of nodes, beside trying every K in full; one thread.

Run with ``python benchmarks/consolidation/bench_consolidation.py``. "packings" is the applications that all trials
looked at, over the number of applications: a full packing is 1, trying every K in full is about N / 2. Two kinds of
instances: Wen et al.'s, and one that leaves holes (sizes of 20 to 45 % of a node), where no bound ends the search
early. Best of three.
"""

from __future__ import annotations

import platform
import time

import numpy as np

from cotide_core.consolidation.dmns import search
from cotide_core.consolidation.hsa import hsa
from cotide_core.consolidation.instance import Instance
from cotide_core.consolidation.kmns import by_load, kmns
from cotide_core.consolidation.switch_tree import SwitchTree
from cotide_sim.workloads.node_loads import generated_instance

SIZES = (256, 512, 1024, 2048, 4096, 8192)


def with_holes(nodes: int, seed: int, capacity: int = 1000) -> Instance:
    generator = np.random.default_rng(seed)
    sizes: list[int] = []
    homes: list[int] = []
    for node in range(nodes):
        left = int(generator.integers(1, capacity + 1))
        while (size := int(generator.integers(200, 451))) <= left:
            sizes.append(size)
            homes.append(node)
            left -= size
    full = np.full((nodes, 1), capacity, np.int64)
    return Instance(np.array(sizes, np.int64).reshape(-1, 1), np.array(homes, np.int64), full)


def every_k(instance: Instance) -> float:
    """Seconds of all N + 1 packings, from each sixty-fourth."""
    step = max(1, instance.nodes // 64)
    begin = time.perf_counter()
    tried = [kmns(instance, drained) for drained in range(0, instance.nodes + 1, step)]
    return (time.perf_counter() - begin) * (instance.nodes + 1) / len(tried)


def main() -> None:
    print(f"{platform.machine()}, Python {platform.python_version()}")
    search(with_holes(8, 0), by_load(with_holes(8, 0)))
    print(f"{'input':>9} {'nodes':>6} {'apps':>6} {'seconds':>8} {'packings':>9} {'finished':>9} {'every K, s':>11}")
    for nodes in SIZES:
        cases = {kind: generated_instance(kind, nodes, 0) for kind in ("normal", "uniform")}
        for name, instance in {**cases, "holes": with_holes(nodes, 0)}.items():
            seconds = []
            for _ in range(3):
                begin = time.perf_counter()
                found = search(instance, by_load(instance))
                seconds.append(time.perf_counter() - begin)
            packings = found.items / instance.applications
            full = every_k(instance) if nodes <= 2048 else float("nan")
            print(
                f"{name:>9} {nodes:>6} {instance.applications:>6} {min(seconds):>8.3f} {packings:>9.1f}"
                f" {found.finished:>9} {full:>11.2f}"
            )
    for ports in (32, 64, 128, 256):
        instance = generated_instance("normal", 4096, 0)
        begin = time.perf_counter()
        hsa(instance, SwitchTree.of_ports(4096, ports))
        print(f"HSA, 4,096 nodes, {ports} ports: {time.perf_counter() - begin:.3f} s")


if __name__ == "__main__":
    main()
