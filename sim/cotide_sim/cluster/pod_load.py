"""Loads of pods on simulated machines, and their measurements: the inputs and outputs of `machine`.

Made by the fake nodes from annotations and by `world` from a plan; read by the exposition, the scorecard and tests.
Invariant: frozen; times are simulated seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.classes import WorkloadClass


@dataclass(frozen=True, slots=True)
class PodLoad:
    """The load of a pod on a machine.

    Attributes
    ----------
    key : ``namespace/name``.
    cls : online pods serve requests until they are stopped; batch and gratis pods work off their lone seconds.
    millicores, memory_bytes : its request; a batch pod uses just that.
    type, input_bytes : of a job.
    lone_seconds : run time on an idle machine; None: from the interference model, else `machine.DEFAULT_LONE_SECONDS`.
    rates : requests/s of an online pod at each step, linear between, starting again at the end; empty for none.
    rates_step_seconds : length of a step.
    exit_code : of a finite pod.
    rates_origin_seconds : when the first rate holds; None: the park's origin.
    used_millicores : cpu usage of an online pod at each step, with the steps and the origin of its rates, independent
        of its request; empty: by its rates.
    container : name of its (first) container, for metrics.
    latency_factor, rate_factor : factors of the measured latency and requests/s over those of the modelled service: an
        online pod may answer more slowly, with fewer and larger requests.
    """

    key: str
    cls: WorkloadClass
    millicores: int
    memory_bytes: int
    type: str = ""
    input_bytes: int = 0
    isolated_seconds: float | None = None
    rates: tuple[float, ...] = ()
    rates_step_seconds: float = 60.0
    exit_code: int = 0
    rates_origin_seconds: float | None = None
    used_millicores: tuple[float, ...] = ()
    container: str = "main"
    latency_factor: float = 1.0
    rate_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Finished:
    """A finite pod worked off its lone seconds."""

    key: str
    at_seconds: float
    exit_code: int


@dataclass(frozen=True, slots=True)
class ServiceSample:
    """A measurement of one online pod now."""

    key: str
    node: str
    requests_per_second: float
    latency_p95_milliseconds: float


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The usage of a node now; cpu never above its capacity.

    ``online_millicores`` and ``online_memory_bytes`` are the part of its online pods.
    """

    node: str
    cpu_millicores: float
    memory_bytes: int
    online_millicores: float = 0.0
    online_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PodUsage:
    """The usage of one pod now, and its cpu time since its container started, in simulated core-seconds."""

    key: str
    node: str
    container: str
    cpu_millicores: float
    memory_bytes: int
    cpu_core_seconds: float
