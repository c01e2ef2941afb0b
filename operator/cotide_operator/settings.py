"""The operator's configuration file: ``kind: CotideConfiguration``, checked in full before anything starts.

Read by `assembly` and by the demo. Every duration and threshold carries its unit in its name; an unknown key is an
error with file, line and field path, never a setting that silently does nothing. Invariant: each accepted key has
something behind it in this version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError
from cotide_core.policies import POLICIES
from cotide_operator.yaml_lines import line_of, load, written

API_VERSION: Final = "cotide.dev/v1alpha1"
KIND: Final = "CotideConfiguration"


class _Section(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )


_ENGINE: Final = SchedulerConfig()
"""The engine's own defaults are ours; each is justified there."""


class QosSettings(_Section):
    """When a node is too risky for a service's promise."""

    risk_threshold_probability: float = Field(default=_ENGINE.qos_risk_threshold, gt=0.0, le=1.0)
    """A node is refused when a service's predicted probability of breaking its limit is above this."""


class QueueSettings(_Section):
    """How long pods wait between attempts, in seconds of the operator's clock."""

    backoff_initial_seconds: float = Field(default=_ENGINE.backoff_initial_seconds, gt=0)
    backoff_max_seconds: float = Field(default=_ENGINE.backoff_max_seconds, gt=0)
    unschedulable_flush_seconds: float = Field(default=_ENGINE.unschedulable_flush_seconds, gt=0)
    age_back_seconds: float = Field(default=_ENGINE.age_back_seconds, ge=0)
    overtaking_seconds: float = Field(default=_ENGINE.overtaking_seconds, ge=0)
    max_decisions_per_cycle: int = Field(default=_ENGINE.max_decisions_per_cycle, ge=1)
    max_pods: int = Field(default=_ENGINE.max_queue, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> QueueSettings:
        if self.backoff_max_seconds < self.backoff_initial_seconds:
            raise ValueError("backoffMaxSeconds must not be below backoffInitialSeconds")
        return self


class RetrainingSettings(_Section):
    """When the predictors are trained anew from what this cluster showed."""

    enabled: bool = False
    check_seconds: float = Field(default=30.0, gt=0)
    """Wall seconds between looks at what has been collected; chosen."""
    minimum_samples: int = Field(default=60, ge=10)
    """Samples of a kind before its first training; chosen: below this a held-out score means nothing."""
    new_samples: int = Field(default=500, ge=10)
    """New samples since the last training that call for another; chosen."""
    unseen_type_samples: int = Field(default=5, ge=1)
    """Finished jobs of a type the model never saw that call for one (seed 003: an unseen type retrains); chosen."""
    capacity_samples: int = Field(default=20_000, ge=100)
    """Samples kept in memory per kind, the oldest go; chosen: 20,000 rows train in seconds."""


class ModelSettings(_Section):
    """Where model files are and how they are renewed."""

    directory: Path | None = None
    poll_seconds: float = Field(default=10.0, gt=0)
    """Wall seconds between looks for changed files; chosen: mounted directories give no notice of a change."""
    retraining: RetrainingSettings = RetrainingSettings()

    @model_validator(mode="after")
    def _has_a_place(self) -> ModelSettings:
        if self.retraining.enabled and self.directory is None:
            raise ValueError("retraining needs a directory to put new models into")
        return self


class UrlSource(_Section):
    """A source behind an http(s) URL."""

    url: str

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value.rstrip("/")


class KubernetesSource(_Section):
    """The metrics API of the cluster: usage of cpu and memory, but no request rate and no latency."""


class MetricsSourceSettings(_Section):
    """Where request rates and latencies come from: exactly one of the three."""

    prometheus: UrlSource | None = None
    """PromQL, with the queries that each Workload names."""
    scrape: UrlSource | None = None
    """A Prometheus text endpoint with ``cotide_sim_service_*`` (fake nodes)."""
    kubernetes: KubernetesSource | None = None
    interval_seconds: float = Field(default=5.0, gt=0)
    """Wall seconds between two readings; chosen."""
    stale_after_seconds: float = Field(default=60.0, gt=0)
    """A sample older than this is dropped, never read as zero; chosen: two scrapes of 30 s."""

    @model_validator(mode="after")
    def _exactly_one(self) -> MetricsSourceSettings:
        named = [name for name in ("prometheus", "scrape", "kubernetes") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError("name exactly one of prometheus, scrape, kubernetes")
        return self


class LeaderElectionSettings(_Section):
    """The Lease that lets one replica act; the durations are client-go's defaults."""

    enabled: bool = True
    lease_name: str = Field(default="cotide-operator", min_length=1)
    namespace: str = Field(default="cotide-system", min_length=1)
    lease_duration_seconds: float = Field(default=15.0, ge=1)
    renew_deadline_seconds: float = Field(default=10.0, gt=0)
    retry_period_seconds: float = Field(default=2.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> LeaderElectionSettings:
        if not self.retry_period_seconds < self.renew_deadline_seconds < self.lease_duration_seconds:
            raise ValueError("must be ordered: retryPeriodSeconds < renewDeadlineSeconds < leaseDurationSeconds")
        return self


class LedgerSettings(_Section):
    """Where every event and instruction is written."""

    directory: Path


class SimulatedTimeSettings(_Section):
    """A clock shared with fake nodes; for emulation only."""

    origin_seconds: float
    speed: float = Field(gt=0)


class Settings(_Section):
    """The whole configuration."""

    api_version: Literal["cotide.dev/v1alpha1"] = API_VERSION
    kind: Literal["CotideConfiguration"] = KIND
    policy: str = "qpsm"
    scheduler_name: str = Field(default="cotide", min_length=1)
    slot_seconds: float = Field(default=300.0, gt=0)
    """A service's slot: over its limit once in it counts as one violation (seed 000: a slot's value is its maximum)."""
    seed: int = Field(default=0, ge=0)
    concurrent_binds: int = Field(default=32, ge=1, le=512)
    """Bindings in flight; measured: an API server on 2 cores gains nothing beyond 16-64."""
    qos: QosSettings = QosSettings()
    queue: QueueSettings = QueueSettings()
    models: ModelSettings = ModelSettings()
    metrics_source: MetricsSourceSettings | None = None
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    ledger: LedgerSettings | None = None
    simulated_time: SimulatedTimeSettings | None = None

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, value: str) -> str:
        if value not in POLICIES:
            raise ValueError(f"{value!r} is not there; this version has {', '.join(sorted(POLICIES))}")
        return value


ASSUME_TIMEOUT_WALL_SECONDS: Final = _ENGINE.assume_timeout_seconds
"""An unconfirmed binding is a matter of the network, hence of wall time, however fast the clock runs."""


def engine_config(settings: Settings) -> SchedulerConfig:
    """Return the engine's configuration for these settings."""
    speed = settings.simulated_time.speed if settings.simulated_time is not None else 1.0
    return SchedulerConfig(
        policy=settings.policy,
        seed=settings.seed,
        qos_risk_threshold=settings.qos.risk_threshold_probability,
        backoff_initial_seconds=settings.queue.backoff_initial_seconds,
        backoff_max_seconds=settings.queue.backoff_max_seconds,
        unschedulable_flush_seconds=settings.queue.unschedulable_flush_seconds,
        age_back_seconds=settings.queue.age_back_seconds,
        overtaking_seconds=settings.queue.overtaking_seconds,
        max_decisions_per_cycle=settings.queue.max_decisions_per_cycle,
        assume_timeout_seconds=ASSUME_TIMEOUT_WALL_SECONDS * max(1.0, speed),
        max_queue=settings.queue.max_pods,
    )


def read_settings(path: Path | None) -> Settings:
    """Read and check a configuration file; None gives the defaults.

    Raises
    ------
    InputError
        With file, line and field path of the first fault.
    """
    if path is None:
        return Settings()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {error.__class__.__name__}: {error}", file=str(path)) from error
    return parse_settings(text, str(path))


def parse_settings(text: str, file: str = "configuration") -> Settings:
    """Check the text of a configuration; see `read_settings`."""
    data, lines = load(text, file)
    if not isinstance(data, dict):
        raise InputError(f"must be a mapping with apiVersion: {API_VERSION} and kind: {KIND}", file=file)
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if data.get(field) != wanted:
            raise InputError(f"must be {wanted}", file=file, line=line_of((field,), lines), field=field)
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        first = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise InputError(
            f"{_sentence(dict(first))}{more}", file=file, line=line_of(first["loc"], lines), field=written(first["loc"])
        ) from None


def with_changes(settings: Settings, **changes: Any) -> Settings:
    """Return settings with what the command line says instead, checked the same way.

    Raises
    ------
    InputError
        When a value does not fit its field.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return Settings.model_validate({**settings.model_dump(by_alias=False), **given})
    except ValidationError as error:
        first = dict(error.errors(include_url=False)[0])
        raise InputError(_sentence(first), field=written(error.errors(include_url=False)[0]["loc"])) from None


def _sentence(fault: dict[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        section: Any = Settings
        known = [field.alias or name for name, field in section.model_fields.items()] if len(fault["loc"]) == 1 else []
        return "is not a setting" + (f"; there are {', '.join(known)}" if known else "")
    message: str = fault["msg"]
    return message.removeprefix("Value error, ")[0].lower() + message.removeprefix("Value error, ")[1:]
