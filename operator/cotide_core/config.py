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
"""Policies with forecast slack as capacity: their knobs are written out. A test compares it with the policies' parts.
"""

RUN_TIME_POLICIES: Final = ("predictive",)
"""Policies with a look-ahead to the end of a job. A test compares it with the policies' parts."""


@dataclass(frozen=True, slots=True)
class HierarchicalConfig:
    """The knobs of forecast slack (policies `hierarchical` and `predictive`) and of the monitor (Jiang et al.); values
    without a source are chosen.

    Attributes
    ----------
    victims : ``cheapest`` (fewest victims, least work lost), ``random`` (host and victims drawn, Algorithm 1, 11-12),
        or ``none``: batch pods wait, and evict no gratis pod.
    gratis_subtracts : the amount that reduces the room for gratis pods. ``highest``: the higher of the present and the
        future holdings of batch and gratis pods; ``both``: the sum of the two, a literal reading of the paper that
        keeps much more free; ``held``: the present holdings, as for batch pods.
    capacity_share : share of a node's allocatable cpu and memory for planning with a credible forecast; the paper plans
        with all of it.
    usage_stale_seconds : an older measurement is ignored: three misses of a scrape each 15 s.
    nomination_seconds : for how long released room is kept for its pod.
    eviction_timeout_seconds : a victim that still runs after this time counts as staying; above the usual grace of 30
        s.
    eviction_retry_seconds : pause before a refused eviction is tried again.
    overload_share, relieved_share : a node is overloaded above the first share and relieved below the second.
    overload_contended_share : a node also counts as overloaded while a service on it waits for a cpu for more than this
        share of its time, and as relieved below half of it; 0 switches this off.
    overload_observation_seconds : minimum duration of an overload before any action.
    overload_pause_seconds : between two rounds of evictions on a node, so that the first can show its effect.
    overload_evictions : most victims in a round on a node.
    flap_episodes, flap_window_seconds, cordon_seconds : a node with this many overloads within the window gets no batch
        or gratis pod for a while.
    overload_overrides_owners : whether gratis pods leave an overloaded node even if their owner or a disruption budget
        forbids it: otherwise a tenant's prohibition would evict the pods of others instead.
    relieves_rising : whether pods also leave a node with a service that keeps its limit and is forecast to break it
        (see `rising_relief`); for policies that relieve latencies, with forecasts of request rates.
    relieves_trend : whether pods also leave a node with a measured p95 of a service that rises towards its limit (see
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
    """Return the default knobs of a policy.

    `predictive` has no preemption and keeps no room free of gratis pods for future batch pods: each loses or delays
    more work than it brings forward (docs/results/joint.json).
    """
    if policy in RUN_TIME_POLICIES:
        return HierarchicalConfig(victims="none", gratis_subtracts="held")
    return HierarchicalConfig()


@dataclass(frozen=True, slots=True)
class PlansConfig:
    """The knobs of the policies that plan pods over time (see `planning`).

    Attributes
    ----------
    quantile : of the run-time forecast in plans, in [0.5, 0.99]: a higher one breaks fewer promises and keeps more
        free.
    depth : planned waiting pods, the first in the policy's order (2,048 chosen: some 20 ms on 1,000 nodes).
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
    """Refusals of the latency guard that are tried anyway, because learning needs trials.

    Attributes
    ----------
    share : trials per accepted placement next to the same service, in [0, 0.1].
    probability : highest probability of a violation for a trial, in [0, 0.5].
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
    """The decision rules of the engine. Values without a source are chosen; each states its trade-off.

    Attributes
    ----------
    policy : name of a policy in `policies.POLICIES`.
    seed : of the random policies.
    qos_risk_threshold : highest accepted probability of breaking a latency limit, in [0, 1]. Far below the
        classifier's neutral 0.5: the guard sees today's rate, and rates rise while a job runs. Chosen by runs in
        virtual time (docs/results/simulation.json): 0.3 gave two to four times the violations for 5-15 % less waiting.
    backoff_initial_seconds, backoff_max_seconds : wait after the first failed attempt, doubled by each further one
        up to the maximum (kube-scheduler's 1 s and 10 s).
    unschedulable_flush_seconds : a pod that waits for an event is tried again after this time. kube-scheduler takes 300
        s; 60 s, since a wake-up here costs microseconds and guards against a missed reason.
    age_back_seconds : a demoted pod returns to its own level after this time.
    overtaking_seconds : for how long shorter jobs of its level may overtake a waiting job.
    fair_half_life_seconds : under `fair`, the half-life of a namespace's past use; None for `FAIR_HALF_LIFE_SECONDS`,
        permanently, so that older ledgers replay.
    max_decisions_per_cycle : placement attempts in one `handle`, so that a cycle stays short and events get their turn.
    assume_timeout_seconds : a bind without confirmation or refusal is forgotten after this time and tried again.
    max_queue : pods that may wait in the queue; further ones wait outside, with a message, until the queue has room.
    hierarchical : knobs of forecast slack and of the monitor; None for every policy that has neither.
    plans : knobs of the policies that plan; None for 0.9 and 2,048, permanently, so that older ledgers replay.
    exploration : refusals that are tried anyway; None for none.
    packs : whether the fullest node that takes a pod comes first, under any rank of the policy. Its guard decides as
        usual, and batch pods that slack or a plan places go there. For a cluster with consolidation: a pod that was
        moved off a node must not open the next one.
    gang_reserve_seconds : waiting time of a gang before room is kept for it, under policies without a plan (see
        `planning.gang_reservation`); None for never, permanently, so that older ledgers replay.
    preempts_by_priority : whether a pod that fits on no node displaces less important pods: of a lower class, or of its
        class and lower priority; False for never, permanently, so that older ledgers replay. The rule of `hierarchical`
        that batch pods displace gratis pods does not depend on it.
    effort_per_decision : amount of `Placer.effort` that takes as long as a placement attempt without a forecast, and
        counts as one more in ``max_decisions_per_cycle``; None for none, permanently, so that older ledgers replay.
    default_spreads : spread constraints of online pods that state none and that a Service, ReplicaSet, StatefulSet or
        ReplicationController selects. They have no selector; each pod's objects give it. Older ledgers contain none.
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
            # Written out, so that a ledger's header shows the knobs in force.
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
