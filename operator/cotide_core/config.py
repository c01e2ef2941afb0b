"""Every knob of the engine, with its unit in its name.

Filled by the drivers from the user's configuration; written into the header of each ledger, so that a replay decides
alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.errors import InputError


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
    max_decisions_per_cycle : placement attempts in one `handle`, so that a cycle stays short and events get their turn.
    assume_timeout_seconds : a bind that was neither confirmed nor refused for so long is forgotten and tried again.
    max_queue : pods that may wait in the queue; more are kept aside, told so, and admitted as places become free.
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

    def __post_init__(self) -> None:
        if not 0.0 <= self.qos_risk_threshold <= 1.0:
            raise InputError("must be between 0 and 1", field="qosRiskThreshold")
        for name, value in (
            ("backoffInitialSeconds", self.backoff_initial_seconds),
            ("backoffMaxSeconds", self.backoff_max_seconds),
            ("unschedulableFlushSeconds", self.unschedulable_flush_seconds),
            ("assumeTimeoutSeconds", self.assume_timeout_seconds),
            ("maxDecisionsPerCycle", self.max_decisions_per_cycle),
            ("maxQueue", self.max_queue),
        ):
            if not value > 0:
                raise InputError("must be above 0", field=name)
        for name, value in (
            ("ageBackSeconds", self.age_back_seconds),
            ("overtakingSeconds", self.overtaking_seconds),
        ):
            if not value >= 0:
                raise InputError("must not be negative", field=name)
