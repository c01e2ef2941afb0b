"""Sizes that both kinds of plan share: services by node count, jobs by target run time, users' estimates.

Called by `generated` and `traced`. Invariant: pure; a job's lone seconds are always what the interference model in
force says for its type and input, so that a completion predictor can learn them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cotide_core.forecasts import Floats
from cotide_sim.workloads.plan import PlannedJob

JOB_TYPES: Final = ("aggregate", "grep", "join", "md5", "sample", "select", "sort", "wordcount")
"""The eight jobs of the measured grid."""
NODE_CORES: Final = 8
"""Cores of a node that the load is counted by (the demo's default node)."""
GIBIBYTE: Final = 1 << 30
INPUT_STEP: Final = 250_000_000
"""Inputs are whole multiples of this; chosen, as file systems hand out blocks, and so that like jobs recur."""
INPUT_MAX: Final = 64_000_000_000
"""No input is larger; chosen, four times the largest of seed 003's experiments (2 to 16 GB)."""
LIMITS_MILLISECONDS: Final = (1.0, 2.0, 3.0, 5.0)
"""The p95 limits that services promise; chosen below the default 10 ms of seed 003, since the measured service answers
in 0.05 to 0.2 ms alone and passes 10 ms only beside jobs near its saturation."""

LoneSeconds = Callable[[str, int], float]


def input_for_seconds(job_type: str, seconds: float, lone_seconds: LoneSeconds) -> int:
    """Return the input size, a multiple of `INPUT_STEP`, whose lone run time is nearest to ``seconds``.

    The run time is linear in the size, so two sizes tell the line.
    """
    low, high = lone_seconds(job_type, INPUT_STEP), lone_seconds(job_type, INPUT_MAX)
    slope = (high - low) / (INPUT_MAX - INPUT_STEP)
    wanted = INPUT_STEP + (seconds - low) / slope if slope > 0 else INPUT_STEP
    return int(np.clip(round(wanted / INPUT_STEP) * INPUT_STEP, INPUT_STEP, INPUT_MAX))


def users_estimate(lone_seconds: float, generator: np.random.Generator) -> float | None:
    """Return what a user would request: none in a fifth of the cases, else 1 to 5 times the truth, rounded up to 10 s.

    Chosen after the common finding that users over-estimate several times over.
    """
    draw, factor = generator.random(), 1.0 + 4.0 * generator.beta(1.2, 2.5)
    return None if draw < 0.2 else float(np.ceil(lone_seconds * factor / 10.0) * 10.0)


def service_sizes(pods: int, generator: np.random.Generator) -> list[int]:
    """Return replicas of services, 1 to 4 each, that add up to ``pods``."""
    sizes: list[int] = []
    while sum(sizes) < pods:
        sizes.append(min(int(generator.integers(1, 5)), pods - sum(sizes)))
    return sizes


def smooth(values: Floats, width: int) -> Floats:
    """Return the centred moving average over ``width`` values, ends repeated."""
    if width <= 1:
        return values
    padded = np.pad(values, (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.full(width, 1.0 / width), mode="valid")


def named(jobs: Sequence[PlannedJob]) -> tuple[PlannedJob, ...]:
    """Return the jobs in order of arrival, named ``batch-0001-sort`` and so on."""
    ordered = sorted(jobs, key=lambda job: job.at_seconds)
    return tuple(
        replace(job, name=f"{job.workload_class.value}-{number:04d}-{job.type}")
        for number, job in enumerate(ordered, start=1)
    )
