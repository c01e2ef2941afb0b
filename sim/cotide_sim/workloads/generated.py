"""A plan from documented generators, for runs without traces.

Called by the demo and by experiments. First step of the flow: a seed to services and arrivals. Invariant: same
arguments, same plan; services and jobs draw from generators of their own, so that a change to one leaves the other.

Services (their number, peaks and limits: `sizing`) have a day of length `DAY_FACTOR` x duration. It is a cosine with a
phase of its own, between half of the peak and all of it, with 3 % noise. Every third service also has bursts (Poisson,
three a run on average, up by `BURST_RISE`, decaying in a twentieth of the run).

Jobs: bursts arrive uniformly over the first part of the run. The number of jobs in a burst is Pareto (shape 1.3, at
most 12); two bursts in five are gratis, the rest batch. Isolated run times are Pareto too (`RUN_SHAPE`, within
`RUN_SECONDS`). Bursts are drawn until the isolated work, cores times seconds, is `sizing.LOAD` of the nodes' capacity.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_sim.interference.model import GeneratedInterference, Interference
from cotide_sim.workloads import sizing
from cotide_sim.workloads.plan import Plan, PlannedJob, PlannedService

DAY_FACTOR: Final = 2.0
"""Length of a day over that of the run; chosen: rates then drift by a tenth while a usual job runs."""
DAY_RUN_MIN: Final = 900.0
"""A shorter run has the days and bursts of a run of this length, since its jobs are no shorter."""
BURST_RISE: Final = 0.25
BURST_SHAPE: Final = 1.3
BURST_JOBS_MAX: Final = 12
RUN_SECONDS: Final = (30.0, 400.0)
RUN_SHAPE: Final = 1.1
GRATIS_SHARE: Final = 0.4


def generate(seed: int, nodes: int, duration_seconds: float, interference: Interference | None = None) -> Plan:
    """Return the plan of a seed.

    Parameters
    ----------
    seed : of all draws.
    nodes : number of 8-core nodes for the load, >= 1.
    duration_seconds : simulated seconds of the run, > 0.
    interference : the source of isolated run times; the generated model when None.
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
    horizon = max(duration, DAY_RUN_MIN)
    step = duration / sizing.RATE_STEPS
    at = np.arange(sizing.RATE_STEPS + 1) * step
    for number, replicas in enumerate(sizing.service_sizes(sizing.service_pods(nodes), generator)):
        peak = sizing.peak_rate(generator)
        phase = generator.uniform(0.0, 2.0 * math.pi)
        wave = (3.0 + np.cos(2.0 * math.pi * at / (DAY_FACTOR * horizon) + phase)) / 4.0
        rates = peak * wave * (1.0 + 0.03 * generator.standard_normal(len(at)))
        bursts = generator.uniform(0.0, duration, generator.poisson(3.0)) if number % 3 == 0 else ()
        for start in bursts:
            since = at - start
            rates = rates * np.where(
                since >= 0, 1.0 + BURST_RISE * np.exp(-np.maximum(since, 0.0) / (horizon / 20)), 1.0
            )
        services.append(sizing.service(number, replicas, rates, step, generator))
    return tuple(services)


def _jobs(
    generator: np.random.Generator, nodes: int, duration: float, interference: Interference
) -> tuple[PlannedJob, ...]:
    def isolated_seconds(job_type: str, input_bytes: int) -> float:
        return float(interference.isolated_seconds((job_type,), np.asarray([float(input_bytes)]))[0])

    target = sizing.LOAD * nodes * sizing.NODE_CORES * duration
    drawn: list[PlannedJob] = []
    offered = 0.0
    while offered < target:
        at = round(generator.uniform(0.0, sizing.ARRIVALS_SHARE * duration), 3)
        jobs_in_burst = min(BURST_JOBS_MAX, math.ceil(generator.pareto(BURST_SHAPE)))
        gratis = generator.random() < GRATIS_SHARE
        for _ in range(jobs_in_burst):
            job_type = str(generator.choice(sizing.JOB_TYPES))
            wanted = min(RUN_SECONDS[1], RUN_SECONDS[0] * (1.0 + generator.pareto(RUN_SHAPE)))
            input_bytes = sizing.input_for_seconds(job_type, wanted, isolated_seconds)
            seconds = isolated_seconds(job_type, input_bytes)
            completions = int(generator.choice((1, 2, 3, 4), p=(0.4, 0.3, 0.2, 0.1)))
            cores = int(generator.choice((1, 2, 3), p=(0.3, 0.4, 0.3)))
            drawn.append(
                PlannedJob(
                    name="",
                    at_seconds=at,
                    workload_class=WorkloadClass.GRATIS if gratis else WorkloadClass.BATCH,
                    type=job_type,
                    input_bytes=input_bytes,
                    priority=sizing.DEFAULT_PRIORITY,
                    completions=completions,
                    millicores=1000 * cores,
                    memory_bytes=cores * sizing.GIBIBYTE,
                    isolated_seconds=seconds,
                    requested_seconds=sizing.users_estimate(seconds, generator),
                )
            )
            offered += completions * cores * seconds
    return sizing.named(drawn)
