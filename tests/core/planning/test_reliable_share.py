"""The hybrid platform live: the replay's starts on one machine, shares on many, and what is learned of reliability."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_cluster import Catalogue, Cluster, Estimates, bound, clusters, node, pod
from replay_reference import Job, columns_of

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, Pod, PodDeleted, PodPhase, PodUpserted
from cotide_core.forecasting.reliability import Reliability, accuracy, expected_accuracy
from cotide_core.forecasts import CompletionForecast, CompletionForecaster
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN, past_of
from cotide_lab.trace_replay.kernels.platform import PREDICTABLE, platform_rule, replay_platform
from cotide_lab.trace_replay.kernels.replay_state import new_replay_state


class Spelled(Estimates):
    """A type spells its forecast: "4-9" has a p50 of 4 s and a p90 of 9 s."""

    def isolated_seconds(self, types, input_bytes, requested_seconds) -> CompletionForecast:
        p50, p90 = np.array([[float(part) for part in name.split("-")] for name in types]).T
        return CompletionForecast(p50, p90)


class SpelledCatalogue(Catalogue):
    def completion(self, model_id: str) -> CompletionForecaster:
        return Spelled()


def cluster_of(nodes: dict[str, tuple[int, int]]) -> Cluster:
    cluster = Cluster("hybrid", nodes)
    cluster.scheduler = Scheduler(SchedulerConfig(policy="hybrid", assume_timeout_seconds=1e9), SpelledCatalogue())
    return cluster


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Job], int]:
    """Jobs that are over by their upper forecast, which is no more than their request."""
    capacity = draw(st.integers(2, 8))
    jobs: list[Job] = []
    now = 0
    for number in range(draw(st.integers(4, 24))):
        now += draw(st.sampled_from([0, 0, 0, 1, 2, 4]))
        run = draw(st.sampled_from([1, 1, 2, 4, 10, 40]))
        upper = run + draw(st.sampled_from([0, 0, 2, 6]))
        forecast = max(1, draw(st.sampled_from([upper, run, run // 3])))
        demand = draw(st.integers(1, capacity))
        jobs.append(Job(number, now, run, demand, upper + draw(st.sampled_from([0, 0, 3])), 0, forecast, upper=upper))
    return jobs, capacity


@settings(max_examples=80, deadline=None)
@given(log=logs())
def test_on_one_machine_pods_start_when_the_replay_does_while_none_outlives_its_forecast(log):
    jobs, capacity = log
    cluster = cluster_of({"a": (1000 * capacity, 1 << 30)})
    for job in jobs:
        cluster.submit(
            f"{job.number:02}", job.submit, job.run, job.request, 1000 * job.demand, type=f"{job.forecast}-{job.upper}"
        )
    starts = cluster.play()
    log_of = columns_of(jobs)
    kinds = [expected_accuracy(job.forecast, job.upper) >= PREDICTABLE for job in jobs]
    past = past_of(GIVEN, 1, log_of.user, log_of.demand, log_of.request)
    upper, reliable = np.array([job.upper for job in jobs], np.int64), np.array(kinds, np.int64)
    rule = platform_rule(capacity, GIVEN, past, upper, reliable)
    replay_platform(log_of, past, GIVEN, 0, np.zeros(2, np.int64), new_replay_state(len(jobs)), rule)
    assert [starts[f"d/{job.number:02}"] for job in jobs] == log_of.start.tolist()


@settings(max_examples=40, deadline=None)
@given(world=clusters(), spreads=st.lists(st.sampled_from([1, 2, 5]), min_size=14, max_size=14))
def test_every_pod_starts_and_no_node_is_overfilled(world, spreads):
    nodes, pods = world
    cluster = cluster_of(nodes)
    for number, ((at, run, estimate, cpu, memory), spread) in enumerate(zip(pods, spreads, strict=False)):
        cluster.submit(f"{number:02}", at, run, estimate, cpu, memory, type=f"{estimate}-{spread * estimate}")
    assert len(cluster.play()) == len(pods)


def engine(*events: Event) -> tuple[Scheduler, list]:
    config = SchedulerConfig(policy="hybrid", assume_timeout_seconds=1e9)
    scheduler = Scheduler(config, SpelledCatalogue())
    return scheduler, scheduler.handle(events, 0.0)


SURE, UNSURE = "10-10", "10-100"


def test_the_predictable_hold_their_share_and_leave_the_rest_to_others():
    """alpha is 0.6 at first: 6 of 10 cores. Five sure pods of 2 cores could fill the node; three hold the 6 cores, the
    unsure one, of larger volume (100 s x 2), gets its 2, and one more is lent what nobody else can use."""
    sure = [pod(f"sure{number}", 2000, 10.0, type=SURE) for number in range(5)]
    _, out = engine(node(cpu=10_000), *sure, pod("unsure", 2000, 10.0, type=UNSURE))
    assert bound(out) == dict.fromkeys(("sure0", "sure1", "sure2", "sure3", "unsure"), "a")


@pytest.mark.parametrize(
    "end_of",
    [lambda one: PodUpserted(one._replace(phase=PodPhase.FAILED)), lambda one: PodDeleted(one.key, one.uid)],
    ids=["failed", "deleted"],
)
def test_what_the_predictable_hold_counts_until_they_are_gone(end_of):
    """alpha 6 of 10 cores: x holds 6 and is sure, y asks for 2 more and is lent them only as nobody else is there."""
    scheduler, out = engine(node(cpu=10_000), pod("x", 6000, 10.0, type=SURE))
    assert bound(out) == {"x": "a"}
    arrivals = (pod("y", 3000, 10.0, 1.0, type=SURE), pod("z", 2000, 10.0, 1.0, type=UNSURE))
    assert bound(scheduler.handle(arrivals, 1.0)) == {"z": "a"}, "z has the larger volume, but y is beyond the share"
    x = scheduler.state.pod("d/x")
    assert x is not None
    assert bound(scheduler.handle([end_of(x)], 2.0)) == {"y": "a"}
    # y holds 3 of the 6 cores and x none, so v may have the other 3; u, of larger volume, finds 2 cores left.
    more = (pod("v", 3000, 10.0, 3.0, type=SURE), pod("u", 3000, 10.0, 3.0, type=UNSURE))
    assert bound(scheduler.handle(more, 3.0)) == {"v": "a"}


def test_whoever_has_waited_for_long_has_a_start_reserved():
    """wide is unsure, planned for 100 s, and overdue after 5 x 100 s. Until then small ones pass it; then none does."""
    scheduler, out = engine(node(cpu=4000), pod("r", 1000, 900.0, type="900-900"))
    assert bound(out) == {"r": "a"}
    assert not bound(scheduler.handle([pod("wide", 4000, 9.0, type=UNSURE)], 0.0))
    assert bound(scheduler.handle([pod("early", 3000, 9.0, 499.0, type="500-500")], 499.0)) == {"early": "a"}
    early = scheduler.state.pod("d/early")
    assert early is not None
    scheduler.handle([PodUpserted(early._replace(phase=PodPhase.SUCCEEDED))], 500.0)
    assert scheduler.planned()["d/wide"].reserved
    assert scheduler.planned()["d/wide"].start_seconds == 900.0
    late, short = pod("late", 3000, 9.0, 501.0, type="500-500"), pod("short", 3000, 9.0, 501.0, type="300-300")
    assert bound(scheduler.handle([late, short], 501.0)) == {"short": "a"}, "501 + 500 s would delay wide, 300 s do not"
    assert not scheduler.planned()["d/late"].reserved


def test_beside_a_reservation_a_pod_is_planned_by_its_forecast_whatever_its_user_asks_for():
    """r holds one of four cores until 900, when wide has its start. long asks for 9,000 s and has a p90 of 300 s."""
    scheduler, _ = engine(node(cpu=4000), pod("r", 1000, 900.0, type="900-900"))
    scheduler.handle([pod("wide", 4000, 9.0, type=UNSURE)], 0.0)
    assert bound(scheduler.handle([pod("long", 3000, 9000.0, 501.0, type="30-300")], 501.0)) == {"long": "a"}
    assert scheduler.planned()["d/wide"].start_seconds == 900.0


def test_two_of_each_kind_have_a_start_reserved():
    """r holds two of four cores until 900. wide (3 cores) is reserved 900 to 1000, wider (4) 1000 to 1100; long, one
    core from 501 on for 600 s, fits beside wide and would delay wider. third has no reservation but a smaller volume.
    """
    scheduler, _ = engine(node(cpu=4000), pod("r", 2000, 900.0, type="900-900"))
    wide = [pod(name, cpu, 9.0, type=UNSURE) for name, cpu in (("wide", 3000), ("wider", 4000), ("third", 4000))]
    assert not bound(scheduler.handle(wide, 0.0))
    assert not bound(scheduler.handle([pod("long", 1000, 9.0, 501.0, type="600-600")], 501.0))
    planned = scheduler.planned()
    assert {key: (one.start_seconds, one.reserved) for key, one in planned.items()} == {
        "d/wide": (900.0, True),
        "d/wider": (1000.0, True),
        "d/third": (1100.0, False),
        "d/long": (1200.0, False),
    }


def test_accuracy_is_the_smaller_over_the_larger():
    assert [accuracy(5.0, 10.0), accuracy(20.0, 10.0), accuracy(0.0, 0.0)] == [0.5, 0.5, 1.0]


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0, 2.6, 10.0])
def test_the_expected_accuracy_is_the_mean_over_log_normal_run_times(ratio):
    """Drawn: 200,000 run times with a p90 of ``ratio`` times the p50."""
    spread = math.log(ratio) / 1.2815515655446004
    runs = np.exp(spread * np.random.default_rng(0).standard_normal(200_000))
    drawn = np.minimum(1.0, runs) / np.maximum(1.0, runs)
    assert expected_accuracy(7.0, 7.0 * ratio) == pytest.approx(drawn.mean(), abs=2e-3)


def test_a_forecast_spread_by_more_than_2_6_is_not_relied_on_until_runs_show_otherwise():
    reliability = Reliability()
    assert reliability.of("t", 10.0, 26.0) >= PREDICTABLE > reliability.of("t", 10.0, 27.0)
    for _ in range(3):
        reliability.learn("t", 10.0, 10.0)
    # Three ends of accuracy 1 count nearly as much as what the forecast says: (3 x .59 + 2.94) / 5.94 = .79.
    assert reliability.of("t", 10.0, 27.0) == pytest.approx(0.79, abs=0.01)
    assert reliability.of("other", 10.0, 27.0) < PREDICTABLE


def test_runs_that_end_unlike_their_forecast_make_their_type_unpredictable():
    """The type is forecast 10 s for certain. Four runs of 100 s have an accuracy of .1 each: (3 + .4) / 7 = .49 < .6.

    Unpredictable pods are not held to the share, so the seventh and eighth core go to them by volume.
    """
    scheduler, _ = engine(node(cpu=10_000))
    now = 0.0
    for number in range(4):
        scheduler.handle([pod(f"p{number}", 1000, 10.0, now, type=SURE)], now)
        ran = scheduler.state.pod(f"d/p{number}")
        assert isinstance(ran, Pod)
        now += 100.0
        done = ran._replace(phase=PodPhase.SUCCEEDED, started_seconds=now - 100.0, finished_seconds=now)
        scheduler.handle([PodUpserted(done)], now)
    pods = [pod(f"q{number}", 2000, 10.0, now, type=SURE) for number in range(5)]
    rival = pod("rival", 2000, 11.0, now, type="11-11")
    # Of an unlearned type, certain, and of a larger volume: it would start if the others might hold 6 cores only.
    assert set(bound(scheduler.handle([*pods, rival], now))) == {f"q{number}" for number in range(5)}
