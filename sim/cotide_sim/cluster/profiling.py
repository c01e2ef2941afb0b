"""A profiling campaign: random mixes run on one fake node, are measured, and become training samples.

Called by the demo and by experiments before a run, as an operator of a real cluster would profile job types before they
share nodes. First step of the models' flow: physics to samples. Invariant: same arguments, same samples. The models see
the data of a metrics system (rates, requests, types, sizes, noisy latencies), never the physics.

With measured tables, `measured_rows` adds their rows for the same situation. The grid's job never left the service's
core, like batch pods that request all of their node, so those rows count with a pressure of 1. Rows of the antagonist
and PARSEC tables stay out: they come from a slower machine, where a rate means another load.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_sim.cluster.machine import MachinePark, PodLoad
from cotide_sim.interference.model import Interference
from cotide_sim.traces.colocation import tables as colocation
from cotide_sim.workloads import sizing

NODE_MILLICORES: Final = 8000
RATES: Final = (1_000.0, 150_000.0)
"""Range of requests/s, log-uniform in one half of the trials and uniform in the other; chosen around the plans' rates,
up to four fifths of a core's saturation.
"""
NEIGHBOUR_SHARE: Final = 0.1
"""Share of trials with a second service on the node."""
EMPTY_SHARE: Final = 0.08
"""Share of trials without any job."""
MEASUREMENT_NOISE: Final = 0.1
"""Standard deviation of the log of a measured p95; chosen, below the grid's (a repeat differs by 10-38 %), since a
trial can be arbitrarily long.
"""
INPUT_BYTES: Final = (0.25e9, 64e9)


def profile(
    interference: Interference, seed: int, *, qos_trials: int = 4000, completion_trials: int = 1500
) -> tuple[QosSamples, CompletionSamples]:
    """Run random mixes and measure them.

    Parameters
    ----------
    interference : the physics in force.
    seed : of all draws.
    qos_trials, completion_trials : number of samples of each kind.
    """
    first, second = np.random.SeedSequence(seed).spawn(2)
    qos = _latencies(interference, np.random.default_rng(first), qos_trials)
    return qos, _run_times(interference, np.random.default_rng(second), completion_trials)


def measured_rows(directory: Path) -> tuple[QosSamples, CompletionSamples]:
    """Return the measured grid as samples of full nodes, and its lone run times.

    Raises
    ------
    InputError
        When a table is missing or broken.
    """
    qos = colocation.qos_samples(directory, "grid")
    full = replace(qos.mixes, cpu_pressure=np.minimum(1.0, qos.mixes.counts.sum(axis=1)))
    runs = colocation.completion_samples(directory, "grid")
    lone = np.flatnonzero(runs.requests_per_second == 0.0)
    return replace(qos, mixes=full), CompletionSamples(
        types=tuple(runs.types[row] for row in lone),
        input_bytes=runs.input_bytes[lone],
        requests_per_second=runs.requests_per_second[lone],
        cpu_pressure=np.full(len(lone), 1000.0 / NODE_MILLICORES),
        seconds=runs.seconds[lone],
    )


def with_measured_rows(
    samples: tuple[QosSamples, CompletionSamples], directory: Path
) -> tuple[QosSamples, CompletionSamples]:
    """Return the samples of a campaign followed by the measured rows."""
    (qos, runs), (measured_qos, measured_runs) = samples, measured_rows(directory)
    return colocation.concatenate_qos((qos, measured_qos)), CompletionSamples(
        types=(*runs.types, *measured_runs.types),
        input_bytes=np.concatenate((runs.input_bytes, measured_runs.input_bytes)),
        requests_per_second=np.concatenate((runs.requests_per_second, measured_runs.requests_per_second)),
        cpu_pressure=np.concatenate((runs.cpu_pressure, measured_runs.cpu_pressure)),
        seconds=np.concatenate((runs.seconds, measured_runs.seconds)),
    )


def _latencies(interference: Interference, generator: np.random.Generator, trials: int) -> QosSamples:
    types = sizing.JOB_TYPES
    counts, sizes = np.zeros((2, trials, len(types)))
    pressure, others = np.zeros((2, trials))
    rates = np.where(
        np.arange(trials) % 2 == 0,
        np.exp(generator.uniform(np.log(RATES[0]), np.log(RATES[1]), trials)),
        generator.uniform(RATES[0], RATES[1], trials),
    )
    for trial in range(trials):
        if generator.random() < NEIGHBOUR_SHARE:
            others[trial] = np.exp(generator.uniform(*np.log(RATES)))
        if generator.random() < EMPTY_SHARE:
            continue
        room = generator.uniform(0.05, 1.0) * NODE_MILLICORES
        used = 0
        while True:
            millicores = _millicores(generator)
            if used and used + millicores > room:
                break
            used += millicores
            column = int(generator.integers(len(types)))
            counts[trial, column] += 1
            sizes[trial, column] += _input_bytes(generator)
        pressure[trial] = min(1.0, used / NODE_MILLICORES)
    limits = generator.choice(sizing.LIMITS_MILLISECONDS, trials)
    mixes = MixBatch(rates, others, limits, pressure, types, counts, sizes)
    noise = np.exp(MEASUREMENT_NOISE * generator.standard_normal(trials))
    return QosSamples(mixes, interference.p95_milliseconds(mixes) * noise)


def _run_times(interference: Interference, generator: np.random.Generator, trials: int) -> CompletionSamples:
    """Run one job a trial to its end, next to a service of constant rate and other endless jobs."""
    types = []
    sizes, rates, pressure, seconds = np.zeros((4, trials))
    for trial in range(trials):
        park = MachinePark(interference)
        park.add_node("node", NODE_MILLICORES, 0)
        if generator.random() < 0.7:
            rates[trial] = np.exp(generator.uniform(*np.log(RATES)))
            park.start_pod("node", PodLoad("service", WorkloadClass.ONLINE, 2000, 0, rates=(rates[trial],)), 0.0)
        name = sizing.JOB_TYPES[trial % len(sizing.JOB_TYPES)]
        used = millicores = _millicores(generator)
        room = generator.uniform(0.0, 1.0) * NODE_MILLICORES
        while used < room:
            neighbour = _millicores(generator)
            if used + neighbour > NODE_MILLICORES:
                break
            other = str(generator.choice(sizing.JOB_TYPES))
            park.start_pod(
                "node",
                PodLoad(f"other-{used}", WorkloadClass.BATCH, neighbour, 0, type=other, isolated_seconds=1e9),
                0.0,
            )
            used += neighbour
        sizes[trial] = _input_bytes(generator)
        job = PodLoad("job", WorkloadClass.BATCH, millicores, 0, type=name, input_bytes=int(sizes[trial]))
        park.start_pod("node", job, 0.0)
        # The job is the only one that ends before long; nothing else changes, so its projected finish is its finish.
        finish = park.next_finish()
        assert finish is not None  # noqa: S101 - the job was started just now
        seconds[trial] = finish
        types.append(name)
        pressure[trial] = used / NODE_MILLICORES
    return CompletionSamples(tuple(types), sizes, rates, pressure, seconds)


def _millicores(generator: np.random.Generator) -> int:
    return int(generator.choice((500, 1000, 2000, 3000, 4000)))


def _input_bytes(generator: np.random.Generator) -> int:
    return int(np.exp(generator.uniform(*np.log(INPUT_BYTES))))
