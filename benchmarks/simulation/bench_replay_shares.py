"""What policies do to the shares of users or groups: one log, replayed under each.

Owners are told apart by what they ask for in all (processor seconds): the light ones are the smallest that ask for a
quarter together. Printed for each policy: the mean wait of jobs of light and of heavy owners and of wide jobs (above
half of the machine), each with the interval over resampled weeks; and, over the time in which somebody waits who does
not hold most of the machine, the mean share of the held processors that belongs to who does.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cotide_core.kernels.array_types import Booleans, Integers
from cotide_lab.inputs.row_options import RowOptions
from cotide_lab.inputs.trace_input import from_file
from cotide_lab.trace_replay.check import faults_of
from cotide_lab.trace_replay.metrics import figures_of
from cotide_lab.trace_replay.policies import ReplayPolicy, policy_of
from cotide_lab.trace_replay.runner import Runtime, run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

LIGHT = 0.25
"""Share of all processor seconds that the light owners ask for together; chosen."""


def light_jobs(jobs: BatchJobs, owner: Integers) -> tuple[Booleans, int, int]:
    """Return which jobs are light owners', how many these are, and how many owners there are."""
    _, number = np.unique(owner, return_inverse=True)
    asked = np.bincount(number, jobs.run * jobs.demand)
    order = np.argsort(asked, kind="stable")
    light = np.zeros(len(asked), np.bool_)
    light[order[np.cumsum(asked[order]) <= LIGHT * asked.sum()]] = True
    return light[number], int(light.sum()), len(asked)


def heaviest_share(jobs: BatchJobs, start: Integers, owner: Integers) -> tuple[float, float]:
    """Return the mean share of who holds most while somebody else waits, and for which part of the time that was so."""
    _, number = np.unique(owner, return_inverse=True)
    rows = np.arange(len(jobs))
    times = np.concatenate([start + jobs.run, jobs.submit, start])
    kinds = np.repeat([0, 1, 2], len(jobs))
    index = np.tile(rows, 3)
    held = np.zeros(number.max() + 1, np.int64)
    waiting = np.zeros_like(held)
    before, shares, contended, everybody = int(jobs.submit[0]), 0.0, 0.0, 0
    for at in np.lexsort((kinds, times)).tolist():
        now, job = int(times[at]), int(index[at])
        if now > before:
            heaviest = int(np.argmax(held))
            if everybody > waiting[heaviest] and held[heaviest]:
                shares += (now - before) * held[heaviest] / held.sum()
                contended += now - before
            before = now
        one, demand, kind = number[job], jobs.demand[job], int(kinds[at])
        if kind == 0:
            held[one] -= demand
        elif kind == 1:
            waiting[one] += 1
            everybody += 1
        else:
            held[one] += demand
            waiting[one] -= 1
            everybody -= 1
    span = float((start + jobs.run).max() - jobs.submit[0])
    return shares / contended if contended else 0.0, contended / span


def part(jobs: BatchJobs, rows: Booleans) -> BatchJobs:
    columns = (jobs.numbers, jobs.submit, jobs.run, jobs.demand, jobs.request, jobs.user)
    return BatchJobs(jobs.name, jobs.processors, *(column[rows] for column in columns))


def line(jobs: BatchJobs, owner: Integers, policy: ReplayPolicy, runtime: Runtime) -> dict[str, Any]:
    schedule = run_policy(jobs, policy, runtime)
    assert not faults_of(jobs, schedule)
    light, _, _ = light_jobs(jobs, owner)
    wide = 2 * jobs.demand > jobs.processors
    found: dict[str, Any] = {"policy": policy.name}
    if policy.name == "fair":
        found["half_life_hours"] = policy.half_life_seconds / 3600
    for name, rows in (("all", np.ones(len(jobs), np.bool_)), ("light", light), ("heavy", ~light), ("wide", wide)):
        figures = figures_of(part(jobs, rows), schedule.start[rows])
        for figure, short in (("wait_seconds_mean", "wait_s"), ("bounded_slowdown_mean", "bounded_slowdown")):
            one = figures[figure]
            found[f"{name}_{short}"] = [
                None if value is None else round(value, 2) for value in (one.value, one.low, one.high)
            ]
    found["wide_longest_wait_s"] = int((schedule.start - jobs.submit)[wide].max()) if wide.any() else None
    share, contended = heaviest_share(jobs, schedule.start, owner)
    return found | {"share_of_who_holds_most": round(share, 3), "part_of_the_time": round(contended, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--shares-of", choices=("user", "group"), default="user")
    parser.add_argument("--policies", default="fcfs,easy,fair")
    parser.add_argument("--half-life-hours", type=float, nargs="+", default=[1.0, 24.0, 168.0])
    parser.add_argument("--runtime", default="request")
    options = parser.parse_args()
    cleaning = RowOptions(on_bad="skip").cleaning(None)
    jobs = from_file(options.trace, None, "cpu", "skip", cleaning).jobs
    owner = jobs.user if options.shares_of == "user" or jobs.group is None else jobs.group
    light, few, owners = light_jobs(jobs, owner)
    rows = []
    for name in options.policies.split(","):
        policy = replace(policy_of(name), owners=options.shares_of)
        halves = options.half_life_hours if name == "fair" else [1.0]
        rows += [line(jobs, owner, replace(policy, half_life_seconds=3600.0 * h), options.runtime) for h in halves]
    shown = {"jobs": len(jobs), "owners": owners, "light_owners": few, "light_jobs": int(light.sum())}
    print(json.dumps({**shown, "policies": rows}, indent=1))


if __name__ == "__main__":
    main()
