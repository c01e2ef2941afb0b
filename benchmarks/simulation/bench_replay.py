"""Trace replay: parsing, time and memory a job, and the growth with the log's length.

Run with ``python benchmarks/simulation/bench_replay.py [--data DIR] [--accasim]``; DIR holds the logs of the Parallel
Workloads Archive (by default ``$COTIDE_DATA/swf``), without it a made-up log is used. Prints medians over several runs
after compilation; reading the file is timed apart. To see growth a log is repeated end to end; memory is the slope of a
process's peak over the number of jobs, so it counts the columns, what the kernel allocates and what the runner copies.
With ``--accasim`` AccaSim replays the first log, too, for the ratio; it is fetched for that (see `accasim_baseline`).
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from accasim_baseline import Unavailable, accasim_timings

from cotide_core.kernels.compiled import compiles
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf import read_swf
from cotide_sim.traces.jobs.swf_cleaning import clean

LOGS = (
    "KTH-SP2-1996-2.1-cln", "CTC-SP2-1996-3.1-cln", "LLNL-Atlas-2006-2.1-cln", "HPC2N-2002-2.2-cln",
    "SDSC-BLUE-2000-4.2-cln",
)  # fmt: skip
NAMES = ("fcfs", "easy", "easy-sjbf", "easy-svbf", "conservative", "slack", "svf", "hybrid")
BARS_MS = {"KTH-SP2-1996-2.1-cln": 30, "HPC2N-2002-2.2-cln": 300, "SDSC-BLUE-2000-4.2-cln": 400}
"""EASY's goals in milliseconds; easy-sjbf, easy-svbf and conservative shall stay within ten times EASY."""
WITHIN = 10
MAX_GROWS = 1.5
"""Time a job of a log eight times as long, as a multiple: what counts as flat (chosen)."""
MACHINE_POLICIES = ("fcfs", "easy", "conservative", "svf")


def made_up(count: int = 50_000) -> BatchJobs:
    """A log with the load of about 0.8 on 128 processors."""
    rng = np.random.default_rng(0)
    run = np.ceil(rng.lognormal(6.5, 1.8, count)).astype(np.int64)
    demand = 2 ** rng.integers(0, 6, count)
    gap = (run * demand).mean() / 128 / 0.8
    submit = np.cumsum(rng.exponential(gap, count)).astype(np.int64)
    return BatchJobs(
        name="made up", processors=128, numbers=np.arange(count), submit=submit, run=run,
        demand=demand, request=run * rng.integers(1, 12, count), user=rng.integers(0, 60, count),
    )  # fmt: skip


def repeated(jobs: BatchJobs, times: int) -> BatchJobs:
    """The log several times over, end to end, so that load and queues stay what they are."""
    period = int((jobs.submit + jobs.run).max()) + 86_400
    columns = {name: np.tile(getattr(jobs, name), times) for name in ("run", "demand", "request", "user")}
    submit = np.concatenate([jobs.submit + number * period for number in range(times)])
    return replace(jobs, numbers=np.arange(len(submit)), submit=submit, **columns)


def load(data: Path | None, name: str) -> BatchJobs:
    return made_up() if data is None else clean(read_swf(data / f"{name}.swf.gz"))[0]


def judged(name: str, medians: dict[str, float]) -> str:
    """What is said of the goals behind a row; medians in milliseconds."""
    said = [] if name not in BARS_MS else [f"easy {'within' if medians['easy'] <= BARS_MS[name] else 'ABOVE'} its goal"]
    slow = [one for one in ("easy-sjbf", "easy-svbf", "conservative") if medians[one] > WITHIN * medians["easy"]]
    said += [f"{', '.join(slow)} more than {WITHIN} times easy"] if slow else []
    return "; ".join(said)


def show_machines(data: Path | None, runs: int) -> None:
    """Vector demands on many machines: OpenB's pods on all and on 20 of its machines, or made-up pods on 100."""
    from cotide_lab.trace_replay.machine_jobs import MachineJobs, machine_jobs_of
    from cotide_lab.trace_replay.machine_runner import run_on_machines
    from cotide_sim.traces.jobs.any_log import read_any_log
    from cotide_sim.traces.jobs.machines import alike, beside
    from cotide_sim.traces.jobs.swf_cleaning import Cleaning

    path = data.parent / "alibaba" / "openb_pod_list_default.csv" if data else None
    given: dict[str, MachineJobs] = {}
    if path is not None and path.exists():
        trace = read_any_log(path)
        machines = beside("openb", path)
        for count in (len(machines), 20):
            jobs = clean(trace.log, Cleaning(unsorted="sort", processors=10**9))[0]
            given[f"OpenB on {count}"] = machine_jobs_of(trace, jobs, machines.spread(count), skip=True)
    for times in (1, 4):
        jobs = repeated(made_up(5000), times)
        rng = np.random.default_rng(1)
        need = np.column_stack([1000 * jobs.demand, 1024 * rng.integers(1, 128, len(jobs))])
        ones, none = np.ones(len(jobs), dtype=np.int64), np.zeros((len(jobs), 2), dtype=np.int64)
        given[f"made up on 4, {len(jobs):,}"] = MachineJobs(
            jobs, ones, need, none, ones, alike("alibaba2017", 4, {"cpu": 32, "memory": 0.131072})
        )
    print("\nvector demands on many machines: milliseconds (microseconds a job)")
    print(f"  {'trace':24} {'jobs':>8} " + " ".join(f"{name:>16}" for name in MACHINE_POLICIES))
    for name, one in given.items():
        cells = []
        for policy in MACHINE_POLICIES:
            walls = [run_on_machines(one, POLICIES[policy]).schedule.wall_seconds for _ in range(min(runs, 3))]
            wall = statistics.median(walls)
            cells.append(f"{wall * 1000:9.1f} ({wall * 1e6 / len(one):4.0f})")
        print(f"  {name:24} {len(one):8} " + " ".join(f"{cell:>16}" for cell in cells), flush=True)


