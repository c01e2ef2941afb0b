"""The sections of the configuration file about predicted slack: its forecasts, publication and use.

Part of `settings`; read by the assembly and by the parts that it starts. Seconds are of the operator's clock unless a
field states wall seconds. A network, a kubelet or a person does not run faster with the clock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from cotide_core.config import HierarchicalConfig
from cotide_operator.config.section import Section

_ENGINE: Final = HierarchicalConfig()
"""The defaults of the engine are also the operator's; the engine justifies each."""
QUANTILES: Final = (0.5, 0.9, 0.99)
"""The quantiles that the forecasters give and are scored on."""
RATE_QUANTILES: Final = (0.5, 0.6, 0.75, 0.9)
"""The quantiles of rate forecasts; a test compares them with the forecaster's."""
_LABEL: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""A DNS label (RFC 1123), as Kubernetes requires for the names of services and namespaces."""


class HostLoadSettings(Section):
    """The forecast of each node's load."""

    enabled: bool | None = None
    """None: on if the policy uses slack (``hierarchical``, ``predictive``) or reclaimed capacity is published."""
    quantile: float = 0.9
    """The quantile of the coming slot's peak that plans use; chosen: overloads are rare, and a higher one would leave
    a tenth of the node unused (docs/results/host-load.json has the cost of each)."""
    predictor: Literal["mixture", "sigma-percentile"] = "mixture"
    """Forecaster of the usage of online pods: our mixture of experts, or the larger of mean + N standard deviations
    and a percentile with a half-life of a day (docs/results/host-load.json has both on the same series)."""
    challenger: Literal["mixture", "sigma-percentile"] | None = None
    """Predictor that forecasts in shadow, and takes over after a day of slots if it was better beyond noise; None for
    no challenger. Costs as much as a predictor."""
    history_seconds: float = Field(default=86_400.0, gt=0)
    """Length of the usage history that is read after a restart; a day holds a service's daily rhythm."""
    refit_seconds: float = Field(default=21_600.0, gt=0)
    """Seconds between two fits of the ARMA models, in worker processes; chosen: parameters drift slowly, records count
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
            raise ValueError("challenger must differ from predictor")
        return self


class RequestRateSettings(Section):
    """The forecast of the request rates of online services."""

    enabled: bool | None = None
    """Whether rates are forecast and scored. None: on if the policy looks ahead to the end of a job (``predictive``)
    and there is a ``metricsSource``."""
    quantile: float | None = None
    """Quantile of the highest rate until the end of a job, for the questions of the latency guard. None: the last
    measured rate (docs/results/joint.json has both in one experiment)."""

    @field_validator("quantile")
    @classmethod
    def _is_kept(cls, value: float | None) -> float | None:
        if value is not None and value not in RATE_QUANTILES:
            raise ValueError(f"must be one of {', '.join(f'{quantile:g}' for quantile in RATE_QUANTILES)}")
        return value


class ReclaimedSettings(Section):
    """The publication of slack as ``cotide.dev/reclaimed-cpu`` and ``cotide.dev/reclaimed-memory``."""

    publish: bool | None = None
    """None: on if the policy uses slack (``hierarchical``, ``predictive``)."""
    job_pods: bool | None = None
    """Whether pods of Jobs request reclaimed resources in place of plain ones. None: as ``publish``."""
    minimum_change_share: float = Field(default=0.05, ge=0, le=1)
    """Share of the node's physical amount; smaller changes are not published (chosen: forecasts jitter by a few per
    cent)."""
    minimum_interval_seconds: float = Field(default=60.0, ge=0)
    """Wall seconds between two patches of one node; chosen."""
    patches_per_second: float = Field(default=10.0, gt=0)
    """Patches per wall second, of all nodes together; chosen: 5,000 nodes of a new cluster take nine minutes."""


class OverloadSettings(Section):
    """When a node counts as overloaded, and how the monitor relieves it."""

    share: float = Field(default=_ENGINE.overload_share, gt=0, le=1)
    """Share of a node's allocatable cpu or memory above which it is overloaded."""
    relieved_share: float = Field(default=_ENGINE.relieved_share, gt=0, le=1)
    """Share below which a node is calm again; evictions aim for it."""
    observation_seconds: float = Field(default=_ENGINE.overload_observation_seconds, ge=0)
    """Shortest time over the share before the monitor acts."""
    pause_seconds: float = Field(default=_ENGINE.overload_pause_seconds, ge=0)
    """Seconds between two rounds of evictions on a node."""
    maximum_evictions: int = Field(default=_ENGINE.overload_evictions, ge=1, le=1000)
    """Most evictions in one round on one node."""
    flap_episodes: int = Field(default=_ENGINE.flap_episodes, ge=1, le=1000)
    """Number of overloads within ``flapWindowSeconds`` that cordons a node for batch and gratis pods."""
    flap_window_seconds: float = Field(default=_ENGINE.flap_window_seconds, ge=0)
    """Window of ``flapEpisodes``."""
    cordon_seconds: float = Field(default=_ENGINE.cordon_seconds, ge=0)
    """Length of that cordon."""
    overrides_owners: bool = False
    """Whether gratis pods leave an overloaded node even if their owner wrote do-not-disrupt or a disruption budget
    protects them: otherwise one tenant's annotation makes the pods of others leave instead."""

    relieves_rising: bool = False
    """Whether pods also leave a node if its service holds its limit and is forecast to break it, under a policy that
    relieves latencies, and with ``requestRates.quantile``."""
    relieves_trend: bool = False
    """Whether pods also leave a node if the measured p95 of a service rises towards its limit, under a policy that
    relieves latencies."""
    contended_share: float = Field(default=_ENGINE.overload_contended_share, ge=0, le=1)
    """A node is also overloaded if a service waits for a cpu for more than this share of its time, as node agents
    measure (``metricsSource.prometheus.nodeWaitingQuery``), and calm below half of it. 0 disables this."""

    @model_validator(mode="after")
    def _ordered(self) -> OverloadSettings:
        if self.relieved_share > self.share:
            raise ValueError("relievedShare must not be above share: a node would be calm and overloaded at once")
        return self


