"""A plan from real traces: WorldCup98 drives the services, Alibaba 2017 and Google 2011 bring the jobs.

Called by the demo (``--data DIR``) and by experiments. First step of the flow: trace rows to services and arrivals.
Invariant: same directory and arguments, same plan; the seed chooses the rows, but does not affect what a row becomes.

Taken unchanged: the course of request rates, the order and rhythm of arrivals, run times between `RUN_SECONDS`,
classes, users' and jobs' identity. Scaled, with reasons in docs/research/simulation.md:

- Time is compressed: `COMPRESSION` x duration of each trace is one run. Arrivals fall into its first part; run times
  are not compressed. Tasks are thinned by a hash until their work is the wanted load, 60 % of it Alibaba's.
- The web trace's rates are of one site of 1998; each service plays a window of its own, scaled to the service's peak.
- A task's instances, up to tens of thousands, become 1 to 4 pods (one more for each power of eight). Cpu and memory are
  scaled so that hundreds of pods fill the nodes.
- The traces do not record a job's computation. A hash of its identity chooses one of the eight measured types. The
  input size is the one with the task's run time, by the isolated measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_sim.interference import fit as interference_fit
from cotide_sim.traces.jobs import alibaba2017, google2011
from cotide_sim.traces.load.worldcup98 import RequestTrace, read_worldcup98
from cotide_sim.workloads import sizing
from cotide_sim.workloads.plan import Plan, PlannedJob, PlannedService

WEB_DAYS: Final = (30, 76)
"""Windows start in these days of the trace, end of May to mid July: before and after, the site is all but idle."""
COMPRESSION: Final = 12.0
"""Seconds of each trace in a simulated second, for rates and arrivals alike. Chosen: a run of 15 minutes holds 3 hours,
in which request rates rise or fall by half, and by more during a match.
"""
ALIBABA_SHARE: Final = 0.6
ALIBABA_CPU_FACTOR: Final = 4.0
GOOGLE_CPU_FACTOR: Final = 8.0
CORES: Final = (1.0, 4.0)
RUN_SECONDS: Final = (30.0, 400.0)
"""Run times are cut to these; chosen: the middle nine tenths of both traces' are 3 s to 430 s and 14 s to 975 s."""
GOOGLE_SECONDS: Final = 29 * 86_400.0
"""The Google trace spans 29 days; its job identifiers replace the time (see `traces.google2011`)."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A trace row on its way to a job; ``part`` is its place in the window, in [0, 1)."""

    identity: str
    kind: str
    """The key of recurring work: jobs of a kind share a type."""
    part: float
    seconds: float
    cores: float
    memory_share: float
    pods: int
    workload_class: WorkloadClass
    priority: int


def from_traces(directory: Path, seed: int, nodes: int, duration_seconds: float) -> Plan:
    """Return the plan of a seed.

    Parameters
    ----------
    directory : holds ``http/``, ``alibaba/``, ``google/`` and ``colocation/``.
    seed : chooses windows and the rows in them.
    nodes : number of 8-core nodes for the load, >= 1.
    duration_seconds : simulated seconds of the run, > 0.

    Raises
    ------
    InputError
        When a file is missing or a row broken; names file and line.
    """
    lone = interference_fit.lone_run_times(interference_fit.read_grid(directory / "colocation"))
    services_seed, batch_seed, google_seed, users_seed = np.random.SeedSequence(seed).spawn(4)
    web = read_worldcup98(directory)
    target = sizing.LOAD * nodes * sizing.NODE_CORES * duration_seconds

    def isolated_seconds(job_type: str, input_bytes: int) -> float:
        start, slope = lone[job_type]
        return start + slope * input_bytes

    users = np.random.default_rng(users_seed)
    alibaba = _alibaba_window(directory, np.random.default_rng(batch_seed), COMPRESSION * duration_seconds)
    google = _google_window(directory, np.random.default_rng(google_seed), COMPRESSION * duration_seconds)
    jobs = [
        *_thinned(alibaba, seed, ALIBABA_SHARE * target, duration_seconds, isolated_seconds, users),
        *_thinned(google, seed, (1.0 - ALIBABA_SHARE) * target, duration_seconds, isolated_seconds, users),
    ]
    return Plan(
        services=_services(web, np.random.default_rng(services_seed), nodes, duration_seconds),
        jobs=sizing.named(jobs),
        duration_seconds=duration_seconds,
    )


