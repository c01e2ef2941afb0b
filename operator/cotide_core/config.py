"""Every knob of the engine, with its unit in its name.

Filled by the drivers from the user's configuration; written into the header of each ledger, so that a replay decides
alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cotide_core.errors import InputError

DEPTH_MAX: Final = 65_536
"""Most pods that a plan may hold (chosen: a cycle would take seconds)."""
SLACK_POLICIES: Final = ("hierarchical", "predictive")
"""Policies whose capacity is forecast slack: their knobs are written out. A test holds it to the policies' parts."""

RUN_TIME_POLICIES: Final = ("predictive",)
"""Policies that look as far as a job runs. A test holds it to the policies' parts."""


@dataclass(frozen=True, slots=True)
class HierarchicalConfig:
    """The knobs of forecast slack (policies `hierarchical` and `predictive`) and of the monitor (Jiang et al.); values
    without a source are chosen.

    Attributes
    ----------
    victims : ``cheapest`` (fewest victims, least work lost), ``random`` (host and victims drawn, Algorithm 1, 11-12),
        or ``none``: batch pods wait, and evict no gratis pod.
    gratis_subtracts : ``highest``: what gratis pods find is reduced by the higher of what batch and gratis pods hold
        and will hold; ``both``: by one and the other, a literal reading of the paper that keeps much more free;
        ``held``: by what they hold, as for batch pods.
    capacity_share : of a node's allocatable cpu and memory that may be planned with where a forecast is believed; the
        paper plans with all of it.
    usage_stale_seconds : a measurement older than this says nothing: three misses of a scrape each 15 s.
    nomination_seconds : for how long freed space is kept for the pod that it was freed for.
    eviction_timeout_seconds : a victim that is still there after so long counts as staying; above the usual grace of
        30 s.
    eviction_retry_seconds : a refused eviction is not asked for again before.
    overload_share, relieved_share : a node is overloaded above the first share and relieved below the second.
    overload_contended_share : a node also is overloaded while a service on it waits for a cpu for more than this share
        of its time, and relieved below half of it; 0: nobody looks.
    overload_observation_seconds : for how long a node must be over before anything is done.
    overload_pause_seconds : between two rounds of evictions on a node, so that the first can show its effect.
    overload_evictions : most victims in a round on a node.
    flap_episodes, flap_window_seconds, cordon_seconds : a node that was overloaded so often within the window gets no
        batch or gratis pod for a while.
    overload_overrides_owners : whether gratis pods leave an overloaded node even where their owner or a disruption
        budget says no: else one tenant's word sends the pods of others away in their place.
    relieves_rising : whether pods leave a node also where a service holds its limit and is forecast to break it (see
        `rising_relief`); for policies that relieve latencies, where request rates are forecast.
    relieves_trend : whether pods leave a node also where the measured p95 of a service rises towards its limit (see
        `latency_trend`); for policies that relieve latencies.
    """

    victims: str = "cheapest"
    gratis_subtracts: str = "highest"
    capacity_share: float = 0.95
    usage_stale_seconds: float = 60.0
    nomination_seconds: float = 120.0
    eviction_timeout_seconds: float = 90.0
    eviction_retry_seconds: float = 30.0
    overload_share: float = 1.0
    relieved_share: float = 0.9
    overload_contended_share: float = 0.0
    overload_observation_seconds: float = 15.0
    overload_pause_seconds: float = 15.0
    overload_evictions: int = 5
    flap_episodes: int = 3
    flap_window_seconds: float = 1800.0
    cordon_seconds: float = 600.0
    overload_overrides_owners: bool = False
    relieves_rising: bool = False
    relieves_trend: bool = False

    def __post_init__(self) -> None:
        if self.victims not in ("cheapest", "random", "none"):
            raise InputError(f"{self.victims!r} is none of cheapest, random, none", field="hierarchical.victims")
        if self.gratis_subtracts not in ("highest", "both", "held"):
            raise InputError(
                f"{self.gratis_subtracts!r} is none of highest, both, held", field="hierarchical.gratisSubtracts"
            )
        if not 0.0 < self.capacity_share <= 1.0:
            raise InputError("must be above 0 and at most 1", field="hierarchical.capacityShare")
        if not 0.0 < self.relieved_share <= self.overload_share <= 1.0:
            raise InputError("must be above 0, and at most the overload share", field="hierarchical.relievedShare")
        for name, value in (
            ("usageStaleSeconds", self.usage_stale_seconds),
            ("nominationSeconds", self.nomination_seconds),
            ("evictionTimeoutSeconds", self.eviction_timeout_seconds),
            ("evictionRetrySeconds", self.eviction_retry_seconds),
            ("overloadEvictions", self.overload_evictions),
            ("flapEpisodes", self.flap_episodes),
        ):
            if not value > 0:
                raise InputError("must be above 0", field=f"hierarchical.{name}")
        for name, value in (
            ("overloadObservationSeconds", self.overload_observation_seconds),
            ("overloadPauseSeconds", self.overload_pause_seconds),
            ("overloadContendedShare", self.overload_contended_share),
            ("flapWindowSeconds", self.flap_window_seconds),
            ("cordonSeconds", self.cordon_seconds),
        ):
            if not value >= 0:
                raise InputError("must not be negative", field=f"hierarchical.{name}")


