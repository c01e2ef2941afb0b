"""The operator's configuration file: ``kind: CotideConfiguration``, checked in full before anything starts.

`assembly` and the demo read it. Every duration and threshold carries its unit in its name. An unknown key is an error
with file, line and field path, never a setting without effect. Invariant: each accepted key has an effect in this
version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cotide_core.config import (
    DEPTH_MAX,
    FAIR_HALF_LIFE_SECONDS,
    RUN_TIME_POLICIES,
    ExplorationConfig,
    HierarchicalConfig,
    PlansConfig,
    SchedulerConfig,
    slack_knobs,
)
from cotide_core.errors import InputError
from cotide_core.policies.catalogue import Runner, by_slack, entry_of
from cotide_operator.config.class_settings import ClassSettings
from cotide_operator.config.consolidation_settings import ConsolidationSettings
from cotide_operator.config.extender_settings import ExtenderSettings
from cotide_operator.config.host_load_settings import (
    AdmissionSettings,
    HierarchicalSettings,
    HostLoadSettings,
    OverloadSettings,
    ReclaimedSettings,
    RequestRateSettings,
)
from cotide_operator.config.metric_settings import MetricsSourceSettings
from cotide_operator.config.object_names import DEFAULT_SCHEDULER_NAME, SchedulerName, SchedulerNames
from cotide_operator.config.phase_settings import PhaseSettings
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.config.section import SECTIONS_DISAGREE, Section, first_fault
from cotide_operator.config.spread_settings import PodTopologySpreadSettings
from cotide_operator.config.tenancy_settings import TenancySettings
from cotide_operator.config.yaml_lines import line_of, load, read, written

__all__ = [
    "AdmissionSettings",
    "ClassSettings",
    "ConsolidationSettings",
    "ExtenderSettings",
    "GangSettings",
    "HierarchicalSettings",
    "HostLoadSettings",
    "LeaderElectionSettings",
    "LedgerSettings",
    "MetricsSourceSettings",
    "ModelSettings",
    "OverloadSettings",
    "PlansSettings",
    "ProvisioningSettings",
    "QosSettings",
    "QueueSettings",
    "ReclaimedSettings",
    "RequestRateSettings",
    "RetrainingSettings",
    "Settings",
    "SimulatedTimeSettings",
    "TenancySettings",
    "VolumeSettings",
    "engine_config",
    "parse_settings",
    "read_settings",
    "with_changes",
]

API_VERSION: Final = "cotide.dev/v1alpha1"
KIND: Final = "CotideConfiguration"


_ENGINE: Final = SchedulerConfig()
"""The defaults of the engine are also the operator's; the engine justifies each."""
_PLANS: Final = PlansConfig()


class QosSettings(Section):
    """The risk at which a node is refused to protect a service's limit."""

    risk_threshold_probability: float = Field(default=_ENGINE.qos_risk_threshold, gt=0.0, le=1.0)
    """A node is refused when a service's predicted probability of breaking its limit is above this."""


class QueueSettings(Section):
    """Waits of pods between attempts, in seconds of the operator's clock."""

    backoff_initial_seconds: float = Field(default=_ENGINE.backoff_initial_seconds, gt=0)
    """Pause after the first failed attempt."""
    backoff_max_seconds: float = Field(default=_ENGINE.backoff_max_seconds, gt=0)
    """Longest pause; each further failure doubles the pause up to this."""
    unschedulable_flush_seconds: float = Field(default=_ENGINE.unschedulable_flush_seconds, gt=0)
    """Longest wait of a pod for an event; then it is tried again."""
    age_back_seconds: float = Field(default=_ENGINE.age_back_seconds, ge=0)
    """Time after which a demoted pod returns to its own level."""
    overtaking_seconds: float = Field(default=_ENGINE.overtaking_seconds, ge=0)
    """Time during which shorter jobs of its level may overtake a waiting job."""
    fair_half_life_seconds: float = Field(default=FAIR_HALF_LIFE_SECONDS, gt=0)
    """Under the policy ``fair``, time after which past use of a namespace counts half."""
    max_decisions_per_cycle: int = Field(default=_ENGINE.max_decisions_per_cycle, ge=1, le=100_000)
    """Most attempts in one cycle; questions to the QoS forecaster count extra."""
    max_pods: int = Field(default=_ENGINE.max_queue, ge=1, le=10_000_000)
    """Most pods in the queue; further pods wait outside and get a message."""

    @model_validator(mode="after")
    def _ordered(self) -> QueueSettings:
        if self.backoff_max_seconds < self.backoff_initial_seconds:
            raise ValueError("backoffMaxSeconds must not be below backoffInitialSeconds")
        return self


