"""One simulated machine: its pods, the sum of their requests, and the division of its cpu.

Called by `machine`, which moves all machines through time and defines the formula of the letters here. Invariant: the
sums over jobs and services are those of the present pods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from cotide_sim.cluster.pod_load import PodLoad
from cotide_sim.workloads.rates import Course

BATCH_FLOOR: Final = 0.05
"""Share of a node that its services cannot take from batch pods, at any rate; chosen (a scheduler never starves a
runnable process outright).
"""


@dataclass(slots=True)
class Running:
    """A finite pod and the work it has left."""

    load: PodLoad
    node: str
    remaining: float
    speed: float = 0.0
    core_seconds: float = 0.0


@dataclass(slots=True)
class Serving:
    """An online pod and the course of its load."""

    load: PodLoad
    rate: Course
    cpu: Course | None
    """Millicores; None: by its rate."""
    origin: float
    core_seconds: float = 0.0

    @property
    def changes(self) -> bool:
        """Whether its load changes with time."""
        return len(self.load.rates) > 1 or len(self.load.used_millicores) > 1


@dataclass(slots=True)
class Machine:
    """A machine since its last change, at ``at``."""

    name: str
    millicores: int
    memory_bytes: int
    at: float
    jobs: dict[str, Running] = field(default_factory=dict)
    services: dict[str, Serving] = field(default_factory=dict)
    version: int = 0
    next_finish: float = math.inf
    given: float = 1.0
    """g of the module's formula, since the last change."""
    kept: float = 1.0
    """h of the module's formula."""
    batch_millicores: int = 0
    """Requested by the jobs."""
    batch_memory_bytes: int = 0
    service_memory_bytes: int = 0
    """Requested by the services."""
    load_at: float = math.nan
    """When ``load`` was computed; nan when the services changed since."""
    load: tuple[float, float] = (0.0, 0.0)
    """Cores that the services could use, and their requests/s."""
    changing_services: int = 0
    """Services with a load that changes with time."""

    @property
    def has_changing_speeds(self) -> bool:
        """Whether jobs run next to a service with a load that changes with time."""
        return self.changing_services > 0 and bool(self.jobs)

    def add_service(self, service: Serving) -> None:
        """Take an online pod in."""
        self.services[service.load.key] = service
        self.changing_services += service.changes
        self.service_memory_bytes += service.load.memory_bytes
        self.load_at = math.nan

    def remove_service(self, key: str) -> None:
        """Remove an online pod."""
        service = self.services.pop(key)
        self.service_memory_bytes -= service.load.memory_bytes
        self.changing_services -= service.changes
        self.load_at = math.nan

    def add_job(self, run: Running) -> None:
        """Take a finite pod in."""
        self.jobs[run.load.key] = run
        self.batch_millicores += run.load.millicores
        self.batch_memory_bytes += run.load.memory_bytes

    def remove_job(self, key: str) -> Running:
        """Remove a finite pod."""
        run = self.jobs.pop(key)
        self.batch_millicores -= run.load.millicores
        self.batch_memory_bytes -= run.load.memory_bytes
        return run


def shares(machine: Machine, served: float) -> tuple[float, float]:
    """Return (g, h) of the module's formula, for ``served`` millicores that the services could use."""
    capacity, batch = float(machine.millicores), float(machine.batch_millicores)
    given = min(1.0, max(BATCH_FLOOR * capacity, capacity - served) / max(1.0, batch))
    return given, min(1.0, (capacity - given * batch) / max(1.0, served))
