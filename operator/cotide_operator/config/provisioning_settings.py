"""The section of the configuration file about capacity: kinds of machines, what they cost, and who switches them.

Part of `settings`; read by `cotide capacity`. Advice is the default: without an ``actuator`` nothing is ever switched.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from cotide_operator.config.section import Section


class MachineTypeSettings(Section):
    """Machines of one kind: nodes whose ``nodeTypeLabel`` has this value."""

    name: str = Field(min_length=1)
    cpu: str
    """Allocatable cpu, as a Kubernetes quantity."""
    memory: str
    count: int = Field(ge=0, le=1_000_000)
    """Machines that there are, on or off."""
    idle_watts: float = Field(default=100.0, ge=0, le=1e6)
    peak_watts: float = Field(default=200.0, ge=0, le=1e6)
    hourly_cost: float = Field(default=0.0, ge=0, le=1e6)
    """Money for an hour powered on, besides energy."""
    switch_cost: float = Field(default=0.0, ge=0, le=1e6)
    boot_seconds: float = Field(default=120.0, ge=0, le=86_400)
    minimum_up_seconds: float = Field(default=600.0, ge=0, le=86_400)

    @model_validator(mode="after")
    def _rises(self) -> MachineTypeSettings:
        if self.peak_watts < self.idle_watts:
            raise ValueError("peakWatts must not be below idleWatts")
        return self


class ActuatorSettings(Section):
    """Who switches nodes: a command, a webhook, or the scale subresources of what makes nodes."""

    command: tuple[str, ...] = ()
    url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    scales: Mapping[str, str] = Field(default_factory=dict)
    """Machine type to the API path of an object with a scale subresource."""
    timeout_seconds: float = Field(default=30.0, gt=0, le=600)

    @model_validator(mode="after")
    def _one(self) -> ActuatorSettings:
        if sum(map(bool, (self.command, self.url, self.scales))) != 1:
            raise ValueError("name exactly one of command, url and scales")
        return self


class ProvisioningSettings(Section):
    """How many machines of which kind are on, planned by model predictive control."""

    node_type_label: str = Field(default="node.kubernetes.io/instance-type", min_length=1)
    machine_types: tuple[MachineTypeSettings, ...] = Field(min_length=1, max_length=1000)
    step_seconds: float = Field(default=300.0, ge=10, le=86_400)
    horizon_steps: int = Field(default=12, ge=1, le=288)
    service_level: float = Field(default=0.75, gt=0, lt=1)
    """Chosen: as in the capacity experiment (docs/capacity.md has what others cost)."""
    price_per_kilowatt_hour: float = Field(default=0.1, ge=-100, le=1e6)
    run_seconds: float = Field(default=3600.0, gt=0)
    """How long a pod is thought to run where no history tells; chosen."""
    boot_deadline_seconds: float = Field(default=900.0, gt=0)
    """After it an order of a node is cancelled, and replaced once the actuator says that it is gone; chosen."""
    actuator: ActuatorSettings | None = None

    @model_validator(mode="after")
    def _names_differ(self) -> ProvisioningSettings:
        names = [machine.name for machine in self.machine_types]
        if len(set(names)) != len(names):
            raise ValueError("machineTypes must have different names")
        if self.actuator is not None:
            for name in self.actuator.scales:
                if name not in names:
                    raise ValueError(f"actuator.scales names {name!r}, which is none of machineTypes")
        return self