class HierarchicalSettings(Section):
    """The policies ``hierarchical`` and ``predictive``: their share of nodes, and how batch makes room."""

    victims: Literal["cheapest", "random", "none"] | None = None
    """The victims of batch: the fewest gratis pods with the least work lost, host and victims drawn at random as in the
    paper (Jiang et al., Algorithm 1), or none. None: ``cheapest``, and ``none`` under ``predictive``."""
    gratis_subtracts: Literal["highest", "both", "held"] | None = None
    """Reduction of the room of gratis pods: the higher of held and predicted amounts, both, or the held amount. None:
    ``highest``, and ``held`` under ``predictive``."""
    capacity_share: float = Field(default=_ENGINE.capacity_share, gt=0, le=1)
    """Share of a node's allocatable cpu and memory for plans."""
    nomination_seconds: float = Field(default=_ENGINE.nomination_seconds, gt=0)
    """Wall seconds of the reservation of freed space for the nominated pod."""
    eviction_timeout_seconds: float = Field(default=_ENGINE.eviction_timeout_seconds, gt=0)
    """Wall seconds after which a victim that still exists counts as staying; above the pods' grace period."""
    eviction_retry_seconds: float = Field(default=_ENGINE.eviction_retry_seconds, gt=0)
    """Wall seconds before a refused eviction is requested again."""

    @model_validator(mode="after")
    def _ordered(self) -> HierarchicalSettings:
        if self.nomination_seconds < self.eviction_timeout_seconds:
            raise ValueError(
                "nominationSeconds must not be below evictionTimeoutSeconds: the space would be given away while its"
                " victims leave"
            )
        return self


class AdmissionSettings(Section):
    """The webhook that gives pods reclaimed requests, in namespaces with its label."""

    enabled: bool = False
    """Whether the webhook is served; needs ``reclaimed.publish``."""
    port: int = Field(default=9443, ge=1, le=65_535)
    """Port of the webhook."""
    certificate_directory: Path | None = None
    """Directory of ``tls.crt`` and ``tls.key``; None: the operator makes its own and writes it into the webhook."""
    service_name: str = Field(default="cotide-admission", pattern=_LABEL)
    """Service that the API server uses; its Secret is ``<serviceName>-certificate``."""
    service_namespace: str = Field(default="cotide-system", pattern=_LABEL)
    """Namespace of that Service."""
