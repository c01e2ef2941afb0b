"""What a latency forecast rests on: noted beside each answer, said in each decision, never read as a rate of zero."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from engine_objects import pod
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    Event,
    ModelsChanged,
    Node,
    NodeUpserted,
    Pod,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue, HeuristicQos, larger_outside
from cotide_core.forecasts import MixBatch, QosAnswers
from cotide_core.instructions import Bind, Wait
from cotide_core.qos.applicability import (
    NAMES,
    OTHER_RATE_UNKNOWN,
    RATE,
    RATE_UNKNOWN,
    SERVICE,
    basis_of,
    condition_of,
    evidence_of,
    names_of,
    outside_of,
)
from cotide_core.recording.samples import SampleCollector
from cotide_core.state.cluster_state import ClusterState

ALL = sum(NAMES)


@dataclass
class FixedForecaster:
    """Answers as it was told to, and remembers the questions."""

    probability: float
    outside: int = 0
    evidence: int = 40
    asked: list[MixBatch] = field(default_factory=list)
    model_id: str = "told"

    def violation_probability(self, mixes: MixBatch) -> np.ndarray:
        return self.answer(mixes).probability

    def answer(self, mixes: MixBatch) -> QosAnswers:
        self.asked.append(mixes)
        bits = np.full(len(mixes), self.outside)
        if mixes.unmeasured is not None:
            bits = bits | mixes.unmeasured
        return QosAnswers(np.full(len(mixes), self.probability), bits, np.full(len(mixes), self.evidence))


class Catalogue(HeuristicCatalogue):
    def __init__(self, model: FixedForecaster) -> None:
        self.model = model

    def qos(self, model_id: str) -> FixedForecaster:  # type: ignore[override]  # one model for all ids
        del model_id
        return self.model


def online(name: str, **fields: object) -> Pod:
    base = Pod(f"d/{name}", f"u-{name}", WorkloadClass.ONLINE, (("cpu", 100),), 0.0, workload=f"d/{name}")
    return base._replace(node="n", phase=PodPhase.RUNNING, **fields)


NODE = NodeUpserted(Node("n", (("cpu", 8000), ("pods", 99))))


def decide(model: FixedForecaster, *more: Event, policy: str = "fifo-guarded") -> Bind | Wait:
    """Place a job on the one node, where ``d/web`` runs."""
    scheduler = Scheduler(SchedulerConfig(policy=policy), Catalogue(model))
    events = [ModelsChanged("m"), NODE, WorkloadUpserted(Workload("d/web")), PodUpserted(online("web")), *more]
    instructions = scheduler.handle([*events, PodUpserted(pod("job", type="sort", input_bytes=5))], 0.0)
    (one,) = [instruction for instruction in instructions if isinstance(instruction, Bind | Wait)]
    return one


@given(outside=st.integers(0, ALL), evidence=st.integers(-1, 10**9))
def test_a_basis_holds_bits_and_evidence(outside: int, evidence: int) -> None:
    (basis,) = basis_of(np.array([outside]), np.array([evidence])).tolist()
    assert outside_of(basis) == outside
    assert evidence_of(basis) == (None if evidence < 0 else evidence)


def test_a_rate_that_nobody_measured_is_the_condition_that_comes_first() -> None:
    assert condition_of(names_of(0)) == ""
    assert condition_of(names_of(RATE | SERVICE)) == "OutsideTraining"
    assert condition_of(names_of(RATE | OTHER_RATE_UNKNOWN)) == "RateUnknown"
    assert names_of(RATE_UNKNOWN | SERVICE) == ("rate unknown", "service")


def test_a_binding_tells_what_its_risk_rests_on() -> None:
    bind = decide(FixedForecaster(0.05, SERVICE), ServiceSampled("d/web", 100.0))
    assert isinstance(bind, Bind)
    assert bind.forecast.qos_outside == ("service",)
    assert bind.forecast.qos_evidence == 40


def test_a_refusal_tells_it_too_under_plans_as_well() -> None:
    for policy in ("fifo-guarded", "qpsm", "easy-guarded"):
        wait = decide(FixedForecaster(0.9, RATE), ServiceSampled("d/web", 100.0), policy=policy)
        assert isinstance(wait, Wait)
        assert wait.forecast.qos_outside == ("rate",), policy
        assert wait.forecast.qos_evidence == 40


def test_questions_name_the_service_and_what_nobody_measured() -> None:
    """Beside d/web, which was measured, runs d/db, which was not."""
    db = (WorkloadUpserted(Workload("d/db", 7.0)), PodUpserted(online("db")))
    model = FixedForecaster(0.0)
    decide(model, *db, ServiceSampled("d/web", 100.0))
    mixes = model.asked[-1]
    assert mixes.service is not None
    assert mixes.unmeasured is not None
    seen = {
        mixes.services[index]: (bits, rate)
        for index, bits, rate in zip(
            mixes.service.tolist(), mixes.unmeasured.tolist(), mixes.requests_per_second.tolist(), strict=True
        )
    }
    assert seen == {"d/web": (OTHER_RATE_UNKNOWN, 100.0), "d/db": (RATE_UNKNOWN, 100.0)}, "both ask for as much cpu"


def test_a_measured_zero_is_measured() -> None:
    model = FixedForecaster(0.0)
    bind = decide(model, ServiceSampled("d/web", 0.0))
    assert bind.forecast.qos_outside == ()
    assert decide(FixedForecaster(0.0)).forecast.qos_outside == ("rate unknown",)


def test_a_first_measurement_lets_in_what_an_unknown_rate_kept_out() -> None:
    class Careful(FixedForecaster):
        def answer(self, mixes: MixBatch) -> QosAnswers:
            answer = super().answer(mixes)
            return QosAnswers(np.where(answer.outside != 0, 0.9, 0.0), answer.outside, answer.evidence)

    scheduler = Scheduler(SchedulerConfig(policy="fifo-guarded"), Catalogue(Careful(0.0)))
    events = [ModelsChanged("m"), NODE, WorkloadUpserted(Workload("d/web")), PodUpserted(online("web"))]
    (wait,) = scheduler.handle([*events, PodUpserted(pod("job", type="sort", input_bytes=5))], 0.0)
    assert isinstance(wait, Wait)
    (bind,) = scheduler.handle([ServiceSampled("d/web", 50.0)], 100.0)
    assert isinstance(bind, Bind)


def test_outside_the_larger_of_model_and_heuristic_counts() -> None:
    rates = np.array([1e3, 1e5])
    mixes = MixBatch(
        rates, np.zeros(2), np.full(2, 2.0), np.full(2, 0.9), ("a",), np.full((2, 1), 6.0), np.ones((2, 1))
    )
    heuristic = HeuristicQos().violation_probability(mixes)
    assert (heuristic > 0.9).all()
    inside = larger_outside(np.array([0.0, 0.0]), np.zeros(2, np.int64), mixes)
    half = larger_outside(np.array([0.0, 1.0]), np.array([RATE, RATE]), mixes)
    assert inside.tolist() == [0.0, 0.0]
    assert half.tolist() == [heuristic[0], 1.0]


def test_the_heuristic_notes_what_nobody_measured_and_claims_no_evidence() -> None:
    one = MixBatch(
        np.zeros(1), np.zeros(1), np.ones(1), np.ones(1), (), np.zeros((1, 0)), np.zeros((1, 0)),
        unmeasured=np.array([RATE_UNKNOWN]),
    )  # fmt: skip
    answer = HeuristicQos().answer(one)
    assert (answer.outside.tolist(), answer.evidence.tolist()) == ([RATE_UNKNOWN], [-1])


def test_samples_name_their_service_and_are_left_out_beside_one_that_nobody_measured() -> None:
    state, collector = ClusterState(), SampleCollector(10)

    def feed(now: float, *events: Event) -> None:
        for event in events:
            state.apply(event)
        collector.feed(state, events, now)

    workloads = [WorkloadUpserted(Workload(f"d/{name}")) for name in ("web", "db")]
    feed(0.0, NODE, *workloads, PodUpserted(online("web")), PodUpserted(online("db")))
    feed(1.0, ServiceSampled("d/web", 100.0, 3.0))
    assert len(collector.qos().mixes) == 0
    feed(2.0, ServiceSampled("d/db", 10.0, 4.0), ServiceSampled("d/web", 100.0, 3.0))
    mixes = collector.qos().mixes
    assert mixes.service is not None
    assert [mixes.services[index] for index in mixes.service] == ["d/db", "d/web"]
