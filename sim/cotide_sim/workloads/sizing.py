"""Sizes that both kinds of plan share: services by node count, jobs by target run time, users' estimates.

Called by `generated` and `traced`. Invariant: pure. A job's lone seconds follow the present interference model for its
type and input, which makes them learnable.

The values are chosen together so that a run is a fair test on 8-core nodes. A scheduler that considers requests only
breaks many limits. One that never shares a node with a service cannot keep up. One that predicts can do both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_sim.workloads.plan import PlannedJob, PlannedService

JOB_TYPES: Final = ("aggregate", "grep", "join", "md5", "sample", "select", "sort", "wordcount")
"""The eight jobs of the measured grid."""
NODE_CORES: Final = 8
"""Cores of a node in the definition of load (the demo's default node)."""
NODE_GIBIBYTES: Final = 32
GIBIBYTE: Final = 1 << 30
LOAD: Final = 0.6
"""Work of all jobs, cores times lone seconds, as a share of the capacity of all nodes in the run."""
ARRIVALS_SHARE: Final = 0.7
"""Jobs arrive in this first part of the run, so that queues can drain before its end."""
DEFAULT_PRIORITY: Final = 100

SERVICE_PODS_PER_NODE: Final = 0.6
SERVICE_MILLICORES: Final = 2000
"""Request of an online pod: twice the one core that it can use, as services are commonly over-provisioned."""
PEAK_RATES: Final = (35_000.0, 140_000.0)
"""Range of requests/s of a pod at its peak, drawn log-uniformly: from the first visible effect of a job to the highest
measured rate (0.77 of saturation).
"""
RATE_MIN: Final = 100.0
RATE_STEPS: Final = 60
"""Rates of a service in one run."""
LIMITS_MILLISECONDS: Final = (0.5, 1.0, 2.0)
"""The p95 limits that services promise. Chosen below the 10 ms of Ou 2024: the measured service answers in 0.05 to 0.2
ms alone and passes 10 ms only next to jobs near its saturation.
"""

INPUT_STEP: Final = 1_000_000_000
"""Inputs are whole gigabytes; chosen, so that similar jobs recur as they do in practice."""
INPUT_MAX: Final = 64_000_000_000
"""Largest input; chosen, four times the largest of Ou 2024's experiments (2 to 16 GB)."""

LoneSeconds = Callable[[str, int], float]


def service_pods(nodes: int) -> int:
    """Return the number of online pods of a plan for this number of nodes, at least one."""
    return max(1, round(SERVICE_PODS_PER_NODE * nodes))


def service_sizes(pods: int, generator: np.random.Generator) -> list[int]:
    """Return replicas of services, 1 to 4 each, that add up to ``pods``."""
    sizes: list[int] = []
    while sum(sizes) < pods:
        sizes.append(min(int(generator.integers(1, 5)), pods - sum(sizes)))
    return sizes


def peak_rate(generator: np.random.Generator) -> float:
    """Draw the highest rate of a service's pods, requests/s."""
    return float(np.exp(generator.uniform(math.log(PEAK_RATES[0]), math.log(PEAK_RATES[1]))))


def service(
    number: int, replicas: int, rates: Floats, step_seconds: float, generator: np.random.Generator
) -> PlannedService:
    """Return a service with these rates; its limit and memory are drawn."""
    return PlannedService(
        name=f"service-{number:02d}",
        replicas=replicas,
        millicores=SERVICE_MILLICORES,
        memory_bytes=int(generator.integers(2, 7)) * GIBIBYTE,
        limit_milliseconds=float(generator.choice(LIMITS_MILLISECONDS)),
        rates=tuple(np.round(np.clip(rates, RATE_MIN, PEAK_RATES[1]), 1).tolist()),
        rates_step_seconds=step_seconds,
        exclusive=True,
    )


def input_for_seconds(job_type: str, seconds: float, isolated_seconds: LoneSeconds) -> int:
    """Return the input size, a multiple of `INPUT_STEP`, with the isolated run time nearest to ``seconds``.

    The run time is linear in the size, so two sizes determine the line.
    """
    low, high = isolated_seconds(job_type, INPUT_STEP), isolated_seconds(job_type, INPUT_MAX)
    slope = (high - low) / (INPUT_MAX - INPUT_STEP)
    wanted = INPUT_STEP + (seconds - low) / slope if slope > 0 else INPUT_STEP
    return int(np.clip(round(wanted / INPUT_STEP) * INPUT_STEP, INPUT_STEP, INPUT_MAX))


def memory_for(share: float) -> int:
    """Return the memory of a pod that requests a share of a node, in whole GiB from 1 to 4."""
    return int(np.clip(math.ceil(share * NODE_GIBIBYTES), 1, 4)) * GIBIBYTE


def users_estimate(isolated_seconds: float, generator: np.random.Generator) -> float | None:
    """Return a user's request: none in a fifth of the cases, else 1 to 5 times the truth, rounded up to 10 s.

    Chosen after the common finding that users over-estimate several times over.
    """
    draw, factor = generator.random(), 1.0 + 4.0 * generator.beta(1.2, 2.5)
    return None if draw < 0.2 else float(np.ceil(isolated_seconds * factor / 10.0) * 10.0)


def named(jobs: Sequence[PlannedJob]) -> tuple[PlannedJob, ...]:
    """Return the jobs in order of arrival, named ``batch-0001-sort`` and so on."""
    ordered = sorted(jobs, key=lambda job: job.at_seconds)
    return tuple(
        replace(job, name=f"{job.workload_class.value}-{number:04d}-{job.type}")
        for number, job in enumerate(ordered, start=1)
    )
