"""Services with a measured use of cpu below their requests: the scenario with slack to offer, and to overdraw.

Called by the demo and by `comparison` in place of a plan's own services. The jobs and their arrivals stay unchanged.
The plan of the latency scenario has few services that never use half of their requests. Here services request about
half of the cluster. They use less than that on average and more for moments, as series of real machines do.

- The course of each pod's cpu is a window of a series: Azure's 70 virtual machines (mean of five minutes) with a data
  directory, else the generated series of the forecast experiment.
- A pod's request is the Vertical Pod Autoscaler's recommendation after the day before the window: the 90th percentile
  of that day plus 15 %. On Azure's machines use is then above the request in 5 % of the slots. In more than half of all
  windows of three hours it is above at least once.
- Kubernetes lets a pod exceed its request while its node has room. Its limit is `LIMIT_FACTOR` times its request.

Invariant: pure except for the file; same arguments, same services. The pods of a service use the same, as behind a load
balancer, so their bursts come together.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_sim.traces.load.load_series import SLOT_SECONDS, LoadSeries
from cotide_sim.traces.load.vm_load import read_azure_cpu
from cotide_sim.workloads import sizing
from cotide_sim.workloads.generated_load import DAY_SLOTS, generated_load
from cotide_sim.workloads.plan import Plan, PlannedService
from cotide_sim.workloads.traced import COMPRESSION

STEP_SECONDS: Final = SLOT_SECONDS / COMPRESSION
"""A slot of the series in a run, at the compression of all traces: 25 s."""
SERVICE_PODS_PER_NODE: Final = 2.0
"""Chosen with `REQUESTS`: services request 44 % of the cluster."""
REQUESTS: Final = (1000, 1500, 2000, 2500)
"""Millicores of a pod's request, drawn evenly; chosen. The series is scaled so that the recommendation equals it."""
PERCENTILE: Final = 90.0
MARGIN: Final = 1.15
"""The Vertical Pod Autoscaler's recommendation for cpu: ``--target-cpu-percentile`` 0.9 and
``--recommendation-margin-fraction`` 0.15, its defaults
(https://github.com/kubernetes/autoscaler/blob/master/vertical-pod-autoscaler/docs/flags.md)."""
LIMIT_FACTOR: Final = 2.0
"""Chosen. Higher bursts are cut; that concerns a tenth of Azure's windows."""
BUSY_SHARE: Final = 0.05
"""Least 90th percentile of a drawn series, as a share of its machine. A lower one is not a service under load: scaled
to a core or two, it would be mostly noise (chosen).
"""

GAPS_MAX: Final = 0.1
"""A window with a larger share of missing slots is not taken; smaller gaps are filled linearly (chosen)."""
TRIES: Final = 1000


def with_measured_services(plan: Plan, seed: int, nodes: int, data: Path | None) -> Plan:
    """Return the plan with this module's services in place of its own.

    Raises
    ------
    InputError
        When the data directory lacks the series, or they are broken.
    """
    generator = np.random.default_rng([seed, 5])
    steps = math.ceil(plan.duration_seconds / STEP_SECONDS) + 1
    pods = max(1, round(SERVICE_PODS_PER_NODE * nodes))
    sizes = sizing.service_sizes(pods, generator)
    if data is None:
        # One series for each service, after a day of history; idle hosts, a fifth of them, are not drawn.
        series = generated_load(seed, hosts=2 * len(sizes) + 10, slots=DAY_SLOTS + steps)
    else:
        series = read_azure_cpu(data, "avg")
    services = tuple(_service(number, replicas, series, steps, generator) for number, replicas in enumerate(sizes))
    return replace(plan, services=services)


def _service(
    number: int, replicas: int, series: LoadSeries, steps: int, generator: np.random.Generator
) -> PlannedService:
    before, window, recommended = _window(series, steps, generator)
    millicores = int(generator.choice(REQUESTS))
    used = np.minimum(window * millicores / recommended, LIMIT_FACTOR * millicores)
    used_before = np.minimum(before * millicores / recommended, LIMIT_FACTOR * millicores)
    rate_of_use = sizing.peak_rate(generator) / max(1e-9, float(used.max()))
    rates = used * rate_of_use
    usual = sizing.service(number, replicas, rates, STEP_SECONDS, generator)
    return replace(
        usual,
        millicores=millicores,
        exclusive=False,
        used_millicores=tuple(np.round(used, 1).tolist()),
        rates_before=tuple(np.round(np.maximum(sizing.RATE_MIN, used_before * rate_of_use), 1).tolist()),
    )


def _window(series: LoadSeries, steps: int, generator: np.random.Generator) -> tuple[Floats, Floats, float]:
    """Return the day before a window of a busy series, the window, both without gaps, and the request recommended by
    the day.
    """
    hosts, slots = series.load.shape
    steps_there = min(steps, slots - DAY_SLOTS)
    for _ in range(TRIES):
        row = series.load[int(generator.integers(hosts))]
        start = int(generator.integers(DAY_SLOTS, slots - steps_there + 1))
        before, window = row[start - DAY_SLOTS : start], row[start : start + steps_there]
        if np.isnan(before).mean() > GAPS_MAX or np.isnan(window).mean() > GAPS_MAX:
            continue
        usual = float(np.nanpercentile(before, PERCENTILE))
        if usual >= BUSY_SHARE:
            return _filled(before, DAY_SLOTS), _filled(window, steps), MARGIN * usual
    raise InputError("holds no series with a day of history that is busy enough to be a service", file=series.name)


def _filled(values: Floats, steps: int) -> Floats:
    """Return the given number of values; missing ones are filled linearly."""
    known = np.flatnonzero(np.isfinite(values))
    return np.interp(np.arange(steps), known, values[known])