class PlansSettings(Section):
    """Parameters of the policies that make plans."""

    quantile: float = Field(default=_PLANS.quantile, ge=0.5, le=0.99)
    """Quantile of a forecast run time: 0.5 and 0.9 as forecast, others on the log-normal distribution through both."""
    depth: int = Field(default=_PLANS.depth, ge=1, le=DEPTH_MAX)
    """Number of waiting pods in a plan, the first in the policy's order."""


class GangSettings(Section):
    """Handling of gangs that find no room."""

    reserve_after_seconds: float = Field(default=120.0, ge=0)
    """Wait of a gang before room is reserved for it, under policies without a plan; 0 for never. Chosen: longer than
    most small pods wait for a node, short compared with the run times of large gangs."""


EVERY: Final = "*"
"""Entry of a list of namespaces: all of them."""


RunTimePredictor = Literal["habits", "exponential-smoothing", "regression", "fmkf", "mlkf"]
"""The names of `cotide_predictors.run_time.habits.live_catalogue`, which takes seconds to load."""


class RetrainingSettings(Section):
    """When the predictors are trained again from data of this cluster."""

    enabled: bool = False
    """Whether new models are trained from this cluster's samples; needs ``models.directory``."""
    check_seconds: float = Field(default=30.0, gt=0)
    """Wall seconds between checks of the collected samples; chosen."""
    minimum_samples: int = Field(default=60, ge=10, le=1_000_000)
    """Samples of a kind before its first training; chosen: below this a held-out score is meaningless."""
    new_samples: int = Field(default=500, ge=10, le=1_000_000)
    """New samples since the last training that start another; chosen."""
    unseen_type_samples: int = Field(default=5, ge=1, le=1_000_000)
    """Finished jobs of an unseen type that start a training (Ou 2024: an unseen type retrains); chosen."""
    capacity_samples: int = Field(default=20_000, ge=100, le=1_000_000)
    """Samples kept in memory per kind; the oldest are dropped. Chosen: 20,000 rows train in seconds."""
    pooled_namespaces: tuple[str, ...] = ()
    """Namespaces that teach the forecasts of all; ``*`` for every namespace. Other namespaces teach only their own
    forecasts: otherwise a tenant could distort the predictions for the others."""
    promotion: Literal["whenTrusted", "never", "atOnce"] = "whenTrusted"
    """When the QoS model decides for a service: once its forecasts are trusted, never (it is only scored), or as soon
    as there is one."""
    exploration_share: float = Field(default=0.01, ge=0.0, le=0.1)
    """Refused placements that are tried after all, per accepted one next to the same service; chosen: with half of them
    breaking it costs .5 % of the accepted ones. An exclusive service gets no trials."""
    exploration_probability: float = Field(default=0.3, ge=0.0, le=0.5)
    """Highest probability of a violation in a trial; chosen: above it a refusal is hardly uncertain."""
    store: Literal["directory", "configMaps", "memory"] = "directory"
    """Where samples, trust and run times outlive the process: next to the models (a volume), in ConfigMaps of the
    operator's namespace (a digest), or nowhere."""
    keep_seconds: float = Field(default=300.0, gt=0)
    """Wall seconds between two writes of the store; chosen."""
    run_time_habits: bool = True
    """Whether run times are learned from past pods of the same namespace, owner, image, type and size. The engine
    receives them in namespaces where they were at least as accurate as the completion model."""
    run_time_predictor: RunTimePredictor = "habits"
    """Predictor of run times: the mixture of past runs, exponential smoothing, the on-line regression or one of two
    Kalman filters (docs/results/lab.json has all on the same logs)."""
    run_time_challenger: RunTimePredictor | None = None
    """Predictor that forecasts in shadow, and takes over after 48 hours with runs if it was better beyond noise; None
    for no challenger. Costs as much as a predictor."""
    own_models_most: int = Field(default=64, ge=0, le=10_000)
    """Namespaces with models of their own at once, the last taught ones; 0 for none. Chosen: some 2 MB of models
    each."""
    kept_models: int = Field(default=5, ge=2, le=1000)
    """Newest trained models of a kind in the directory; the present and the previous one also stay. Chosen."""

    @model_validator(mode="after")
    def _challenges_another(self) -> RetrainingSettings:
        if self.run_time_challenger == self.run_time_predictor:
            raise ValueError("runTimeChallenger must differ from runTimePredictor")
        if self.run_time_challenger is not None and not self.run_time_habits:
            raise ValueError("runTimeChallenger needs runTimeHabits: without it no run times are learned")
        return self


