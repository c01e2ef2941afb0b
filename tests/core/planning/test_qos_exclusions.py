"""Plans under the latency guard: no pod starts where a limit would break, and plans go round what was refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_cluster import Estimates, bound, node, pod, running

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, PodPhase, PodUpserted, ServiceSampled, Workload, WorkloadUpserted
from cotide_core.forecasts import CompletionForecaster, MixBatch, QosAnswers, QosForecaster
from cotide_core.instructions import Bind, Instruction, Wait, WaitReason
from cotide_core.policies.guarded_plans import GUARDED_PLANS


class RateTimesJobs:
    """p = rate x jobs on the node / 1000."""

    model_id = "rate-times-jobs"
    asked = 0

    def violation_probability(self, mixes: MixBatch):
        self.asked += len(mixes)
        return np.minimum(1.0, mixes.requests_per_second * mixes.counts.sum(axis=1) / 1000)

    def answer(self, mixes: MixBatch) -> QosAnswers:
        return QosAnswers.within(self.violation_probability(mixes))


class Undisturbed(Estimates):
    """No service slows a job down, so that times are whole."""

    def slowdown(self, types, requests_per_second, cpu_pressure):
        return np.ones(len(types))


class Guarding:
    def __init__(self) -> None:
        self.model = RateTimesJobs()

    def qos(self, model_id: str) -> QosForecaster:
        return self.model

    def completion(self, model_id: str) -> CompletionForecaster:
        return Undisturbed()


def web(name: str, on: str, rate: float) -> list[Event]:
    """A service's pod of no size, so that only latency is in a job's way."""
    service = pod(
        name, 0, 0.0, workload_class=WorkloadClass.ONLINE, workload="shop/web", node=on, phase=PodPhase.RUNNING,
        started_seconds=0.0, requested_seconds=None,
    )  # fmt: skip
    return [service, ServiceSampled(f"d/{name}", rate)]


def guarded(policy: str, *events: Event) -> tuple[Scheduler, list[Instruction], RateTimesJobs]:
    catalogue = Guarding()
    config = SchedulerConfig(policy=policy, qos_risk_threshold=0.3, assume_timeout_seconds=1e9)
    scheduler = Scheduler(config, catalogue)
    return scheduler, scheduler.handle([WorkloadUpserted(Workload("shop/web")), *events], 0.0), catalogue.model


@pytest.mark.parametrize("policy", GUARDED_PLANS)
def test_a_pod_starts_where_the_limit_holds_and_waits_where_it_would_break(policy):
    """p on a: 500 x 1 / 1000 = .5 > .3; on b: 200 x 1 / 1000 = .2, with a second job .4."""
    scheduler, out, _ = guarded(
        policy, node("a"), node("b"), *web("wa", "a", 500), *web("wb", "b", 200), pod("p", 1000, 9.0)
    )
    assert bound(out) == {"p": "b"}
    (bind,) = [one for one in out if isinstance(one, Bind)]
    assert bind.forecast.qos_violation_probability == pytest.approx(0.2)
    out = scheduler.handle([pod("q", 1000, 9.0, 1.0)], 1.0)
    (said,) = [one for one in out if isinstance(one, Wait)]
    assert said.reason is WaitReason.QOS_AT_RISK
    assert said.message == "0/2 nodes are available: 2 would break the latency limit of shop/web (p=0.40)"
    assert said.forecast.qos_violation_probability == pytest.approx(0.4)
    assert scheduler.planned() == {}


@pytest.mark.parametrize("policy", GUARDED_PLANS)
def test_of_two_pods_planned_together_the_second_is_asked_about_beside_the_first(policy):
    scheduler, out, _ = guarded(policy, node("b"), *web("wb", "b", 200), pod("p", 1000, 9.0), pod("q", 1000, 9.0))
    assert bound(out) == {"p": "b"}
    assert scheduler.next_wakeup(0.0) == 0.0
    (said,) = [one for one in scheduler.handle([], 0.0) if isinstance(one, Wait)]
    assert said.reason is WaitReason.QOS_AT_RISK


@pytest.mark.parametrize("policy", GUARDED_PLANS)
def test_a_node_that_was_refused_is_planned_with_again_as_soon_as_its_service_has_less_to_do(policy):
    scheduler, out, model = guarded(policy, node("a"), *web("wa", "a", 500), pod("p", 1000, 9.0))
    assert not bound(out)
    asked = model.asked
    assert not bound(scheduler.handle([ServiceSampled("d/wa", 600)], 1.0))
    assert model.asked == asked, "more requests make nothing better, so nobody asks"
    assert bound(scheduler.handle([ServiceSampled("d/wa", 250)], 2.0)) == {"p": "a"}


@pytest.mark.parametrize("policy", GUARDED_PLANS)
def test_among_equal_starts_a_node_without_a_service_comes_first(policy):
    _, out, model = guarded(policy, node("a"), node("b"), *web("wa", "a", 1), pod("p", 1000, 9.0))
    assert bound(out) == {"p": "b"}
    assert model.asked == 0


@pytest.mark.parametrize("policy", GUARDED_PLANS)
def test_among_nodes_with_a_service_the_one_with_the_lower_rate_comes_first(policy):
    """200 and 100 requests a second are a doubling apart; both would do: p = .2 and .1."""
    _, out, _ = guarded(policy, node("a"), node("b"), *web("wa", "a", 200), *web("wb", "b", 100), pod("p", 1000, 9.0))
    assert bound(out) == {"p": "b"}


def test_a_reservation_is_made_elsewhere_when_its_service_would_break_at_the_planned_start():
    """wide is reserved on a at 50, when r ends; the rate of a's service rises meanwhile, and b is free at 80."""
    events = (node("a"), node("b"), *web("wa", "a", 100), running("r", 3000, 50.0, "a"), running("s", 3000, 80.0, "b"))
    scheduler, _, _ = guarded("conservative-guarded", *events, pod("wide", 4000, 10.0))
    assert (scheduler.planned()["d/wide"].node, scheduler.planned()["d/wide"].start_seconds) == ("a", 50.0)
    ended = scheduler.state.pod("d/r")
    assert ended is not None
    scheduler.handle([ServiceSampled("d/wa", 900)], 20.0)
    out = scheduler.handle([PodUpserted(ended._replace(phase=PodPhase.SUCCEEDED))], 50.0)
    assert not bound(out)
    assert (scheduler.planned()["d/wide"].node, scheduler.planned()["d/wide"].start_seconds) == ("b", 80.0)


