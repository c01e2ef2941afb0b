"""Processor seconds and packings of DMNS against the number of nodes, beside trying every K in full; one thread.

Run with ``python benchmarks/consolidation/bench_consolidation.py [--nodes 256,1024] [--plot FILE]``. "packings" is the
applications that all trials looked at, over the number of applications: a full packing is 1, trying every K in full is
about N / 2. Two kinds of instances: Wen et al.'s, and one that leaves holes (sizes of 20 to 45 % of a node), where no
bound ends the search early. Best of three.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path

import numpy as np

from cotide_lab.consolidation.dmns import search
from cotide_lab.consolidation.hsa import hsa
from cotide_lab.consolidation.instance import Instance
from cotide_lab.consolidation.kmns import by_load, kmns
from cotide_lab.consolidation.switch_tree import SwitchTree
from cotide_lab.experiments.consolidation.node_loads import generated_instance
from cotide_lab.experiments.figure_file import check, figure_file

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
    begin = time.process_time()
    tried = [kmns(instance, drained) for drained in range(0, instance.nodes + 1, step)]
    return (time.process_time() - begin) * (instance.nodes + 1) / len(tried)


def draw(rows: dict[str, list[tuple[int, float, float]]], path: Path) -> None:
    """Draw seconds against the number of nodes by input, those of every K in full dotted."""
    with figure_file(path, (7, 5)) as figure:
        axes = figure.subplots()
        for number, (name, found) in enumerate(rows.items()):
            nodes, seconds, full = (list(column) for column in zip(*found, strict=True))
            axes.plot(nodes, seconds, marker=".", color=f"C{number}", label=f"DMNS, {name}")
            axes.plot(nodes, full, ":", color=f"C{number}", label=f"every K in full, {name}")
        axes.set(xlabel="nodes", ylabel="seconds", xscale="log", yscale="log")
        axes.legend(fontsize="x-small")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default=",".join(map(str, SIZES)), help="by commas")
    parser.add_argument("--plot", type=Path, help="write seconds against nodes, as .png or .svg")
    options = parser.parse_args()
    if options.plot is not None:
        check(options.plot)
    print(f"{platform.machine()}, Python {platform.python_version()}")
    search(with_holes(8, 0), by_load(with_holes(8, 0)))
    print(f"{'input':>9} {'nodes':>6} {'apps':>6} {'seconds':>8} {'packings':>9} {'finished':>9} {'every K, s':>11}")
    rows: dict[str, list[tuple[int, float, float]]] = {}
    for nodes in map(int, options.nodes.split(",")):
        cases = {kind: generated_instance(kind, nodes, 0) for kind in ("normal", "uniform")}
        for name, instance in {**cases, "holes": with_holes(nodes, 0)}.items():
            seconds = []
            for _ in range(3):
                begin = time.process_time()
                found = search(instance, by_load(instance))
                seconds.append(time.process_time() - begin)
            packings = found.items / instance.applications
            full = every_k(instance) if nodes <= 2048 else float("nan")
            rows.setdefault(name, []).append((nodes, min(seconds), full))
            print(
                f"{name:>9} {nodes:>6} {instance.applications:>6} {min(seconds):>8.3f} {packings:>9.1f}"
                f" {found.finished:>9} {full:>11.2f}"
            )
    if options.plot is not None:
        draw(rows, options.plot)
    for ports in (32, 64, 128, 256):
        instance = generated_instance("normal", 4096, 0)
        begin = time.process_time()
        hsa(instance, SwitchTree.of_ports(4096, ports))
        print(f"HSA, 4,096 nodes, {ports} ports: {time.process_time() - begin:.3f} s")


if __name__ == "__main__":
    main()