class ModelSettings(Section):
    """The directory of model files and their renewal."""

    directory: Path | None = None
    """Directory of the model files; None: a heuristic from requests."""
    poll_seconds: float = Field(default=10.0, gt=0)
    """Wall seconds between checks for changed files; chosen: mounted directories do not report changes."""
    retraining: RetrainingSettings = RetrainingSettings()

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> ModelSettings:
        if self.retraining.enabled and self.directory is None:
            raise ValueError("retraining needs a directory for new models")
        if self.retraining.enabled and not (self.retraining.pooled_namespaces or self.retraining.own_models_most):
            raise ValueError(
                "retraining needs pooledNamespaces, the namespaces whose pods teach the forecasts of all or ['*'], "
                "or ownModelsMost above 0"
            )
        return self


class LeaderElectionSettings(Section):
    """The Lease that allows one replica to act.

    Lease and pause are shorter than client-go's 15 and 2 s. With those, a standby took over 2.2 s after a clean stop
    and 16.2 s after a SIGKILL (measured). A standby sees the last change of a killed leader's lease at most one retry
    late, and its expiry at most one retry late: 12 + 2 x 1 s stay below 15 s.

    The deadline is client-go's 10 s, so that the same faults end a leader. It counts from before the last renewal's
    request, where client-go counts from 2 s after the answer. So 2 s are left until another may lead, however long the
    answer took; client-go leaves 3 s less the time of the answer.
    """

    enabled: bool = True
    """Whether only the holder of the Lease decides."""
    lease_name: str = Field(default="cotide-operator", min_length=1)
    """Name of the Lease."""
    namespace: str = Field(default="cotide-system", min_length=1)
    """Namespace of the Lease."""
    lease_duration_seconds: float = Field(default=12.0, ge=1)
    """Time after which a lease without a renewal may be taken."""
    renew_deadline_seconds: float = Field(default=10.0, gt=0)
    """Time without a renewal after which the leader gives up."""
    retry_period_seconds: float = Field(default=1.0, gt=0)
    """Pause between two attempts to take or renew the lease."""

    @model_validator(mode="after")
    def _ordered(self) -> LeaderElectionSettings:
        if not self.retry_period_seconds < self.renew_deadline_seconds < self.lease_duration_seconds:
            raise ValueError("must be ordered: retryPeriodSeconds < renewDeadlineSeconds < leaseDurationSeconds")
        return self


class LedgerSettings(Section):
    """The file that records every event and instruction."""

    directory: Path
    """Directory of the ledger; None for no ledger. It grows."""


class JobSettings(Section):
    """Handling of pods of Jobs that do not start."""

    start_seconds: float = Field(default=600.0, gt=0)
    """Longest time for a kubelet to start a pod that it can't start at once; then the pod counts as failed and is
    deleted. As `start_times.START_SECONDS`."""
    create_seconds: float = Field(default=1800.0, gt=0)
    """Longest time for a kubelet to create containers without reporting an obstacle: a volume that can't be mounted, a
    pull that hangs. As `start_times.CREATE_SECONDS`."""


class VolumeSettings(Section):
    """Handling of claims that wait for their pod's node."""

    bind_timeout_seconds: float = Field(default=600.0, gt=0, le=3000)
    """Wall seconds to create a volume; then another node is tried. kube-scheduler's default."""


class SimulatedTimeSettings(Section):
    """A clock shared with fake nodes; for emulation only."""

    origin_seconds: float
    """Start of the clock, in seconds since 1970."""
    speed: float = Field(gt=0)
    """Clock seconds per wall second."""


DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The scheduler of a pod that names none (k8s.io/api/core/v1, DefaultSchedulerName)."""


class Settings(Section):
    """The whole configuration."""

    api_version: Literal["cotide.dev/v1alpha1"] = API_VERSION
    """Version of the format."""
    kind: Literal["CotideConfiguration"] = KIND
    """Kind of the document."""
    policy: str = "qpsm"
    """Policy that orders pods and chooses nodes (docs/guide/policies.md lists them)."""
    mode: Literal["live", "shadow"] = "live"
    """``shadow`` watches the pods of another scheduler, records the decisions for them, and writes nothing to the
    cluster."""
    scheduler_name: SchedulerName | None = None
    """Alias of ``scheduler_names`` for one name, as written; None if it is absent."""
    scheduler_names: SchedulerNames = (DEFAULT_SCHEDULER_NAME,)
    """Pods that name one of these are ours, and child pods get the first. In shadow these pods are watched,
    ``default-scheduler`` by default."""
    slot_seconds: float = Field(default=300.0, gt=0)
    """A service's slot: a slot with one sample over the limit counts as one violation (Jiang et al.: a slot's value is
    its maximum)."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of random choices of the policies."""
    concurrent_binds: int = Field(default=64, ge=1, le=512)
    """Bindings in flight of one namespace; all together may have twice as many. Measured: an API server on 2 cores
    gains nothing beyond 64; with fewer it idles."""
    qos: QosSettings = QosSettings()
    queue: QueueSettings = QueueSettings()
    plans: PlansSettings = PlansSettings()
    gangs: GangSettings = GangSettings()
    pod_topology_spread: PodTopologySpreadSettings = PodTopologySpreadSettings()
    models: ModelSettings = ModelSettings()
    metrics_source: MetricsSourceSettings | None = None
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    ledger: LedgerSettings | None = None
    simulated_time: SimulatedTimeSettings | None = None
    host_load: HostLoadSettings = HostLoadSettings()
    request_rates: RequestRateSettings = RequestRateSettings()
    reclaimed: ReclaimedSettings = ReclaimedSettings()
    overload: OverloadSettings = OverloadSettings()
    hierarchical: HierarchicalSettings = HierarchicalSettings()
    admission: AdmissionSettings = AdmissionSettings()
    extender: ExtenderSettings = ExtenderSettings()
    tenancy: TenancySettings = TenancySettings()
    classes: ClassSettings = ClassSettings()
    jobs: JobSettings = JobSettings()
    volumes: VolumeSettings = VolumeSettings()
    provisioning: ProvisioningSettings | None = None
    consolidation: ConsolidationSettings = ConsolidationSettings()
    phases: PhaseSettings = PhaseSettings()

    @property
    def shadow(self) -> bool:
        """Whether the operator writes nothing."""
        return self.mode == "shadow"

    @property
    def speed(self) -> float:
        """Clock seconds per wall second."""
        return self.simulated_time.speed if self.simulated_time is not None else 1.0

    @property
    def publishes_reclaimed(self) -> bool:
        """Whether slack is published on the nodes."""
        if self.reclaimed.publish is not None:
            return self.reclaimed.publish
        return by_slack(self.policy) and self.host_load.enabled is not False

    @property
    def forecasts_host_load(self) -> bool:
        """Whether the load of the nodes is forecast."""
        if self.host_load.enabled is not None:
            return self.host_load.enabled
        return by_slack(self.policy) or self.publishes_reclaimed

    @property
    def forecasts_rates(self) -> bool:
        """Whether the request rates of online services are forecast."""
        if self.request_rates.enabled is not None:
            return self.request_rates.enabled
        return self.metrics_source is not None and self.policy in RUN_TIME_POLICIES

    @property
    def job_pods_reclaim(self) -> bool:
        """Whether pods of Jobs request reclaimed resources."""
        return self.publishes_reclaimed if self.reclaimed.job_pods is None else self.reclaimed.job_pods

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, value: str) -> str:
        try:
            return entry_of(value, Runner.LIVE).name
        except InputError as error:
            raise ValueError(error.message) from None

    @model_validator(mode="before")
    @classmethod
    def _names_of_schedulers(cls, data: Any) -> Any:
        """Turn the alias into a list of one name; in shadow the default is the cluster's own scheduler."""
        if not isinstance(data, dict) or {"schedulerNames", "scheduler_names"} & set(data):
            return data
        alone = data.get("schedulerName", data.get("scheduler_name"))
        if alone is None and data.get("mode") == "shadow":
            return {**data, "schedulerNames": (DEFAULT_SCHEDULER,)}
        try:
            return {**data, "schedulerNames": TypeAdapter(SchedulerNames).validate_python((alone,))}
        except ValidationError:  # the alias itself reports its fault
            return data

    @model_validator(mode="after")
    def _alias_agrees(self) -> Settings:
        alone = self.scheduler_name
        if alone is not None and self.scheduler_names != (alone,):
            raise _disagreement(
                "schedulerNames",
                f"is [{', '.join(self.scheduler_names)}] and its alias schedulerName is {alone}: give one of the two",
            )
        return self

    def _rates_can_be_forecast(self) -> None:
        if self.request_rates.enabled and self.metrics_source is None:
            raise _disagreement("requestRates.enabled", "needs a metricsSource: without rates no forecast is possible")
        if self.request_rates.quantile is not None and not self.forecasts_rates:
            raise _disagreement("requestRates.quantile", "needs forecasts: a metricsSource and the policy predictive")
        if self.overload.relieves_rising and self.request_rates.quantile is None:
            raise _disagreement(
                "overload.relievesRising", "needs requestRates.quantile: no rising rate is forecast without it"
            )

    def _waiting_is_measured(self) -> None:
        source = None if self.metrics_source is None else self.metrics_source.prometheus
        if self.overload.contended_share > 0 and (source is None or source.node_waiting_query is None):
            raise _disagreement(
                "overload.contendedShare",
                "needs metricsSource.prometheus.nodeWaitingQuery: without it no wait is measured",
            )

    @model_validator(mode="after")
    def _sections_agree(self) -> Settings:
        """Refuse sections that contradict each other; an open choice follows the other section."""
        if self.host_load.enabled and self.metrics_source is None:
            raise _disagreement("hostLoad.enabled", "needs a metricsSource: without usage no forecast is possible")
        self._rates_can_be_forecast()
        self._waiting_is_measured()
        if self.reclaimed.publish and not self.forecasts_host_load:
            raise _disagreement("reclaimed.publish", "needs hostLoad: its forecasts are published")
        if self.reclaimed.job_pods and not self.publishes_reclaimed:
            raise _disagreement(
                "reclaimed.jobPods", "needs reclaimed.publish: no node would offer what the pods request"
            )
        self._phases_can_be_learned()
        self._prices_can_be_asked()
        if self.admission.enabled and not self.publishes_reclaimed:
            raise _disagreement(
                "admission.enabled", "needs reclaimed.publish: no node would offer what the pods request"
            )
        if self.shadow and self.ledger is None:
            raise _disagreement("mode", "shadow needs a ledger: its report is computed from it")
        for section, on in (
            ("admission.enabled", self.admission.enabled),
            ("extender.enabled", self.extender.enabled),
            ("consolidation.enabled", self.consolidation.enabled),
            ("provisioning.mode", self.provisioning is not None and self.provisioning.mode == "act"),
            ("models.retraining.enabled", self.models.retraining.enabled),
            ("phases.learn", self.phases.learn),
        ):
            if self.shadow and on:
                raise _disagreement(section, "must be off in shadow, where nothing is written")
        for name in self.scheduler_names:
            if name in self.extender.scheduler_names:
                raise _disagreement(
                    "extender.schedulerNames" if "extender" in self.model_fields_set else "schedulerNames",
                    f"must not name {name}: Cotide binds its own pods, kube-scheduler the pods of the extender",
                )
        if self.host_load.history_seconds < self.slot_seconds:
            raise _disagreement("hostLoad.historySeconds", "must not be below slotSeconds: it would hold no record")
        if self.host_load.refit_seconds < self.slot_seconds:
            raise _disagreement("hostLoad.refitSeconds", "must not be below slotSeconds: there would be no new record")
        return self

    def _prices_can_be_asked(self) -> None:
        prices = None if self.provisioning is None else self.provisioning.energy_prices
        if prices is None or prices.file is not None:
            return
        if self.metrics_source is None or self.metrics_source.prometheus is None:
            raise _disagreement("provisioning.energyPrices", "its queries need metricsSource.prometheus")

    def _phases_can_be_learned(self) -> None:
        if not self.phases.learn:
            return
        if self.metrics_source is None:
            raise _disagreement("phases.learn", "needs a metricsSource: phases are learned from measured usage")
        if self.job_pods_reclaim:
            raise _disagreement(
                "phases.learn", "needs reclaimed.jobPods off: pods with reclaimed capacity can't be resized"
            )
        if self.phases.store == "directory" and self.models.directory is None:
            raise _disagreement("phases.store", "needs models.directory for its files")


