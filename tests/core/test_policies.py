"""Which node each policy takes, what the guard refuses, and what the model is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import engine_objects
import numpy as np
import pytest
from engine_objects import node_upserted
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    Event,
    ModelsChanged,
    Pod,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCompletion, HeuristicQos
from cotide_core.forecasts import CompletionForecaster, MixBatch, QosAnswers, QosForecaster
from cotide_core.instructions import Bind, Evict, Wait, WaitReason
from cotide_core.kernels.array_types import Floats
from cotide_core.policies import POLICIES

ONLINE, BATCH = WorkloadClass.ONLINE, WorkloadClass.BATCH
GUARDED = ("qpsm", "fifo-guarded", "random-guarded")


class Recording:
    """A QoS model with a law that a test can follow: p = rate x (jobs + GiB of input) / 1000, and a memory."""

    model_id = "recording"

    def __init__(self) -> None:
        self.asked: list[MixBatch] = []

    def violation_probability(self, mixes: MixBatch) -> Floats:
        self.asked.append(mixes)
        load = mixes.counts.sum(axis=1) + mixes.input_bytes.sum(axis=1) / 2**30
        rate = mixes.requests_per_second + mixes.other_requests_per_second
        return np.asarray(np.minimum(1.0, rate * load / 1000 * (10.0 / mixes.limit_milliseconds)))

    def answer(self, mixes: MixBatch) -> QosAnswers:
        return QosAnswers.within(self.violation_probability(mixes))


class Catalogue:
    """Holds one recording model."""

    def __init__(self) -> None:
        self.model = Recording()

    def qos(self, model_id: str) -> QosForecaster:
        return self.model if model_id else HeuristicQos()

    def completion(self, model_id: str) -> CompletionForecaster:
        return HeuristicCompletion()


def pod(name: str, cpu: int = 1000, **fields: Any) -> Pod:
    """A pod of a type: the models here answer by it."""
    return engine_objects.pod(name, cpu, **{"type": "sort", **fields})


def service(name: str, at: str | None, rate: float, workload: str = "shop/web") -> list[Event]:
    running = PodPhase.RUNNING if at else PodPhase.PENDING
    web = pod(name, workload_class=ONLINE, workload=workload, node=at, phase=running, type="")
    return [PodUpserted(web), ServiceSampled(web.key, rate)]


def engine(policy: str, *events: Event, **knobs: object) -> tuple[Scheduler, Recording]:
    catalogue = Catalogue()
    config = replace(SchedulerConfig(policy=policy, qos_risk_threshold=0.3), **knobs)  # type: ignore[arg-type]  # as named
    scheduler = Scheduler(config, catalogue)
    scheduler.handle([ModelsChanged("m", "m"), WorkloadUpserted(Workload("shop/web")), *events], 0.0)
    return scheduler, catalogue.model


def nodes_of(out: list[object]) -> dict[str, str]:
    return {one.key.removeprefix("d/"): one.node for one in out if isinstance(one, Bind)}


def test_fifo_takes_the_emptiest_node_and_asks_no_model() -> None:
    scheduler, model = engine("fifo", node_upserted("a", 8000), node_upserted("b", 9000), *service("w", "b", 1e6))
    # Free after placement: a 7000/8000 = .875, b (9000 - 1000 - 1000)/9000 = .78
    assert nodes_of(scheduler.handle([PodUpserted(pod("p"))], 1.0)) == {"p": "a"}
    assert model.asked == []


@pytest.mark.parametrize("policy", GUARDED)
def test_a_guarded_policy_never_puts_a_job_where_the_limit_would_break(policy: str) -> None:
    # p on a: 500 x 1 job / 1000 = .5 > .3; on b: 200 x 1 / 1000 = .2, a second job .4
    scheduler, _ = engine(
        policy, node_upserted("a", 8000), node_upserted("b", 8000), *service("wa", "a", 500), *service("wb", "b", 200)
    )
    out = scheduler.handle([PodUpserted(pod("p")), PodUpserted(pod("q"))], 1.0)
    assert nodes_of(out) == {"p": "b"} or nodes_of(out) == {"q": "b"}
    bind = next(one for one in out if isinstance(one, Bind))
    assert bind.forecast.qos_violation_probability == pytest.approx(0.2)
    wait = next(one for one in out if isinstance(one, Wait))
    assert wait.reason is WaitReason.QOS_AT_RISK
    assert wait.message == "0/2 nodes are available: 2 would break the latency limit of shop/web (p=0.40)"
    assert wait.forecast.qos_violation_probability == pytest.approx(0.4)
    assert wait.refused[0].example == "b"


def test_qpsm_prefers_a_node_without_a_service_and_asks_no_model_then() -> None:
    scheduler, model = engine("qpsm", node_upserted("a", 8000), node_upserted("b", 2000), *service("wa", "a", 1))
    out = scheduler.handle([PodUpserted(pod("p"))], 1.0)
    assert nodes_of(out) == {"p": "b"}
    assert model.asked == []
    assert out[0].forecast.qos_model == ""  # type: ignore[union-attr]  # a Bind


def test_qpsm_takes_the_least_risky_of_the_nodes_that_pass() -> None:
    # One job each: p = .29, .02 and .15; steps of .05 tell them apart.
    rates = {"a": 290, "b": 20, "c": 150}
    events = [
        event for name, rate in rates.items() for event in (node_upserted(name, 8000), *service(f"w{name}", name, rate))
    ]
    scheduler, _ = engine("qpsm", *events)
    assert nodes_of(scheduler.handle([PodUpserted(pod("p"))], 1.0)) == {"p": "b"}


def test_the_mix_of_one_job_beside_one_service_holds_the_papers_three_features() -> None:
    scheduler, model = engine("qpsm", node_upserted("a", 8000), *service("w", "a", 50))
    scheduler.handle([PodUpserted(pod("p", cpu=2000, input_bytes=2**30))], 1.0)
    (mix,) = model.asked
    assert mix.types == ("sort",)
    assert mix.counts.tolist() == [[1.0]]
    assert mix.input_bytes.tolist() == [[2.0**30]]
    assert mix.requests_per_second.tolist() == [50.0]
    assert (mix.other_requests_per_second.tolist(), mix.limit_milliseconds.tolist()) == ([0.0], [10.0])
    assert mix.cpu_pressure.tolist() == [2000 / 8000]


def test_a_job_is_checked_against_every_online_pod_on_the_node() -> None:
    # Two services share a node; the tight one decides: 20 x 1 / 1000 x 10 / 0.5 = .4
    events = [node_upserted("a", 8000), WorkloadUpserted(Workload("shop/tight", 0.5)), *service("w", "a", 10)]
    scheduler, model = engine("qpsm", *events, *service("t", "a", 10, "shop/tight"))
    (wait,) = scheduler.handle([PodUpserted(pod("p"))], 1.0)
    assert isinstance(wait, Wait)
    assert wait.message == "0/1 nodes are available: 1 would break the latency limit of shop/tight (p=0.40)"
    assert model.asked[0].requests_per_second.tolist() == [10.0, 10.0]
    assert model.asked[0].other_requests_per_second.tolist() == [10.0, 10.0]


def test_an_online_pod_goes_to_an_idle_node_first() -> None:
    scheduler, _ = engine("qpsm", node_upserted("a", 16_000), node_upserted("b", 4000), *service("w", "a", 1))
    assert nodes_of(scheduler.handle(service("new", None, 0)[:1], 1.0)) == {"new": "b"}


def test_an_online_pod_is_checked_with_the_rate_of_its_busiest_sibling() -> None:
    # a and b have two jobs each; a replica that brings 200 requests/s: p = 200 x 2 / 1000 = .4 > .3
    jobs = [PodUpserted(pod(f"{at}{n}", node=at, phase=PodPhase.RUNNING)) for at in "ab" for n in range(2)]
    scheduler, model = engine(
        "qpsm",
        node_upserted("a", 8000),
        node_upserted("b", 8000),
        node_upserted("c", 8000),
        *service("w", "c", 200),
        *jobs,
    )
    scheduler.handle([PodUpserted(pod("full", cpu=7000, node="c", phase=PodPhase.RUNNING))], 0.5)
    asked = len(model.asked)
    evict, bind = scheduler.handle(service("new", None, 0)[:1], 1.0)
    assert isinstance(bind, Bind)
    assert (bind.node, bind.at_risk, bind.forecast.qos_violation_probability) == ("a", True, 0.4)
    assert model.asked[asked].requests_per_second.tolist() == [200.0, 200.0]
    assert isinstance(evict, Evict)
    assert (evict.key, evict.node) == ("d/a0", "a"), "with one job p is .2"


def test_an_exclusive_service_waits_rather_than_share() -> None:
    exclusive = WorkloadUpserted(Workload("shop/db", exclusive=True))
    for policy in POLICIES:
        scheduler, _ = engine(policy, node_upserted("a", 8000), exclusive, *service("w", "a", 1))
        (wait,) = scheduler.handle(service("db", None, 0, "shop/db")[:1], 1.0)
        assert isinstance(wait, Wait)
        assert wait.reason is WaitReason.NO_MATCHING_NODE


def test_a_promise_told_behind_its_pod_in_one_cycle_counts_for_that_pod() -> None:
    exclusive = WorkloadUpserted(Workload("shop/db", exclusive=True))
    scheduler, _ = engine("fifo", node_upserted("a", 8000), *service("w", "a", 1))
    (wait,) = scheduler.handle([*service("db", None, 0, "shop/db")[:1], exclusive], 1.0)
    assert isinstance(wait, Wait)
    assert wait.reason is WaitReason.NO_MATCHING_NODE


def test_random_places_alike_with_the_same_seed_and_differently_with_another() -> None:
    def run(seed: int) -> dict[str, str]:
        scheduler, _ = engine("random", *(node_upserted(f"n{number}", 8000) for number in range(20)), seed=seed)
        return nodes_of(scheduler.handle([PodUpserted(pod(f"p{number}")) for number in range(30)], 1.0))

    assert run(1) == run(1) != run(2)
    assert len(set(run(1).values())) > 10


def test_fifo_guarded_differs_from_qpsm_in_its_order_only() -> None:
    # The long job came first; only one fits.
    long, short = (
        pod("long", 8000, requested_seconds=900.0),
        pod("short", 8000, created_seconds=1.0, requested_seconds=1.0),
    )
    for policy, first in (("qpsm", "short"), ("fifo-guarded", "long")):
        scheduler, _ = engine(policy, node_upserted("a", 8000))
        assert nodes_of(scheduler.handle([PodUpserted(long), PodUpserted(short)], 2.0)) == {first: "a"}


def test_a_full_scan_finds_the_one_node_that_passes_among_many() -> None:
    # The node that passes ranks last: its service is busier than all, but its limit is generous.
    loose = WorkloadUpserted(Workload("shop/loose", 10_000.0))
    crowd = [event for n in range(300) for event in (node_upserted(f"n{n}", 8000), *service(f"w{n}", f"n{n}", 400))]
    scheduler, model = engine(
        "qpsm", loose, *crowd, node_upserted("last", 8000), *service("wl", "last", 900, "shop/loose")
    )
    out = scheduler.handle([PodUpserted(pod("p"))], 1.0)
    assert nodes_of(out) == {"p": "last"}
    assert sum(len(mix) for mix in model.asked) == 301


def test_a_refusal_is_remembered_until_the_node_gets_better() -> None:
    scheduler, model = engine("qpsm", node_upserted("a", 8000), *service("w", "a", 400))
    scheduler.handle([PodUpserted(pod("p"))], 1.0)
    asked = len(model.asked)
    scheduler.handle([PodUpserted(pod("bigger", input_bytes=2**30)), ServiceSampled("d/w", 500.0)], 2.0)
    assert len(model.asked) == asked, "a larger job at a higher rate is refused all the more"
    scheduler.handle([ServiceSampled("d/w", 100.0)], 20.0)
    assert scheduler.state.record("d/p").node == "a"  # type: ignore[union-attr]  # it is there
    assert len(model.asked) > asked


def test_one_call_serves_several_pods_of_the_queue() -> None:
    events = [event for n in range(60) for event in (node_upserted(f"n{n}", 8000), *service(f"w{n}", f"n{n}", n))]
    scheduler, model = engine("qpsm", *events)
    out = scheduler.handle([PodUpserted(pod(f"p{n}", input_bytes=n)) for n in range(20)], 1.0)
    assert len(nodes_of(out)) == 20
    assert len(model.asked) <= 4


rates = st.lists(st.sampled_from((0.0, 20.0, 100.0, 250.0, 400.0)), min_size=1, max_size=12)
jobs = st.lists(st.tuples(st.sampled_from((500, 1500)), st.sampled_from((0, 2**29, 2**31))), min_size=1, max_size=25)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(GUARDED), rates, jobs)
def test_no_guarded_placement_breaks_a_limit_and_no_refusal_is_wrong(
    policy: str, services: list[float], asked: list[tuple[int, int]]
) -> None:
    """Checks every decision of one cycle against the law itself, one node at a time."""
    events = [
        event
        for n, rate in enumerate(services)
        for event in (node_upserted(f"n{n}", 8000), *service(f"w{n}", f"n{n}", rate))
    ]
    scheduler, _ = engine(policy, *events)
    pods = {f"d/p{n}": pod(f"p{n}", cpu, input_bytes=size) for n, (cpu, size) in enumerate(asked)}
    out = scheduler.handle([PodUpserted(one) for one in pods.values()], 1.0)
    load, cpu = [0.0] * len(services), [7000] * len(services)

    def risk(one: Pod, n: int) -> float:
        return min(1.0, services[n] * (load[n] + 1 + one.input_bytes / 2**30) / 1000)

    for bind in (one for one in out if isinstance(one, Bind)):
        one, n = pods[bind.key], int(bind.node.removeprefix("n"))
        assert bind.forecast.qos_violation_probability == pytest.approx(risk(one, n))
        assert risk(one, n) <= 0.3
        load[n] += 1 + one.input_bytes / 2**30
        cpu[n] -= dict(one.requests)["cpu"]
        assert cpu[n] >= 0
    for wait in (one for one in out if isinstance(one, Wait)):
        one = pods[wait.key]
        fits = [n for n in range(len(services)) if cpu[n] >= dict(one.requests)["cpu"]]
        assert all(risk(one, n) > 0.3 for n in fits)
        assert sum(verdict.nodes for verdict in wait.refused) == len(services)
