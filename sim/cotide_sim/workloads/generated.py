"""A plan from documented generators, where no traces are given.

Called by the demo and by `world`'s experiments. First step of the flow: a seed to services and arrivals. Invariant:
same arguments, same plan; each part draws from a generator of its own, so that changing one leaves the others alone.

Services (0.6 pods a node): a day of length `DAY_FACTOR` x duration, a cosine with a phase of its own, between a
third and all of a peak drawn log-uniformly from 25k to 140k requests/s a pod, with 3 % noise; every third service also
has bursts (Poisson, three a run on average, up by 40 %, decaying in a twentieth of the run). No rate passes 140k.

Jobs: bursts arrive uniformly over the first 70 % of the run; the number of jobs in a burst is Pareto (shape 1.3, at most
12), two bursts in five are gratis, the rest batch; run times alone are Pareto too (shape 1.6, 20 s to 400 s). Bursts
are drawn until the work alone, cores times seconds, is `LOAD` of what all nodes could do in the run.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_sim.interference import GeneratedInterference, Interference
from cotide_sim.workloads import sizing
from cotide_sim.workloads.plan import Plan, PlannedJob, PlannedService

SERVICE_PODS_PER_NODE: Final = 0.6
DAY_FACTOR: Final = 1.5
PEAK_RATES: Final = (25_000.0, 140_000.0)
RATE_STEPS: Final = 60
LOAD: Final = 0.40
ARRIVALS_SHARE: Final = 0.7
BURST_JOBS_MAX: Final = 12
RUN_SECONDS: Final = (20.0, 400.0)
RUN_SHAPE: Final = 1.6
GRATIS_SHARE: Final = 0.4


def generate(seed: int, nodes: int, duration_seconds: float, interference: Interference | None = None) -> Plan:
    """Return the plan of a seed.

    Parameters
    ----------
    seed : of all draws.
    nodes : 8-core nodes that the load is meant for, >= 1.
    duration_seconds : simulated seconds of the run, > 0.
    interference : what lone run times come from; the generated model when None.
    """
    model = interference if interference is not None else GeneratedInterference()
    services_seed, jobs_seed = np.random.SeedSequence(seed).spawn(2)
    return Plan(
        services=_services(np.random.default_rng(services_seed), nodes, duration_seconds),
        jobs=_jobs(np.random.default_rng(jobs_seed), nodes, duration_seconds, model),
        duration_seconds=duration_seconds,
    )


def _services(generator: np.random.Generator, nodes: int, duration: float) -> tuple[PlannedService, ...]:
    services = []
    step = duration / RATE_STEPS
    at = np.arange(RATE_STEPS + 1) * step
    for number, replicas in enumerate(sizing.service_sizes(max(1, round(SERVICE_PODS_PER_NODE * nodes)), generator)):
        low, high = np.log(PEAK_RATES)
        peak = float(np.exp(generator.uniform(low, high)))
        phase = generator.uniform(0.0, 2.0 * math.pi)
        wave = (2.0 + np.cos(2.0 * math.pi * at / (DAY_FACTOR * duration) + phase)) / 3.0
        rates = wave * (1.0 + 0.03 * generator.standard_normal(len(at)))
        starts = generator.uniform(0.0, duration, generator.poisson(3.0))
        if number % 3 == 0:
            for start in starts:
                since = at - start
                rates = rates * np.where(since >= 0, 1.0 + 0.4 * np.exp(-np.maximum(since, 0.0) / (duration / 20)), 1.0)
        services.append(
            PlannedService(
                name=f"service-{number:02d}",
                replicas=replicas,
                millicores=2000,
                memory_bytes=int(generator.integers(2, 7)) * sizing.GIBIBYTE,
                limit_milliseconds=float(generator.choice(sizing.LIMITS_MILLISECONDS)),
                rates=tuple(np.round(np.clip(peak * rates, 100.0, PEAK_RATES[1]), 1).tolist()),
                rates_step_seconds=step,
            )
        )
    return tuple(services)


def _jobs(
    generator: np.random.Generator, nodes: int, duration: float, interference: Interference
) -> tuple[PlannedJob, ...]:
    def lone(job_type: str, input_bytes: int) -> float:
        return float(interference.lone_seconds((job_type,), np.asarray([float(input_bytes)]))[0])

    target = LOAD * nodes * sizing.NODE_CORES * duration
    drawn: list[PlannedJob] = []
    offered = 0.0
    while offered < target:
        at = generator.uniform(0.0, ARRIVALS_SHARE * duration)
        size = min(BURST_JOBS_MAX, math.ceil(generator.pareto(1.3)) or 1)
        gratis = generator.random() < GRATIS_SHARE
        for _ in range(size):
            job_type = str(generator.choice(sizing.JOB_TYPES))
            wanted = min(RUN_SECONDS[1], RUN_SECONDS[0] * (1.0 + generator.pareto(RUN_SHAPE)))
            input_bytes = sizing.input_for_seconds(job_type, wanted, lone)
            seconds = lone(job_type, input_bytes)
            completions = int(generator.choice((1, 2, 3, 4), p=(0.4, 0.3, 0.2, 0.1)))
            millicores = int(generator.choice((1000, 2000, 3000), p=(0.3, 0.4, 0.3)))
            job = PlannedJob(
                name="",
                at_seconds=round(at, 3),
                workload_class=WorkloadClass.GRATIS if gratis else WorkloadClass.BATCH,
                type=job_type,
                input_bytes=input_bytes,
                priority=100,
                completions=completions,
                millicores=millicores,
                memory_bytes=int(generator.integers(1, 5)) * sizing.GIBIBYTE,
                lone_seconds=seconds,
                requested_seconds=sizing.users_estimate(seconds, generator),
            )
            drawn.append(job)
            offered += completions * millicores * seconds / 1000.0
    return sizing.named(drawn)