@pytest.mark.parametrize("policy", GUARDED_PLANS)
@settings(max_examples=60, deadline=None)
@given(
    rates=st.lists(st.sampled_from([0, 50, 100, 200, 400]), min_size=1, max_size=4),
    arrivals=st.lists(
        st.tuples(st.sampled_from([0, 0, 1, 5]), st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=12
    ),
    changes=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 100, 400])), max_size=6),
)
def test_no_bind_ever_breaks_a_limit_and_every_pod_starts_once_the_services_are_idle(policy, rates, arrivals, changes):
    """The probability is worked out here from what is known to run on the node at each bind."""
    events: list[Event] = []
    rate_on = {}
    for number, rate in enumerate(rates):
        events += [node(f"n{number}"), *web(f"w{number}", f"n{number}", float(rate))]
        rate_on[f"n{number}"] = rate
    scheduler, out, _ = guarded(policy, *events)
    now, jobs = 0.0, dict.fromkeys(rate_on, 0)
    ends: dict[str, tuple[float, str, PodUpserted]] = {}
    pods = {}
    waiting = list(arrivals)
    changing = list(changes)
    while True:
        for one in out:
            if isinstance(one, Bind):
                jobs[one.node] += 1
                assert rate_on[one.node] * jobs[one.node] / 1000 <= 0.3
                upserted, seconds = pods[one.key]
                started = upserted.pod._replace(node=one.node, phase=PodPhase.RUNNING, started_seconds=now)
                ends[one.key] = (now + seconds, one.node, PodUpserted(started))
        batch: list[Event] = [started for end, _, started in ends.values() if end > now]
        if waiting:
            gap, cores, seconds = waiting.pop(0)
            now += gap
            upserted = pod(f"p{len(pods)}", 1000 * cores, float(seconds), now)
            pods[upserted.pod.key] = (upserted, seconds)
            batch.append(upserted)
        elif changing:
            at, rate = changing.pop(0)
            now += 1
            name = f"n{at % len(rates)}"
            rate_on[name] = rate
            batch.append(ServiceSampled(f"d/w{at % len(rates)}", float(rate)))
        elif any(rate_on.values()):
            now += 1
            rate_on = dict.fromkeys(rate_on, 0)
            batch += [ServiceSampled(f"d/w{number}", 0.0) for number in range(len(rates))]
        else:
            wakeup = scheduler.next_wakeup(now)
            later = [end for end, _, _ in ends.values()] + ([] if wakeup is None or wakeup > 1e8 else [wakeup])
            if not later:
                break
            now = max(now, min(later))
        for key, (end, on, started) in list(ends.items()):
            if end <= now:
                jobs[on] -= 1
                del ends[key]
                batch.append(PodUpserted(started.pod._replace(phase=PodPhase.SUCCEEDED)))
        out = scheduler.handle(batch, now)
    assert sum(scheduler.pending().values()) == 0