def _disagreement(field: str, sentence: str) -> PydanticCustomError:
    """Return an error about one field that only the whole configuration reveals; `first_fault` places it there."""
    return PydanticCustomError(SECTIONS_DISAGREE, "{sentence}", {"sentence": sentence, "path": field.split(".")})


ASSUME_TIMEOUT_WALL_SECONDS: Final = 3600.0
"""Wall seconds, since an unconfirmed binding depends on the network and not on the clock's speed. The binder answers
for each binding, however long an outage lasts, and room that is released earlier is assigned twice. This is a last
resort for a defect of the operator. Chosen."""


EFFORT_PER_DECISION: Final = 40
"""Evaluated pairs of a pod and a node that take as long as an attempt without any (0.1 ms of a cycle with up to 512
attempts). Chosen: a cycle of pods that all differ then blocks the loop no longer."""


def engine_config(settings: Settings) -> SchedulerConfig:
    """Return the engine's configuration for these settings."""
    return SchedulerConfig(
        policy=settings.policy,
        seed=settings.seed,
        qos_risk_threshold=settings.qos.risk_threshold_probability,
        backoff_initial_seconds=settings.queue.backoff_initial_seconds,
        backoff_max_seconds=settings.queue.backoff_max_seconds,
        unschedulable_flush_seconds=settings.queue.unschedulable_flush_seconds,
        age_back_seconds=settings.queue.age_back_seconds,
        overtaking_seconds=settings.queue.overtaking_seconds,
        fair_half_life_seconds=_half_life(settings),
        max_decisions_per_cycle=settings.queue.max_decisions_per_cycle,
        assume_timeout_seconds=ASSUME_TIMEOUT_WALL_SECONDS * max(1.0, settings.speed),
        max_queue=settings.queue.max_pods,
        hierarchical=_hierarchical(settings) if by_slack(settings.policy) else None,
        plans=_plans(settings),
        gang_reserve_seconds=settings.gangs.reserve_after_seconds or None,
        effort_per_decision=EFFORT_PER_DECISION,
        preempts_by_priority=True,
        exploration=_exploration(settings.models.retraining),
        packs=settings.consolidation.enabled and settings.consolidation.packs,
        default_spreads=settings.pod_topology_spread.spreads(),
    )


