"""A log of SYNTH1 or SYNTH2 jobs that arrive over time, for sweeps without a trace.

Called by `cell_run` in a worker and by `plan` for the generator's fingerprint. Pure. Invariant: the same arguments give
the same log.

The distributions of sizes and demands are those of seed 002, section 3.4.1, with one unit of size as one second on one
machine of 200 CPU units. The paper submits all at once; here jobs arrive as a Poisson process whose rate makes the
expected work per second ``load`` of the machine (chosen), and ask for more time than they need.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_sim.traces.batch_jobs import BatchJobs
from cotide_sim.workloads.synthetic import Synthetic, synthetic_jobs

USERS: Final = 20
"""Jobs are handed out evenly at random to so many users; chosen."""
OVERESTIMATE_MAX: Final = 5.0
"""A request is the run time times a number drawn evenly from 1 to this; chosen."""


def generated_log(name: str, kind: Synthetic, count: int, load: float, seed: int) -> BatchJobs:
    """Return ``count`` jobs, >= 1; ``load`` > 0, above 1 the queue grows without end."""
    drawn = synthetic_jobs(kind, count, seed)
    run, demand, capacity = drawn.sizes, drawn.demands, drawn.capacity
    generator = np.random.default_rng([seed, count, 1])
    gap = float((run * demand).mean()) / (capacity * load)
    submit = np.floor(np.cumsum(generator.exponential(gap, count))).astype(np.int64)
    request = np.ceil(run * generator.uniform(1.0, OVERESTIMATE_MAX, count)).astype(np.int64)
    user = generator.integers(0, USERS, count, dtype=np.int64)
    numbers = np.arange(1, count + 1, dtype=np.int64)
    return BatchJobs(name, capacity, numbers, submit, run, demand, request, user)
