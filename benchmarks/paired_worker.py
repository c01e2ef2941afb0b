"""Replays logs with the packages of one commit, on request: a JSON line in, a JSON line out.

Started by `paired` for each commit, with that commit's packages on the path; so it must do with what both have, and
knows the names that modules and policies had before the wings. An answer holds a digest of the schedule, bit for bit,
and the processor time of a replay after compilation, without what is done around it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cotide_core.errors import InputError

EARLIER_POLICIES = {"sjf-queue": "sjf", "svf-queue": "svf"}


def module(*names: str) -> Any:
    for name in names:
        for package in ("cotide_lab", "cotide_sim"):  # the replay was a part of the simulator once
            try:
                return importlib.import_module(f"{package}.{name}")
            except ModuleNotFoundError:
                continue
    raise ModuleNotFoundError(names[0])


POLICIES = module("trace_replay.policies", "replay.policies").POLICIES
RUNNER = module("trace_replay.runner", "replay.runner")
ON_MACHINES = module("trace_replay.machine_runner", "replay.machine_runner")
MACHINE_JOBS = module("trace_replay.machine_jobs", "replay.machine_jobs")
BATCH_JOBS = module("traces.jobs.batch_jobs", "traces.batch_jobs")
SWF = module("traces.jobs.swf", "traces.swf")
CLEANING = module("traces.jobs.swf_cleaning", "traces.swf_cleaning")
ANY_LOG = module("traces.jobs.any_log", "traces.any_log")
MACHINES = module("traces.jobs.machines", "traces.machines")
LEAST_SECONDS = 0.2
"""A short replay is repeated for so long and its shortest time told: what disturbs it only ever adds; chosen."""
MACHINE_POLICIES = ("fcfs", "easy", "conservative", "slack", "online-svf", "svf-lw", "svf-random", "hybrid")
MACHINES_KEPT = 20
"""Of OpenB's 1,523: few enough that pods wait; chosen as in `bench_replay`."""


def made_up(count: int = 50_000) -> Any:
    rng = np.random.default_rng(0)
    run = np.ceil(rng.lognormal(6.5, 1.8, count)).astype(np.int64)
    demand = 2 ** rng.integers(0, 6, count)
    gap = (run * demand).mean() / 128 / 0.8
    submit = np.cumsum(rng.exponential(gap, count)).astype(np.int64)
    return BATCH_JOBS.BatchJobs(
        name="made up", processors=128, numbers=np.arange(count), submit=submit, run=run,
        demand=demand, request=run * rng.integers(1, 12, count), user=rng.integers(0, 60, count),
    )  # fmt: skip


@cache
def loaded(data: Path, log: str) -> Any:
    if log == "made-up":
        return made_up()
    if log == "OpenB":
        path = data / "alibaba" / "openb_pod_list_default.csv"
        trace = ANY_LOG.read_any_log(path)
        jobs = CLEANING.clean(trace.log, CLEANING.Cleaning(unsorted="sort", processors=10**9))[0]
        machines = MACHINES.beside("openb", path).spread(MACHINES_KEPT)
        return MACHINE_JOBS.machine_jobs_of(trace, jobs, machines, skip=True)
    found = sorted((data / "swf").glob(f"{log}*.swf.gz"))
    return CLEANING.clean(SWF.read_swf(found[0]))[0] if found else None


def replayed(data: Path, log: str, name: str, runtime: str) -> dict[str, Any]:
    jobs = loaded(data, log)
    if jobs is None:
        return {"missing": f"no log {log}"}
    # Before they were told apart, svf was the strict queue; its plan always answered to online-svf as well.
    of_old = {"online-svf": "svf", "online-sjf": "sjf"}
    known = name if name in POLICIES else EARLIER_POLICIES.get(name) or of_old.get(name)
    if known not in POLICIES:
        return {"missing": f"no policy {name}"}
    policy = POLICIES[known]
    on_machines = log == "OpenB"
    if on_machines and name not in MACHINE_POLICIES:
        return {"missing": f"{name} is for one pool"}
    seconds: list[float] = []
    while sum(seconds) < LEAST_SECONDS:
        if on_machines:
            try:
                schedule = ON_MACHINES.run_on_machines(jobs, policy, runtime=runtime).schedule
            except InputError as error:  # an earlier commit has it for one pool only
                return {"missing": str(error)}
        else:
            schedule = RUNNER.run_policy(jobs, policy, runtime)
        seconds.append(schedule.wall_seconds)
    columns = b"".join(
        np.ascontiguousarray(column).astype(np.int64).tobytes() for column in (schedule.start, schedule.promise)
    )
    return {"cpu_seconds": min(seconds), "digest": hashlib.sha256(columns).hexdigest()}


def main() -> None:
    time.perf_counter = time.process_time  # the runners time themselves by it, and so tell processor time
    data = Path(sys.argv[1])
    for line in sys.stdin:
        log, policy, runtime = json.loads(line)
        print(json.dumps(replayed(data, log, policy, runtime)), flush=True)


if __name__ == "__main__":
    main()