def slack_knobs(policy: str) -> HierarchicalConfig:
    """Return the knobs of a policy where nobody says more.

    `predictive` has no preemption and keeps nothing free of gratis pods for batch pods that may come: each throws away
    or holds back more work than it brings forward (docs/policies.md).
    """
    if policy in RUN_TIME_POLICIES:
        return HierarchicalConfig(victims="none", gratis_subtracts="held")
    return HierarchicalConfig()


@dataclass(frozen=True, slots=True)
class PlansConfig:
    """The knobs of the policies that plan pods over time (see `planning`).

    Attributes
    ----------
    quantile : of the forecast of a run time that is planned with, in [0.5, 0.99]: a higher one breaks fewer promises
        and keeps more free.
    depth : waiting pods that are planned, the first in the policy's order (2,048 chosen: some 20 ms on 1,000 nodes).
    """

    quantile: float = 0.9
    depth: int = 2048

    def __post_init__(self) -> None:
        if not 0.5 <= self.quantile <= 0.99:
            raise InputError("must be between 0.5 and 0.99", field="plans.quantile")
        if not 1 <= self.depth <= DEPTH_MAX:
            raise InputError(f"must be between 1 and {DEPTH_MAX}", field="plans.depth")


@dataclass(frozen=True, slots=True)
class ExplorationConfig:
    """Which refusals of the latency guard are tried after all, since what is never tried is never learned.

    Attributes
    ----------
    share : trials per accepted placement beside the same service, in [0, 0.1].
    probability : highest probability of a violation that is tried, in [0, 0.5].
    """

    share: float = 0.01
    probability: float = 0.3

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 0.1:
            raise InputError("must be between 0 and 0.1", field="explorationShare")
        if not 0.0 <= self.probability <= 0.5:
            raise InputError("must be between 0 and 0.5", field="explorationProbability")


@dataclass(frozen=True, slots=True)
class DefaultSpread:
    """A spread constraint without a selector, which each pod's objects give; see `events.Spread`."""

    topology_key: str
    max_skew: int
    required: bool = False
    requires_labels: bool = True