def median_seconds(action, runs: int) -> float:
    found = []
    for _ in range(runs):
        begin = time.perf_counter()
        action()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def peak_bytes(data: Path | None, name: str, times: int, policy: str) -> int:
    """The peak of a fresh process that replays a log so many times over."""
    command = [sys.executable, __file__, "--peak", f"{name},{times},{policy}", *(["--data", data] if data else [])]
    return int(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)


def print_peak(data: Path | None, what: str) -> None:
    name, times, policy = what.split(",")
    run_policy(repeated(load(data, name), int(times)), POLICIES[policy])
    # getrusage would not do: on Linux its peak starts from that of the process which started this one.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) * 1024)


def show_accasim(jobs: BatchJobs, read_seconds: float, runs: int) -> None:
    name = Path(jobs.name).name
    print(f"\n{name}, {len(jobs)} jobs, beside AccaSim (once a policy; it reads the log as it goes)", flush=True)
    try:
        timings = accasim_timings(jobs, ("easy", "fifo"))
    except Unavailable as error:
        print(f"  not timed: {error}")
        return
    print("  ratios are of processor time, which a busy machine stretches less than wall time")
    for theirs, ours in (("easy", "easy"), ("fifo", "fcfs")):
        own = statistics.median(cpu_seconds(lambda name=ours: run_policy(jobs, POLICIES[name])) for _ in range(runs))
        timing = timings[theirs]
        print(
            f"  {ours:5} AccaSim {timing.version} {timing.wall_seconds:6.1f} s wall, {timing.cpu_seconds:6.1f} s cpu;"
            f" here {own * 1000:6.1f} ms cpu, and {read_seconds * 1000:.0f} ms to read: {timing.cpu_seconds / own:,.0f}"
            f" times as long, {timing.cpu_seconds / (own + read_seconds):,.0f} with our reading",
            flush=True,
        )


def cpu_seconds(action) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


def time_first_log(data: Path | None, runs: int) -> None:
    jobs = load(data, LOGS[0])
    path = data / f"{LOGS[0]}.swf.gz" if data else None
    read = statistics.median(cpu_seconds(lambda: read_swf(path)) for _ in range(3)) if path else 0.0
    run_policy(jobs, POLICIES["easy"])
    run_policy(jobs, POLICIES["fcfs"])
    show_accasim(jobs, read, runs)


def main() -> None:
    given = os.environ.get("COTIDE_DATA")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(given) / "swf" if given else None)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--accasim", action="store_true", help="fetch AccaSim with pip and time it on the first log")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    data = arguments.data
    if arguments.peak:
        print_peak(data, arguments.peak)
        return
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, compiled: {compiles()}")
    print(f"medians of {arguments.runs} runs after compilation; milliseconds\n")
    print(f"{'log':24} {'jobs':>8} {'read':>7} " + " ".join(f"{name:>12}" for name in NAMES))
    names = LOGS if data else ("made up",)
    for name in names:
        jobs = load(data, name)
        read = median_seconds(lambda path=name: read_swf(data / f"{path}.swf.gz"), 3) if data else 0.0
        medians = {}
        for policy in NAMES:
            runs = 1 if policy == "slack" else arguments.runs
            walls = [run_policy(jobs, POLICIES[policy]).wall_seconds for _ in range(runs)]
            medians[policy] = statistics.median(walls) * 1000
        cells = [f"{medians[policy]:12.1f}" for policy in NAMES]
        print(f"{name:24} {len(jobs):8} {read * 1000:7.0f} " + " ".join(cells), judged(name, medians), flush=True)
    longest = "HPC2N-2002-2.2-cln" if data else "made up"
    jobs = load(data, longest)
    print(f"\n{longest} repeated end to end: nanoseconds a job")
    for policy in ("easy", "conservative", "hybrid"):
        found = []
        for times in (1, 2, 4, 8):
            log = repeated(jobs, times)
            runs = arguments.runs if policy == "easy" else 1
            wall = statistics.median(run_policy(log, POLICIES[policy]).wall_seconds for _ in range(runs))
            found.append(wall * 1e9 / len(log))
            print(f"  {policy:14} {len(log):9} jobs {found[-1]:9.0f}", flush=True)
        flat = found[-1] <= MAX_GROWS * found[0]
        print(f"  {policy:14} {'flat' if flat else 'NOT FLAT'} in the log's length: x {found[-1] / found[0]:.2f}")
    show_machines(data, arguments.runs)
    if arguments.accasim:
        time_first_log(data, arguments.runs)
    if not Path("/proc/self/status").exists():
        return
    print("\npeak memory, bytes a job (slope between 4 and 12 repetitions, columns of the log included)")
    for policy in ("easy", "easy-sjbf", "conservative"):
        few, many = (peak_bytes(data, longest, times, policy) for times in (4, 12))
        print(f"  {policy:14} {(many - few) / (8 * len(jobs)):6.0f}", flush=True)


if __name__ == "__main__":
    main()