def _services(
    web: RequestTrace, generator: np.random.Generator, nodes: int, duration: float
) -> tuple[PlannedService, ...]:
    services = []
    width = max(1, round(COMPRESSION * duration / 60.0 / sizing.RATE_STEPS))
    for number, replicas in enumerate(sizing.service_sizes(sizing.service_pods(nodes), generator)):
        peak = sizing.peak_rate(generator)
        first = int(generator.integers(WEB_DAYS[0] * 1440, WEB_DAYS[1] * 1440))
        steps = web.window(first, width * sizing.RATE_STEPS).reshape(sizing.RATE_STEPS, width).mean(axis=1)
        rates = np.maximum(sizing.RATE_MIN, steps / max(1.0, float(steps.max())) * peak)
        services.append(sizing.service(number, replicas, rates, duration / sizing.RATE_STEPS, generator))
    return tuple(services)


def _alibaba_window(directory: Path, generator: np.random.Generator, length: float) -> list[_Arrival]:
    tasks = [
        task
        for task in alibaba2017.read_batch_tasks(directory)
        if task.status == "Terminated" and task.seconds > 0 and task.cores and task.instances
    ]
    _must_hold(tasks, directory / alibaba2017.FILE)
    first, last = min(task.created_seconds for task in tasks), max(task.created_seconds for task in tasks)
    begin = generator.uniform(first, max(first, last - length))
    return [
        _Arrival(
            identity=f"alibaba/{task.job}/{task.task}",
            kind=f"alibaba/{task.job}",
            part=(task.created_seconds - begin) / length,
            seconds=task.seconds,
            cores=ALIBABA_CPU_FACTOR * (task.cores or 0.0),
            memory_share=task.memory_share or 0.0,
            pods=_pods(task.instances),
            workload_class=WorkloadClass.BATCH,
            priority=sizing.DEFAULT_PRIORITY,
        )
        for task in tasks
        if begin <= task.created_seconds < begin + length
    ]


def _class_of(job: google2011.GoogleJob) -> WorkloadClass:
    """Return gratis or batch: services come from the HTTP logs, and a production job that ends is batch here."""
    found = google2011.class_of_priority(job.priority)
    return WorkloadClass.BATCH if found is WorkloadClass.ONLINE else found


def _google_window(directory: Path, generator: np.random.Generator, length: float) -> list[_Arrival]:
    jobs = [job for job in google2011.read_google_jobs(directory) if job.seconds > 0]
    _must_hold(jobs, directory / google2011.FILE)
    first, last = min(job.order for job in jobs), max(job.order for job in jobs)
    wide = (last - first) * min(1.0, length / GOOGLE_SECONDS)
    begin = generator.uniform(first, last - wide)
    return [
        _Arrival(
            identity=f"google/{job.order:.0f}",
            kind=f"google/{job.user}/{job.name}",
            part=(job.order - begin) / wide if wide > 0 else 0.0,
            seconds=job.seconds,
            cores=GOOGLE_CPU_FACTOR * job.cpu_percent / 100.0 * sizing.NODE_CORES,
            memory_share=job.memory_share,
            pods=_pods(job.tasks),
            workload_class=_class_of(job),
            priority=sizing.DEFAULT_PRIORITY,
        )
        for job in jobs
        if begin <= job.order < begin + wide or wide == 0
    ]


def _thinned(
    arrivals: Iterable[_Arrival],
    seed: int,
    target: float,
    duration: float,
    isolated_seconds: sizing.LoneSeconds,
    users: np.random.Generator,
) -> list[PlannedJob]:
    """Return jobs of rows in the order of a hash until their work is ``target`` core-seconds, or all of them."""
    jobs: list[PlannedJob] = []
    offered = 0.0
    for arrival in sorted(arrivals, key=lambda row: _digest(f"{seed}/{row.identity}")):
        if offered >= target:
            break
        job_type = sizing.JOB_TYPES[_digest(arrival.kind) % len(sizing.JOB_TYPES)]
        wanted = float(np.clip(arrival.seconds, *RUN_SECONDS))
        input_bytes = sizing.input_for_seconds(job_type, wanted, isolated_seconds)
        seconds = isolated_seconds(job_type, input_bytes)
        millicores = 1000 * round(float(np.clip(arrival.cores, *CORES)))
        jobs.append(
            PlannedJob(
                name="",
                at_seconds=round(sizing.ARRIVALS_SHARE * duration * arrival.part, 3),
                workload_class=arrival.workload_class,
                type=job_type,
                input_bytes=input_bytes,
                priority=arrival.priority,
                completions=arrival.pods,
                millicores=millicores,
                memory_bytes=sizing.memory_for(arrival.memory_share),
                isolated_seconds=seconds,
                requested_seconds=sizing.users_estimate(seconds, users),
            )
        )
        offered += arrival.pods * millicores * seconds / 1000.0
    return jobs


def _pods(instances: int) -> int:
    """Return 1 for up to 7 instances, 2 up to 63, 3 up to 511, else 4."""
    return min(4, 1 + int(math.log(max(1, instances), 8) + 1e-9))


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _must_hold(rows: Sequence[object], file: Path) -> None:
    if not rows:
        raise InputError("holds no row that ran to its end", file=str(file))
