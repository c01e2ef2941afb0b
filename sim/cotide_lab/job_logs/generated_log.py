"""A log of generated jobs that arrive over time, for replays without a trace: SYNTH1, SYNTH2, Lublin and Feitelson's.

Called by `cotide simulate`, and by `cotide sweep` in workers and for a generator's fingerprint. Pure. Invariant: the
same arguments give the same log.

SYNTH1 and SYNTH2 are of Naghshnejad 2019, section 3.4.1, with one unit of size as one second on one machine of 200 CPU
units. The paper submits all at once. Here jobs arrive as a Poisson process, with a rate that makes the expected work
per second ``load`` of the machine (chosen). The model of Lublin and Feitelson has arrivals of its own (see `lublin`).
Neither has users or estimates: jobs belong to users at random and request more time than they need.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from cotide_core.errors import InputError
from cotide_lab.job_logs.lublin import PROCESSORS, lublin_jobs
from cotide_lab.job_logs.synthetic import CAPACITY, synthetic_jobs
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf_cleaning import MAX_PROCESSORS

Generator = Literal["synth1", "synth2", "lublin"]
GENERATORS: Final[tuple[Generator, ...]] = ("synth1", "synth2", "lublin")

DEFAULT_LOAD: Final = 0.9
"""Default load of SYNTH1 and SYNTH2; chosen."""
LOAD_LEAST: Final = 1e-4
MAX_LOAD: Final = 10.0
"""Range of loads; chosen. On an emptier machine no job ever waits, and times exceed the countable range."""
MAX_JOBS: Final = 10_000_000
"""Jobs of one log, which is held in memory as a whole: 0.1 KB each, many times that during a replay; chosen."""
USERS: Final = 20
"""Number of users; jobs are assigned to them evenly at random; chosen."""
OVERESTIMATE_MAX: Final = 5.0
"""A request is the run time times a number drawn evenly from 1 to this; chosen."""


def generated_log(
    name: str, kind: Generator, count: int, load: float | None, seed: int, *, processors: int | None = None
) -> BatchJobs:
    """Return ``count`` jobs, from 1 to `MAX_JOBS`.

    Parameters
    ----------
    load : from `LOAD_LEAST` to `MAX_LOAD`, above 1 the queue grows without end; None for the generator's own.
    processors : of the machine; None for the generator's own.

    Raises
    ------
    InputError
        When the count or the load is out of range, or the machine too small for the generator's jobs or beyond
        `MAX_PROCESSORS`.
    """
    if count > MAX_JOBS:
        raise InputError(f"{count:,} are more than {MAX_JOBS:,} jobs", field="--jobs")
    if load is not None and not LOAD_LEAST <= load <= MAX_LOAD:
        raise InputError(
            f"{load} is not a share of a machine; give a value between {LOAD_LEAST:g} and {MAX_LOAD:g}", field="--load"
        )
    if processors is not None and processors > MAX_PROCESSORS:
        raise InputError(f"{processors:,} are beyond {MAX_PROCESSORS:,}", field="--processors")
    if kind == "lublin":
        capacity = processors or PROCESSORS
        if capacity < 2:  # the model's parallel jobs have two processors and more
            raise InputError("the Lublin-Feitelson model needs 2 processors or more", field="--processors")
        made = lublin_jobs(count, capacity, seed, load)
        submit, run, demand = made.submit, made.run, made.demand
        generator = np.random.default_rng([seed, count, 1])
    else:
        capacity = processors or CAPACITY
        if capacity < CAPACITY:
            raise InputError(f"jobs of {kind} request up to {CAPACITY} processors", field="--processors")
        drawn = synthetic_jobs(kind, count, seed)
        run, demand = drawn.sizes, drawn.demands
        generator = np.random.default_rng([seed, count, 1])
        gap = float((run * demand).mean()) / (capacity * (DEFAULT_LOAD if load is None else load))
        submit = np.floor(np.cumsum(generator.exponential(gap, count))).astype(np.int64)
    request = np.ceil(run * generator.uniform(1.0, OVERESTIMATE_MAX, count)).astype(np.int64)
    user = generator.integers(0, USERS, count, dtype=np.int64)
    numbers = np.arange(1, count + 1, dtype=np.int64)
    return BatchJobs(name, capacity, numbers, submit, run, demand, request, user)


def described(kind: Generator, processors: int, load: float | None) -> str:
    """Return the origin of a generator's jobs, in one line."""
    arrivals = "arrivals of the model" if kind == "lublin" else "Poisson arrivals"
    if kind != "lublin" or load is not None:
        arrivals += f" at a load of {DEFAULT_LOAD if load is None else load:g}"
    return f"{kind} on {processors} processors, {arrivals}, requests to {OVERESTIMATE_MAX:g} x, {USERS} users"
