"""A node's report with 10,000 running tasks on 1,000 nodes, and a Facebook day under each rule.

Run with ``python benchmarks/simulation/bench_phases.py [DIRECTORY OF SWIM'S LOGS]``. Each measured report follows the
end of one phase on its node, with 1,000 groups that wait for room; the medians are of 2,000 reports on a running
cluster.
"""

from __future__ import annotations

import platform
import sys
import time
from pathlib import Path

import numpy as np

from cotide_core.phases.profile import Phase, Profile
from cotide_lab.phases.node_report import desk, end_phase, open_group, report
from cotide_lab.phases.rules import RULES
from cotide_lab.phases.swim_model import facebook_day
from cotide_lab.phases.tables import RUNNING, tables
from cotide_lab.phases.utility import Weights
from cotide_lab.phases.world import run
from cotide_sim.traces.mapreduce.swim import FILES, read_swim

NODES, JOBS, TASKS_OF_JOB, REPORTS = 1000, 1000, 100, 2000


def reports() -> None:
    generator = np.random.default_rng(0)
    groups = []
    for job in range(JOBS):
        low, high = generator.integers(200, 500), generator.integers(600, 1200)
        phases = (Phase("shuffle", (int(low), 700), 9000), Phase("reduce", (int(high), 900), 9000))
        groups.append((job, Profile(phases), TASKS_OF_JOB))
    work, nodes = tables(groups, np.tile(np.array([[6000, 20_000]]), (NODES, 1)))
    room, weights = desk(work), Weights()
    work.counts[0] = JOBS
    for group in range(JOBS):
        open_group(work, group, 0)
    for node in range(NODES):
        report(work, nodes, weights, node, 0, room)
    taken, now = [], 0
    for _ in range(4 * REPORTS):
        now += 10
        task = int(generator.choice(np.flatnonzero(work.state == RUNNING)))
        node = int(work.node[task])
        end_phase(work, nodes, task, now)
        begin = time.perf_counter()
        report(work, nodes, weights, node, now, room)
        taken.append(time.perf_counter() - begin)
    micros = 1e6 * np.array(taken[-REPORTS:])
    print(
        f"{int(nodes.held.sum()):,} tasks on {NODES:,} nodes, {int(work.counts[1]):,} groups waiting: a report takes"
        f" {np.median(micros):.0f} us in the median, {np.quantile(micros, 0.99):.0f} at p99"
    )


def day(folder: Path) -> None:
    for name, file in FILES.items():
        workload = facebook_day(read_swim(folder / file, name), 0)
        for rule in RULES:
            begin = time.perf_counter()
            outcome = run(workload, rule)
            seconds = time.perf_counter() - begin
            print(f"{name}, {workload.tasks:,} tasks, {rule}: {seconds:.1f} s, {outcome.reports:,} reports")


def main() -> None:
    print(f"{platform.machine()}, Python {platform.python_version()}")
    reports()
    if len(sys.argv) > 1:
        day(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