def _exploration(retraining: RetrainingSettings) -> ExplorationConfig | None:
    """Return the exploration settings; None if no model learns from a trial."""
    if not retraining.enabled or not retraining.exploration_share:
        return None
    return ExplorationConfig(retraining.exploration_share, retraining.exploration_probability)


def _half_life(settings: Settings) -> float | None:
    """Return a changed value, or None: a ledger's header contains only values that differ from the default."""
    seconds = settings.queue.fair_half_life_seconds
    return None if seconds == FAIR_HALF_LIFE_SECONDS else seconds


def _plans(settings: Settings) -> PlansConfig | None:
    """Return changed values, or None: a ledger's header contains only values that differ from the default."""
    plans = PlansConfig(settings.plans.quantile, settings.plans.depth)
    return None if plans == _PLANS else plans


def _hierarchical(settings: Settings) -> HierarchicalConfig:
    wall = max(1.0, settings.speed)
    """Clock seconds per wall second, for waits on a network or a kubelet."""
    section, overload, source = settings.hierarchical, settings.overload, settings.metrics_source
    usual = slack_knobs(settings.policy)
    stale = usual.usage_stale_seconds if source is None else source.stale_after_seconds
    return HierarchicalConfig(
        victims=section.victims or usual.victims,
        gratis_subtracts=section.gratis_subtracts or usual.gratis_subtracts,
        capacity_share=section.capacity_share,
        usage_stale_seconds=stale * wall,
        nomination_seconds=section.nomination_seconds * wall,
        eviction_timeout_seconds=section.eviction_timeout_seconds * wall,
        eviction_retry_seconds=section.eviction_retry_seconds * wall,
        overload_share=overload.share,
        relieved_share=overload.relieved_share,
        overload_contended_share=overload.contended_share,
        overload_observation_seconds=overload.observation_seconds,
        overload_pause_seconds=overload.pause_seconds,
        overload_evictions=overload.maximum_evictions,
        flap_episodes=overload.flap_episodes,
        flap_window_seconds=overload.flap_window_seconds,
        cordon_seconds=overload.cordon_seconds,
        overload_overrides_owners=overload.overrides_owners,
        relieves_rising=overload.relieves_rising,
        relieves_trend=overload.relieves_trend,
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
        text = read(path)
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"the configuration file can't be read: {why}", file=str(path)) from error
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
        path, sentence = first_fault(error, Settings)
        raise InputError(sentence, file=file, line=line_of(path, lines), field=written(path)) from None


def with_changes(settings: Settings, **changes: Any) -> Settings:
    """Return settings with overrides from the command line, checked the same way.

    Raises
    ------
    InputError
        When a value does not fit its field.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return Settings.model_validate({**settings.model_dump(by_alias=False), **given})
    except ValidationError as error:
        path, sentence = first_fault(error, Settings)
        raise InputError(sentence, field=written(path)) from None
