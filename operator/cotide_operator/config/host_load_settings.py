"""The sections of the configuration file about predicted slack: forecasts, what is published, and who gets it.

Part of `settings`; read by the assembly and by what it starts. Seconds are of the operator's clock unless a field says
wall seconds: what waits for a network, a kubelet or a person does not go faster because a clock does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from cotide_core.config import HierarchicalConfig
from cotide_operator.config.section import Section

_ENGINE: Final = HierarchicalConfig()
"""The engine's own defaults are ours; each is justified there."""
QUANTILES: Final = (0.5, 0.9, 0.99)
"""Those that the forecasters give and are scored on."""
RATE_QUANTILES: Final = (0.5, 0.6, 0.75, 0.9)
"""Those that rate forecasts give; a test holds them to the forecaster's."""
_LABEL: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""A DNS label (RFC 1123), as Kubernetes asks of the names of services and namespaces."""


class HostLoadSettings(Section):
    """How the load of each node is forecast."""

    enabled: bool | None = None
    """None: on when the policy goes by slack (``hierarchical``, ``predictive``) or reclaimed capacity is published."""
    quantile: float = 0.9
    """The quantile of the coming slot's peak that is planned with; chosen: overloads are rare, and no tenth of the node
    is given away for the last one (docs/host-load.md has what each costs)."""
    predictor: Literal["mixture", "sigma-percentile"] = "mixture"
    """What forecasts the usage of online pods: our mixture of experts, or the larger of mean + N standard deviations
    and a percentile with a half-life of a day (docs/host-load.md has both on the same series)."""
    challenger: Literal["mixture", "sigma-percentile"] | None = None
    """Forecasts in shadow, and takes over after a day of slots over which it was better beyond noise; None: nobody.
    Costs what a predictor costs."""
    history_seconds: float = Field(default=86_400.0, gt=0)
    """How far back usage is asked for after a restart; a day holds a service's daily rhythm."""
    refit_seconds: float = Field(default=21_600.0, gt=0)
    """Between two fits of the ARMA models, in worker processes; chosen: parameters drift slowly, records count
    at once."""

    @field_validator("quantile")
    @classmethod
    def _is_given(cls, value: float) -> float:
        if value not in QUANTILES:
            raise ValueError(f"must be one of {', '.join(f'{quantile:g}' for quantile in QUANTILES)}")
        return value

    @model_validator(mode="after")
    def _challenges_another(self) -> HostLoadSettings:
        if self.challenger == self.predictor:
            raise ValueError("challenger must not be the predictor itself")
        return self


class RequestRateSettings(Section):
    """How the request rates of online services are forecast."""

    enabled: bool | None = None
    """Whether they are forecast and scored. None: on when the policy looks as far as a job runs (``predictive``) and
    there is a ``metricsSource``."""
    quantile: float | None = None
    """Of the highest rate until a job will have ended, at which the latency guard asks about it. None: the rate that
    was measured last (docs/policies.md has both in one experiment)."""

    @field_validator("quantile")
    @classmethod
    def _is_kept(cls, value: float | None) -> float | None:
        if value is not None and value not in RATE_QUANTILES:
            raise ValueError(f"must be one of {', '.join(f'{quantile:g}' for quantile in RATE_QUANTILES)}")
        return value


class ReclaimedSettings(Section):
    """How slack is published as ``cotide.dev/reclaimed-cpu`` and ``cotide.dev/reclaimed-memory``."""

    publish: bool | None = None
    """None: on when the policy goes by slack (``hierarchical``, ``predictive``)."""
    job_pods: bool | None = None
    """Whether pods of Jobs ask for reclaimed resources in place of plain ones. None: as ``publish``."""
    minimum_change_share: float = Field(default=0.05, ge=0, le=1)
    """Of the node's physical amount; a smaller change is not published (chosen: forecasts jitter by a few per cent)."""
    minimum_interval_seconds: float = Field(default=60.0, ge=0)
    """Wall seconds between two patches of one node; chosen."""
    patches_per_second: float = Field(default=10.0, gt=0)
    """Wall time, of all nodes together; chosen: 5,000 nodes of a new cluster take nine minutes."""


