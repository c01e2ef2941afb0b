"""Seconds of the approximation algorithms by number of jobs and machines; compilation and generation apart.

Run with ``python benchmarks/simulation/bench_approximation.py``. SYNTH2 instances of seed 0; medians of five runs in
one process, with the least and the most. The last lines time the same EF placement on one entry a slot, as an obvious
program would do it, on the instance it can finish.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from cotide_lab.job_logs.synthetic import synthetic_jobs
from cotide_lab.offline.algorithms import ALGORITHMS
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.schedule import total_completion

CASES = (
    ("svf-ef", 8_000, 50), ("svf-ef", 16_000, 50), ("svf-ef", 32_000, 50), ("sjf-ef", 16_000, 50),
    ("random-ef", 16_000, 50), ("svf-lw", 16_000, 50), ("hybrid", 16_000, 50), ("hybrid", 32_000, 50),
    ("block", 16_000, 50), ("block", 37_000, 50), ("block", 1_000_000, 50), ("block-spread", 37_000, 50),
    ("svf-ef", 100_000, 1), ("single", 100_000, 1), ("svf-ef", 100_000, 1_000),
)  # fmt: skip


def timed(call: Callable[[], object], runs: int = 5) -> tuple[float, float, float]:
    taken = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken), min(taken), max(taken)


def by_slots(jobs: JobList, machines: int) -> int:
    """EF with one entry a slot, vectorised over the slots; returns the total completion time."""
    horizon = int(jobs.sizes.sum()) // machines * 2 + int(jobs.sizes.max())
    held = np.zeros((machines, horizon), np.int64)
    total = 0
    for job in np.argsort(jobs.volumes, kind="stable"):
        size, demand = int(jobs.sizes[job]), int(jobs.demands[job])
        best = (horizon, 0)
        for machine in range(machines):
            blocked = np.flatnonzero(held[machine] + demand > jobs.capacity)
            edges = np.concatenate([[-1], blocked, [horizon]])
            index = int(np.argmax(np.diff(edges) > size))
            best = min(best, (int(edges[index]) + 1, machine))
        held[best[1], best[0] : best[0] + size] += demand
        total += best[0] + size
    return total


def main() -> None:
    print(f"{platform.machine()}, Python {platform.python_version()}")
    small = synthetic_jobs("synth2", 200, 0)
    for name in {name for name, _, _ in CASES}:
        ALGORITHMS[name](small, 1 if name == "single" else 2, np.random.default_rng(0))
    print(f"{'algorithm':<14}{'jobs':>10}{'machines':>10}{'median s':>12}{'least':>10}{'most':>10}{'jobs/s':>14}")
    for name, count, machines in CASES:
        jobs = synthetic_jobs("synth2", count, 0)
        median, least, most = timed(lambda: ALGORITHMS[name](jobs, machines, np.random.default_rng(0)))  # noqa: B023  called at once
        print(
            f"{name:<14}{count:>10,}{machines:>10,}{median:>12.4f}{least:>10.4f}{most:>10.4f}{count / median:>14,.0f}"
        )
    jobs = synthetic_jobs("synth2", 2_000, 0)
    median, _, _ = timed(lambda: by_slots(jobs, 10), runs=1)
    ours, _, _ = timed(lambda: ALGORITHMS["svf-ef"](jobs, 10, np.random.default_rng(0)))
    same = by_slots(jobs, 10) == total_completion(jobs, ALGORITHMS["svf-ef"](jobs, 10, np.random.default_rng(0)))
    print(f"svf-ef, 2,000 jobs on 10 machines: by slots {median:.2f} s, by blocks {ours:.4f} s, same total: {same}")


if __name__ == "__main__":
    main()