SYSTEM_SPREADS: Final = (
    DefaultSpread("kubernetes.io/hostname", 3, requires_labels=False),
    DefaultSpread("topology.kubernetes.io/zone", 5, requires_labels=False),
)
"""kube-scheduler's default constraints (k8s.io/kubernetes, podtopologyspread/plugin.go)."""
FAIR_HALF_LIFE_SECONDS: Final = 3600.0
"""Chosen: jobs of minutes are forgotten within a day."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """How the engine decides. Values without a source are chosen; each says what it trades.

    Attributes
    ----------
    policy : name of a policy in `policies.POLICIES`.
    seed : of the random policies.
    qos_risk_threshold : highest accepted probability of breaking a latency limit, in [0, 1]. Far below the
        classifier's neutral 0.5: the guard sees today's rate, and rates rise while a job runs. Chosen by runs in
        virtual time (docs/simulation.md): 0.3 gave two to four times the violations for 5-15 % less waiting.
    backoff_initial_seconds, backoff_max_seconds : wait after the first failed attempt, doubled by each further one
        up to the maximum (kube-scheduler's 1 s and 10 s).
    unschedulable_flush_seconds : a pod that waits for an event is tried again after this time anyway. kube-scheduler
        takes 300 s; 60 s, since a wake-up here costs microseconds and guards against a missed reason.
    age_back_seconds : a demoted pod returns to its own level after this time.
    overtaking_seconds : for how long shorter jobs of its level may overtake a waiting job.
    fair_half_life_seconds : under `fair`, after how long what a namespace used counts half; None for
        `FAIR_HALF_LIFE_SECONDS`, for ever, so that older ledgers replay.
    max_decisions_per_cycle : placement attempts in one `handle`, so that a cycle stays short and events get their turn.
    assume_timeout_seconds : a bind that was neither confirmed nor refused for so long is forgotten and tried again.
    max_queue : pods that may wait in the queue; more are kept aside, told so, and admitted as the queue has room.
    hierarchical : knobs of forecast slack and of the monitor; None for every policy that has neither.
    plans : knobs of the policies that plan; None for 0.9 and 2,048, for ever, so that older ledgers replay.
    exploration : which refusals are tried after all; None for none.
    packs : whether the fullest node that takes a pod comes first, whatever rank the policy has; its guard is asked as
        ever, and batch pods that slack or a plan puts somewhere go there. For a cluster whose nodes are freed: what was
        moved off one must not open the next.
    gang_reserve_seconds : after how long a gang that waits for room has room kept for it, under policies without a plan
        (see `planning.gang_reservation`); None for never, for ever, so that older ledgers replay.
    preempts_by_priority : whether a pod that fits on no node displaces less important pods: of a lower class, or of its
        class and lower priority; False for never, for ever, so that older ledgers replay. The rule of `hierarchical`,
        by which batch pods displace gratis pods, does not depend on it.
    effort_per_decision : how much of `Placer.effort` takes as long as a placement attempt that asks nobody, and counts
        as one more in ``max_decisions_per_cycle``; None for none, for ever, so that older ledgers replay.
    default_spreads : spread constraints of online pods that state none and that a Service, ReplicaSet, StatefulSet or
        ReplicationController selects; without a selector, which each pod's objects give. Older ledgers tell of none.
    """

    policy: str = "qpsm"
    seed: int = 0
    qos_risk_threshold: float = 0.1
    backoff_initial_seconds: float = 1.0
    backoff_max_seconds: float = 10.0
    unschedulable_flush_seconds: float = 60.0
    age_back_seconds: float = 300.0
    overtaking_seconds: float = 3600.0
    max_decisions_per_cycle: int = 512
    assume_timeout_seconds: float = 120.0
    max_queue: int = 1_000_000
    hierarchical: HierarchicalConfig | None = None
    plans: PlansConfig | None = None
    exploration: ExplorationConfig | None = None
    packs: bool = False
    fair_half_life_seconds: float | None = None
    gang_reserve_seconds: float | None = None
    effort_per_decision: int | None = None
    default_spreads: tuple[DefaultSpread, ...] = SYSTEM_SPREADS
    preempts_by_priority: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.qos_risk_threshold <= 1.0:
            raise InputError("must be between 0 and 1", field="qosRiskThreshold")
        if self.policy in SLACK_POLICIES and self.hierarchical is None:
            # Written out, so that a ledger's header says what was in force.
            object.__setattr__(self, "hierarchical", slack_knobs(self.policy))
        for name, value in (
            ("backoffInitialSeconds", self.backoff_initial_seconds),
            ("backoffMaxSeconds", self.backoff_max_seconds),
            ("unschedulableFlushSeconds", self.unschedulable_flush_seconds),
            ("assumeTimeoutSeconds", self.assume_timeout_seconds),
            ("maxDecisionsPerCycle", self.max_decisions_per_cycle),
            ("maxQueue", self.max_queue),
            ("fairHalfLifeSeconds", self.fair_half_life_seconds or FAIR_HALF_LIFE_SECONDS),
            ("gangReserveSeconds", 1.0 if self.gang_reserve_seconds is None else self.gang_reserve_seconds),
            ("effortPerDecision", 1 if self.effort_per_decision is None else self.effort_per_decision),
        ):
            if not value > 0:
                raise InputError("must be above 0", field=name)
        for name, value in (
            ("ageBackSeconds", self.age_back_seconds),
            ("overtakingSeconds", self.overtaking_seconds),
        ):
            if not value >= 0:
                raise InputError("must not be negative", field=name)
