"""The section of the configuration file about capacity: machine types, their costs, and their actuator.

Part of `settings`; read by `cotide capacity` and by the operator. Advice is the default: no machine is switched without
an ``actuator`` and ``mode: act`` (the operator) or ``--apply`` (the command).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from cotide_core.errors import InputError
from cotide_core.limits import MAX_CARBON, MAX_PRICE, PRICE_LEAST, QUERY_CHARACTERS
from cotide_core.units import resource_amount
from cotide_operator.config.section import Section

API_PATH: Final = r"^(/api/v1|/apis/[^/\s]+/[^/\s]+)(/namespaces/[^/\s]+)?/[^/\s]+/[^/\s]+$"
"""Path of one object, without the subresource."""

MACHINE_DEPLOYMENT: Final = re.compile(
    r"(?P<group>/apis/cluster\.x-k8s\.io/[^/\s]+)/namespaces/(?P<namespace>[^/\s]+)/machinedeployments/(?P<name>[^/\s]+)"
)
"""Path of a MachineDeployment of Cluster API, which can remove one named replica."""


class MachineTypeSettings(Section):
    """Machines of one kind: nodes with this value of ``nodeTypeLabel``."""

    name: str = Field(min_length=1)
    """Value of the label ``nodeTypeLabel``."""
    cpu: str
    """Allocatable cpu, as a Kubernetes quantity."""
    memory: str
    """Allocatable memory, as a Kubernetes quantity."""
    count: int = Field(ge=0, le=1_000_000)
    """Number of existing machines, on or off."""
    minimum_on: int = Field(default=0, ge=0, le=1_000_000)
    """Machines that stay on regardless of the plan."""
    idle_watts: float = Field(default=100.0, ge=0, le=1e6)
    """Power of an idle machine."""
    peak_watts: float = Field(default=200.0, ge=0, le=1e6)
    """Power at full load."""
    hourly_cost: float = Field(default=0.0, ge=0, le=1e6)
    """Money for an hour powered on, without energy."""
    switch_cost: float = Field(default=0.0, ge=0, le=1e6)
    """Money for switching a machine on."""
    boot_seconds: float = Field(default=120.0, ge=0, le=86_400)
    """Time until a machine takes pods."""
    minimum_up_seconds: float = Field(default=600.0, ge=0, le=86_400)
    """Time for which a machine stays on."""

    @field_validator("cpu", "memory")
    @classmethod
    def _is_amount(cls, text: str, info: ValidationInfo) -> str:
        try:
            amount = resource_amount(str(info.field_name), text)
        except InputError as error:
            raise ValueError(error.message) from error
        if amount <= 0:
            raise ValueError(f"{text!r} is no amount: a machine without resources takes no pod")
        return text

    @model_validator(mode="after")
    def _rises(self) -> MachineTypeSettings:
        if self.peak_watts < self.idle_watts:
            raise ValueError("peakWatts must not be below idleWatts")
        if self.minimum_on > self.count:
            raise ValueError("minimumOn must not be above count")
        return self


class ActuatorSettings(Section):
    """The actuator that switches nodes: a command, a webhook, or the scale subresources of node groups."""

    command: tuple[str, ...] = ()
    """Command of the actuator with its arguments."""
    url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """Webhook of the actuator."""
    scales: Mapping[str, Annotated[str, Field(pattern=API_PATH)]] = Field(default_factory=dict)
    """Machine type to the API path of an object with a scale subresource."""
    scales_down: bool = False
    """Whether Machines of free nodes are deleted; for MachineDeployments of Cluster API."""
    timeout_seconds: float = Field(default=30.0, gt=0, le=600)
    """Wall seconds for one answer."""
    ask_again_seconds: float = Field(default=30.0, ge=1, le=3600)
    """Wall seconds after which the operator repeats an unanswered request; chosen."""
    retry_seconds: float = Field(default=120.0, ge=1, le=86_400)
    """Seconds without orders of a machine type after a boot that failed or was late, doubled each time; chosen."""

    @model_validator(mode="after")
    def _one(self) -> ActuatorSettings:
        if sum(map(bool, (self.command, self.url, self.scales))) != 1:
            raise ValueError("name exactly one of command, url and scales")
        if self.scales_down:
            if not self.scales:
                raise ValueError("scalesDown needs scales")
            if len(set(self.scales.values())) < len(self.scales):
                raise ValueError("scalesDown: two machine types name one MachineDeployment")
            for kind, path in self.scales.items():
                if MACHINE_DEPLOYMENT.fullmatch(path) is None:
                    raise ValueError(f"scalesDown: {path} of {kind} is no MachineDeployment of cluster.x-k8s.io")
        return self


class EnergyPriceSettings(Section):
    """The source of the price and carbon of energy while the operator runs: a file, or the Prometheus of
    metricsSource."""

    file: Path | None = None
    """CSV with the columns time, price_per_kilowatt_hour and carbon_grams_per_kilowatt_hour; future hours count."""
    price_query: str = Field(default="", max_length=QUERY_CHARACTERS)
    """PromQL for the money of a kilowatt-hour."""
    carbon_query: str = Field(default="", max_length=QUERY_CHARACTERS)
    """PromQL for the grams of a kilowatt-hour."""
    interval_seconds: float = Field(default=300.0, ge=1, le=86_400)
    """Wall seconds between two readings; chosen: markets trade quarters of an hour."""
    stale_after_seconds: float = Field(default=3600.0, ge=1, le=1e7)
    """Wall seconds after which values without a new reading are reported as old; they stay in use. Chosen."""

    @model_validator(mode="after")
    def _one_source(self) -> EnergyPriceSettings:
        if (self.file is None) == (not (self.price_query or self.carbon_query)):
            raise ValueError("name either a file, or priceQuery or carbonQuery or both")
        if self.stale_after_seconds < self.interval_seconds:
            raise ValueError("staleAfterSeconds must not be below intervalSeconds: every value would be old")
        return self


class ProvisioningSettings(Section):
    """Number of machines of each type that are on, planned by model predictive control."""

    mode: Literal["advice", "dryRun", "act"] = "advice"
    """What the operator does: show the plan, also show the orders, or send the orders."""
    interval_seconds: float = Field(default=60.0, ge=1, le=86_400)
    """Seconds between two plans of the operator."""
    plan_timeout_seconds: float = Field(default=30.0, gt=0, le=600)
    """Wall seconds for one plan of the operator; after them the last good one stays."""
    node_type_label: str = Field(default="node.kubernetes.io/instance-type", min_length=1)
    """Label of nodes with the name of their machine type."""
    machine_types: tuple[MachineTypeSettings, ...] = Field(min_length=1, max_length=1000)
    step_seconds: float = Field(default=300.0, ge=10, le=86_400)
    """Length of a step of the plan."""
    horizon_steps: int = Field(default=12, ge=1, le=288)
    """Steps that are planned ahead."""
    service_level: float = Field(default=0.25, gt=0, lt=1)
    """Share of the quantile of demand that a plan serves (chosen: docs/results/capacity.json has the cost of others).
    Online pods have their own."""
    scale_down_stabilization_seconds: float = Field(default=0.0, ge=0, le=3600)
    """Window in which a type keeps as many machines as any plan wanted (docs/results/capacity.json)."""
    price_per_kilowatt_hour: float = Field(default=0.1, ge=PRICE_LEAST, le=MAX_PRICE)
    """Money for a kilowatt-hour."""
    carbon_grams_per_kilowatt_hour: float = Field(default=0.0, ge=0, le=MAX_CARBON)
    """Carbon of a kilowatt-hour."""
    carbon_price_per_tonne: float = Field(default=0.0, ge=0, le=1e6)
    """Money, added to the price of energy; 0 counts carbon without a price."""
    energy_prices: EnergyPriceSettings | None = None
    """Replaces the two constants once it was read."""
    run_seconds: float = Field(default=3600.0, gt=0)
    """Assumed run time of a pod without history; chosen."""
    boot_deadline_seconds: float = Field(default=900.0, gt=0)
    """Seconds after which the order of a node is cancelled, and replaced once the actuator reports its end; chosen."""
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
        if self.mode != "advice" and self.actuator is None:
            raise ValueError(f"mode {self.mode} needs an actuator to switch nodes")
        return self

    @property
    def energy_price(self) -> float:
        """Return the money for a kWh, including carbon if it has a price."""
        return self.price_per_kilowatt_hour + self.carbon_grams_per_kilowatt_hour * self.carbon_price_per_tonne / 1e6