class OverloadSettings(Section):
    """When a node counts as overloaded, and what the monitor does about it."""

    share: float = Field(default=_ENGINE.overload_share, gt=0, le=1)
    """Of a node's allocatable cpu or memory: above it, it is overloaded."""
    relieved_share: float = Field(default=_ENGINE.relieved_share, gt=0, le=1)
    """Below it, it is calm again; evictions aim for it."""
    observation_seconds: float = Field(default=_ENGINE.overload_observation_seconds, ge=0)
    """For how long a node must be over before anything is done."""
    pause_seconds: float = Field(default=_ENGINE.overload_pause_seconds, ge=0)
    """Between two rounds of evictions on a node."""
    maximum_evictions: int = Field(default=_ENGINE.overload_evictions, ge=1, le=1000)
    """In one round on one node."""
    flap_episodes: int = Field(default=_ENGINE.flap_episodes, ge=1, le=1000)
    """So many overloads within ``flapWindowSeconds`` cordon a node for batch and gratis pods."""
    flap_window_seconds: float = Field(default=_ENGINE.flap_window_seconds, ge=0)
    cordon_seconds: float = Field(default=_ENGINE.cordon_seconds, ge=0)
    """For how long."""
    overrides_owners: bool = False
    """Whether gratis pods leave an overloaded node even where their owner wrote do-not-disrupt or a disruption budget
    keeps them: else one tenant's word sends the pods of others away in their place."""

    relieves_rising: bool = False
    """Whether pods also leave a node whose service holds its limit and is forecast to break it, under a policy that
    relieves latencies, where ``requestRates.quantile`` is set."""
    relieves_trend: bool = False
    """Whether pods also leave a node on which the measured p95 of a service rises towards its limit, under a policy
    that relieves latencies."""
    contended_share: float = Field(default=_ENGINE.overload_contended_share, ge=0, le=1)
    """Also overloaded is a node on which a service waits for a cpu for more than this share of its time, as node agents
    measure (``metricsSource.prometheus.nodeWaitingQuery``), and calm below half of it. 0: nobody looks."""

    @model_validator(mode="after")
    def _ordered(self) -> OverloadSettings:
        if self.relieved_share > self.share:
            raise ValueError("relievedShare must not be above share: a node would be calm and overloaded at once")
        return self


class HierarchicalSettings(Section):
    """The policies ``hierarchical`` and ``predictive``: how much is planned with, and how batch makes room."""

    victims: Literal["cheapest", "random", "none"] | None = None
    """Whom batch evicts: the fewest gratis pods with the least work lost, host and victims drawn as printed
    (Jiang et al., Algorithm 1), or nobody. None: ``cheapest``, and ``none`` under ``predictive``."""
    gratis_subtracts: Literal["highest", "both", "held"] | None = None
    """What gratis pods find is reduced by the higher of what is held and what is predicted, by both, or by what is
    held. None: ``highest``, and ``held`` under ``predictive``."""
    capacity_share: float = Field(default=_ENGINE.capacity_share, gt=0, le=1)
    """Of a node's allocatable cpu and memory that may be planned with."""
    nomination_seconds: float = Field(default=_ENGINE.nomination_seconds, gt=0)
    """Wall seconds for which freed space is kept for the pod that it was freed for."""
    eviction_timeout_seconds: float = Field(default=_ENGINE.eviction_timeout_seconds, gt=0)
    """Wall seconds after which a victim that is still there counts as staying; above the pods' grace period."""
    eviction_retry_seconds: float = Field(default=_ENGINE.eviction_retry_seconds, gt=0)
    """Wall seconds before a refused eviction is asked for again."""

    @model_validator(mode="after")
    def _ordered(self) -> HierarchicalSettings:
        if self.nomination_seconds < self.eviction_timeout_seconds:
            raise ValueError(
                "nominationSeconds must not be below evictionTimeoutSeconds: the space would be given away while its"
                " victims leave"
            )
        return self


class AdmissionSettings(Section):
    """The webhook that gives other pods reclaimed requests, in namespaces that ask for it."""

    enabled: bool = False
    port: int = Field(default=9443, ge=1, le=65_535)
    certificate_directory: Path | None = None
    """Holds ``tls.crt`` and ``tls.key``; None: the operator makes its own and writes it into the webhook."""
    service_name: str = Field(default="cotide-admission", pattern=_LABEL)
    service_namespace: str = Field(default="cotide-system", pattern=_LABEL)
