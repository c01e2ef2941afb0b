"""Policies that plan: the starts of the replay's kernels on one machine, promises, and what pods are told."""

from __future__ import annotations

import pytest
from engine_objects import node_upserted, pod_upserted
from hypothesis import given, settings
from live_cluster import Cluster, bound, clusters, engine, jobs_of, live_starts, node, pod, running
from replay_reference import replay

from cotide_core.classes import WorkloadClass
from cotide_core.config import PlansConfig
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.errors import InputError
from cotide_core.events import (
    HostPort,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Instruction, Wait, WaitReason
from cotide_core.kernels.compiled import compiles
from cotide_core.kernels.machine_plan import plan_machines
from cotide_core.planning.planner import PlannedStart
from cotide_core.recording.ledger import LedgerWriter, read_ledger
from cotide_core.state.node_columns import ALWAYS, RESOURCES_KEPT
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN
from cotide_lab.trace_replay.kernels.conservative import ConservativeRule, replay_conservative
from cotide_lab.trace_replay.kernels.easy import BY_RUN, BY_SUBMIT, BY_VOLUME, QueueRule, replay_queue
from cotide_lab.trace_replay.kernels.plan import PlanRule, replay_plan

PLANNING = ("easy", "easy-sjbf", "conservative", "svf")


@pytest.mark.parametrize(
    ("policy", "kernel", "rule"),
    [
        ("easy", replay_queue, QueueRule(0, BY_SUBMIT, BY_SUBMIT)),
        ("easy-sjbf", replay_queue, QueueRule(0, BY_SUBMIT, BY_RUN)),
        ("svf", replay_plan, PlanRule(0, BY_VOLUME)),
    ],
)
@settings(max_examples=100, deadline=None)
@given(log=jobs_of(outlive=True))
def test_on_one_machine_pods_start_when_the_replay_starts_them(policy, kernel, rule, log):
    jobs, capacity = log
    found = replay(kernel, jobs, rule._replace(capacity=capacity), GIVEN)[0]
    assert live_starts(policy, jobs, capacity) == found


@settings(max_examples=150, deadline=None)
@given(log=jobs_of(outlive=False))
def test_conservative_on_one_machine_starts_pods_when_the_replay_does_while_none_outlives_its_forecast(log):
    jobs, capacity = log
    assert (
        live_starts("conservative", jobs, capacity)
        == replay(replay_conservative, jobs, ConservativeRule(capacity), GIVEN)[0]
    )


@pytest.mark.parametrize("policy", PLANNING)
@settings(max_examples=100, deadline=None)
@given(world=clusters())
def test_while_no_pod_outlives_its_p90_no_reserved_start_is_missed_and_nobody_is_lost(policy, world):
    """Reserved are all waiting pods under conservative and the first under easy; nobody under svf."""
    nodes, pods = world
    cluster = Cluster(policy, nodes)
    for number, (at, run, estimate, cpu, memory) in enumerate(pods):
        cluster.submit(f"{number:02}", at, run, estimate, cpu, memory)
    starts = cluster.play()
    assert len(starts) == len(pods), "every pod fits somewhere, so every pod starts"
    for _, planned in cluster.planned:
        for key, (start, _, reserved) in planned.items():
            if reserved:
                assert starts[key] <= start, "no later than was promised at any time"
    waited = {key for _, planned in cluster.planned for key in planned}
    reserved = {key for _, planned in cluster.planned for key, one in planned.items() if one[2]}
    if policy == "conservative":
        assert reserved == waited
    elif policy == "svf":
        assert not reserved
    elif waited:
        assert reserved


FULL = (node(), running("r1", 2000, 50.0), running("r2", 1000, 100.0))
"""Four cores: two come back at 50, one at 100, one is free."""
QUEUE = (pod("wide", 4000, 10.0), pod("long", 1000, 200.0, 1.0), pod("short", 1000, 90.0, 2.0))
"""wide can start at 100; long would delay it, short would not."""


def test_easy_backfills_what_does_not_delay_the_first_and_reserves_for_it_alone() -> None:
    scheduler, out = engine("easy", *FULL, *QUEUE)
    assert bound(out) == {"short": "a"}
    waits = {one.key: one.message for one in out if isinstance(one, Wait)}
    assert waits == {"d/wide": "reserved on a", "d/long": "starts as soon as that delays no reserved pod"}
    planned = scheduler.planned()
    assert planned["d/wide"] == PlannedStart("a", 100.0, 110.0, 3, reserved=True)
    # Behind wide, and only as far as anybody can tell now. The two that ran are over by then, and short.
    assert planned["d/long"] == PlannedStart("a", 110.0, 310.0, 3, reserved=False)
    assert scheduler.predicted_starts(0.0) == {"d/wide": 100.0, "d/long": 110.0}


def test_a_pod_behind_others_that_no_node_could_hold_is_not_promised_a_turn() -> None:
    """Four cores in all: five will never do, whoever waits before it; behind nobody it is refused by the same words."""
    scheduler, out = engine("easy", *FULL, *QUEUE, pod("large", 5000, 10.0, 3.0))
    alone, refused = engine("easy", *FULL, pod("large", 5000, 10.0, 3.0))
    of_large = [
        [(one.reason, one.message) for one in found if isinstance(one, Wait) and one.key == "d/large"]
        for found in (out, refused)
    ]
    assert (
        of_large[0] == of_large[1] == [(WaitReason.INSUFFICIENT_SLACK, "0/1 nodes are available: 1 Insufficient cpu")]
    )
    assert "d/large" not in scheduler.planned() | alone.planned()


def test_conservative_reserves_for_all_and_keeps_what_it_promised() -> None:
    scheduler, out = engine("conservative", *FULL, *QUEUE)
    assert bound(out) == {"short": "a"}
    assert {key: (one.start_seconds, one.reserved) for key, one in scheduler.planned().items()} == {
        "d/wide": (100.0, True),
        "d/long": (110.0, True),
    }
    # Three cores are free from 90 on, when short and r1 are over: just long enough before wide.
    scheduler.handle([pod("late", 3000, 10.0, 3.0, priority=5)], 3.0)
    assert scheduler.planned()["d/late"].start_seconds == 90.0, "a higher priority overtakes, but delays no promise"
    assert scheduler.planned()["d/wide"].start_seconds == 100.0


def test_svf_plans_the_smallest_volume_first() -> None:
    """Volumes: wide 4 x 10 = 40, short 90, long 200. short starts now where it doesn't delay wide at 100."""
    scheduler, out = engine("svf", *FULL, *QUEUE)
    assert bound(out) == {"short": "a"}
    assert {key: one.start_seconds for key, one in scheduler.planned().items()} == {"d/wide": 100.0, "d/long": 110.0}


@pytest.mark.parametrize("policy", PLANNING)
def test_an_online_pod_never_waits_for_a_reservation(policy) -> None:
    online = pod("web", 1000, 0.0, 5.0, workload_class=WorkloadClass.ONLINE, requested_seconds=None)
    scheduler, _ = engine(policy, *FULL, pod("wide", 4000, 10.0))
    assert bound(scheduler.handle([online], 5.0)) == {"web": "a"}
    assert scheduler.planned() == {}, "wide has no start any more: the online pod is not expected to end"


@pytest.mark.parametrize("policy", PLANNING)
def test_a_pod_that_fits_nowhere_is_told_why_and_holds_nobody_up(policy) -> None:
    scheduler, out = engine(policy, node(), pod("huge", 9000, 1.0), pod("small", 1000, 500.0, 1.0))
    assert bound(out) == {"small": "a"}
    (waiting,) = [one for one in out if isinstance(one, Wait)]
    assert (waiting.reason, waiting.message) == ("InsufficientSlack", "0/1 nodes are available: 1 Insufficient cpu")
    assert scheduler.next_wakeup(0.0) is not None


@pytest.mark.parametrize("policy", PLANNING)
def test_asking_for_the_plan_changes_no_decision(policy) -> None:
    def play(*, asks: bool) -> list[list[Instruction]]:
        scheduler, out = engine(policy, *FULL, *QUEUE)
        outs = [out]
        for now, name in ((30.0, "r1"), (60.0, "short"), (120.0, "r2")):
            if asks:
                scheduler.planned()
                scheduler.predicted_starts(now)
            ended = scheduler.state.pod(f"d/{name}")
            assert ended is not None
            outs.append(scheduler.handle([PodUpserted(ended._replace(phase=PodPhase.SUCCEEDED))], now))
        return outs

    assert play(asks=True) == play(asks=False)


def test_a_pod_that_outlives_its_forecast_is_expected_to_run_twice_as_long() -> None:
    scheduler, _ = engine("conservative", *FULL, pod("wide", 4000, 10.0))
    assert scheduler.next_wakeup(0.0) == 50.0
    scheduler.handle([], 50.0)  # r1 is still there: 50 becomes 100, and 100 becomes 200 at 100
    assert scheduler.planned()["d/wide"].start_seconds == 100.0
    scheduler.handle([], 100.0)  # r2 should be gone, too: it is expected until 200
    assert scheduler.planned()["d/wide"].start_seconds == 200.0


def test_no_more_starts_in_a_cycle_than_allowed_and_the_rest_follow_at_once() -> None:
    scheduler, out = engine(
        "svf", node(cpu=9000), *(pod(f"{n}", 1000, 5.0) for n in range(5)), max_decisions_per_cycle=2
    )
    assert len(bound(out)) == 2
    assert scheduler.next_wakeup(0.0) == 0.0
    assert len(bound(scheduler.handle([], 0.0))) == 2


def test_jobs_are_planned_for_longer_beside_a_busy_service() -> None:
    """The heuristic stretches by 1 + 4 x rate / 140,000; 100,000/s is planned as 2^(67/4) = 110,218: x 4.15."""
    web = pod("web", 1000, 0.0, workload_class=WorkloadClass.ONLINE, workload="d/w", node="a", phase=PodPhase.RUNNING)
    events = [WorkloadUpserted(Workload("d/w")), node(), web, ServiceSampled("d/web", 100_000.0)]
    scheduler, _ = engine("conservative", *events, running("r", 3000, 10.0), pod("p", 3000, 10.0))
    assert scheduler.planned()["d/p"].start_seconds == pytest.approx(41.5, abs=0.1)


def test_the_kernel_is_compiled_before_the_first_cycle_and_never_again() -> None:
    engine("easy", *FULL, *QUEUE)
    engine("svf", node(), pod("alone", 1000, 1.0))
    assert len(getattr(plan_machines.ready(), "signatures", ())) == int(compiles())


@pytest.mark.parametrize("policy", PLANNING)
def test_two_pods_that_want_one_port_go_to_two_nodes_one_after_the_other(policy) -> None:
    port = (HostPort("TCP", "10.0.0.1", 80),)
    pods = [pod(name, 1000, 10.0, host_ports=port) for name in ("first", "second", "third")]
    scheduler, out = engine(policy, node("a"), node("b"), *pods)
    assert bound(out) == {"first": "a"}
    assert scheduler.next_wakeup(0.0) == 0.0
    assert bound(scheduler.handle([], 0.0)) == {"second": "b"}
    (waiting,) = [one for one in scheduler.handle([], 0.0) if isinstance(one, Wait)]
    assert waiting.message == "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports"


def test_pods_beyond_the_depth_are_told_so_and_follow_when_their_turn_comes() -> None:
    knobs = PlansConfig(depth=2)
    scheduler, out = engine("conservative", node(cpu=3000), *(pod(f"{n}", 1000, 5.0) for n in range(5)), plans=knobs)
    assert bound(out) == {"0": "a", "1": "a"}
    assert {one.message for one in out if isinstance(one, Wait)} == {
        "waits until it is among the first 2 pods, which are planned"
    }
    assert scheduler.next_wakeup(0.0) == 0.0
    assert bound(scheduler.handle([], 0.0)) == {"2": "a"}
    assert scheduler.planned()["d/3"] == PlannedStart("a", 5.0, 10.0, 3, reserved=True)


def test_plans_count_on_the_chosen_quantile_of_both_running_and_waiting_pods() -> None:
    """The heuristic's p50 is the estimate and its p90 twice that: spread by 2^(z / 1.2816), z being .8416 for p80, so
    2^.6567 = 1.5765. wide waits 50 x 1.5765 s and is kept 10 x 1.5765 s."""
    for quantile, factor in ((0.5, 1.0), (0.8, 1.5765), (0.9, 2.0), (0.99, 3.5192)):
        knobs = PlansConfig(quantile=quantile)
        scheduler = Scheduler(SchedulerConfig(policy="conservative", plans=knobs), HeuristicCatalogue())
        scheduler.handle([node(), running("r", 4000, 50.0), pod("wide", 4000, 10.0)], 0.0)
        planned = scheduler.planned()["d/wide"]
        assert planned.start_seconds == pytest.approx(50 * factor, rel=1e-4)
        assert planned.finish_seconds == pytest.approx(60 * factor, rel=1e-4)


@pytest.mark.parametrize(("field", "knobs"), [("quantile", {"quantile": 0.3}), ("depth", {"depth": 0})])
def test_knobs_that_make_no_plan_are_refused_by_name(field, knobs) -> None:
    with pytest.raises(InputError, match=f"plans.{field}: must be between"):
        PlansConfig(**knobs)


def test_a_ledger_says_what_was_planned_with_only_where_it_was_changed() -> None:
    changed = SchedulerConfig(policy="easy", plans=PlansConfig(quantile=0.8, depth=7))
    assert read_ledger([LedgerWriter(changed).header()]).config == changed
    assert b"plans" not in LedgerWriter(SchedulerConfig(policy="easy")).header()


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_nothing_is_planned_for_a_pod_whose_resource_got_the_column_of_one_that_is_gone(policy: str) -> None:
    spare = RESOURCES_KEPT - len(ALWAYS)
    devices = {f"example.com/d{number:02}": 1 for number in range(spare)}
    scheduler = Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())
    wanted = pod_upserted("wants", requests=(("cpu", 1000), ("example.com/new", 1)))
    scheduler.handle([node_upserted("a", 1000, offers=devices), node_upserted("b", 10), wanted], 0.0)
    assert scheduler.planned() == {}
    del devices["example.com/d00"]
    scheduler.handle([node_upserted("a", 1000, offers=devices)], 1.0)
    scheduler.handle([node_upserted("b", 10, offers={"example.com/new": 1})], 1.5)
    assert scheduler.planned() == {}
    assert bound(scheduler.handle([pod_upserted("other")], 2.0)) == {"other": "a"}
