"""Mixes like PUMA (Ahmad et al. 2012) and Gridmix 2, two to ten of each job (Zhang and Boutaba 2014, Figs 7 and 8).

Called by the phases experiment. The paper publishes neither its profiles nor its cluster. All figures here are chosen,
after what the benchmarks do: jobs are heavy or light in their maps, their shuffle and their reduces, and phases need

    map      read and the user's function: a core
    merge    spills sorted and merged on disk: little cpu, its buffer stays
    shuffle  map output fetched: the network works, little cpu, a small buffer
    sort     runs merged from disk: half a core, a large buffer
    reduce   the user's function and the write: a core, some memory

Reduces open when the maps are done (slow start 1): a reduce never holds room while it waits for maps. That is to the
benefit of task level, which would hold the largest phase all that time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.phases.profile import Phase, Profile
from cotide_lab.phases.workload import Stage, Workload, stragglers

GIB: Final = 1 << 30
NODES: Final = 16
NODE: Final = (8000, 24 * GIB)
"""Cores and memory of a node, chosen."""


class Benchmark(NamedTuple):
    """Tasks, and seconds of each phase of a task."""

    name: str
    maps: int
    reduces: int
    map: float
    merge: float
    shuffle: float
    sort: float
    reduce: float


PUMA: Final = (
    Benchmark("wordcount", 60, 8, 32, 8, 10, 4, 12),
    Benchmark("grep", 60, 4, 16, 2, 6, 2, 4),
    Benchmark("inverted-index", 50, 12, 28, 10, 24, 8, 18),
    Benchmark("ranked-inverted-index", 40, 16, 14, 12, 36, 14, 24),
    Benchmark("term-vector", 40, 12, 26, 10, 28, 8, 22),
    Benchmark("sequence-count", 50, 16, 34, 14, 34, 12, 26),
    Benchmark("self-join", 40, 16, 12, 12, 38, 16, 22),
    Benchmark("adjacency-list", 40, 16, 24, 14, 40, 16, 40),
    Benchmark("terasort", 60, 24, 8, 12, 40, 20, 28),
    Benchmark("histogram-movies", 50, 2, 22, 2, 4, 1, 2),
    Benchmark("histogram-ratings", 50, 2, 26, 2, 4, 1, 2),
    Benchmark("classification", 50, 4, 30, 3, 6, 2, 4),
    Benchmark("k-means", 50, 8, 36, 5, 16, 5, 14),
)
GRIDMIX: Final = (
    Benchmark("stream-sort", 48, 16, 12, 12, 36, 16, 24),
    Benchmark("java-sort", 48, 16, 9, 12, 36, 16, 22),
    Benchmark("webdata-sort", 72, 24, 10, 14, 40, 20, 26),
    Benchmark("webdata-scan", 72, 4, 14, 2, 6, 2, 5),
    Benchmark("combiner", 60, 10, 26, 6, 12, 4, 14),
    Benchmark("monster-query-1", 60, 16, 20, 10, 24, 10, 20),
    Benchmark("monster-query-2", 30, 12, 16, 8, 20, 8, 18),
    Benchmark("monster-query-3", 16, 8, 14, 6, 16, 6, 16),
)
MIXES: Final = {"puma": PUMA, "gridmix": GRIDMIX}
"""All figures are chosen: seconds of a task with its full need."""


def profiles(benchmark: Benchmark, generator: np.random.Generator) -> tuple[Profile, Profile]:
    """Return the phases of a map and of a reduce, each need and length within a tenth of the documented one."""

    def phase(name: str, cores: float, gigabytes: float, seconds: float) -> Phase:
        cores, gigabytes, seconds = np.array([cores, gigabytes, seconds]) * generator.uniform(0.9, 1.1, 3)
        return Phase(name, (int(1000 * cores), int(GIB * gigabytes)), max(1, int(1000 * seconds)))

    maps = (phase("map", 1.0, 1.0, benchmark.map), phase("merge", 0.3, 1.0, benchmark.merge))
    reduces = (
        phase("shuffle", 0.2, 0.7, benchmark.shuffle),
        phase("sort", 0.5, 1.6, benchmark.sort),
        phase("reduce", 1.0, 1.2, benchmark.reduce),
    )
    return Profile(maps), Profile(reduces)


def mix(name: str, multiple: int, seed: int) -> Workload:
    """Return ``multiple`` jobs of each benchmark of a mix, submitted within a minute in a random order."""
    generator = np.random.default_rng(seed)
    jobs = [benchmark for benchmark in MIXES[name] for _ in range(multiple)]
    order = generator.permutation(len(jobs))
    stages: list[Stage] = []
    for job, index in enumerate(order):
        benchmark = jobs[index]
        of_map, of_reduce = profiles(benchmark, generator)
        stages.append(Stage(job, of_map, benchmark.maps, reduces=False))
        stages.append(Stage(job, of_reduce, benchmark.reduces, reduces=True))
    return Workload(
        name=f"{name} {multiple}x",
        kinds=tuple(jobs[index].name for index in order),
        submitted=np.sort(generator.integers(0, 60_000, len(jobs))),
        stages=tuple(stages),
        factor=stragglers(sum(stage.tasks for stage in stages), generator),
        capacity=np.tile(np.array(NODE, np.int64), (NODES, 1)),
    )
