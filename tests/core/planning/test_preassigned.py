"""List policies live: the schedules of Naghshnejad 2019's algorithms where all pods are there from the start, and by
hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_cluster import Cluster, bound, clusters, engine, jobs_of, live_starts, node, pod, running
from replay_reference import replay

from cotide_core.events import Node, NodeDeleted, NodeUpserted, PodPhase, PodUpserted
from cotide_core.instructions import Wait
from cotide_core.policies.list_scheduling import LIST_POLICIES
from cotide_lab.offline.hybrid import hybrid
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import list_schedule, on_given
from cotide_lab.offline.orders import ORDERS
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN
from cotide_lab.trace_replay.kernels.easy import BY_DEMAND, BY_RUN, BY_VOLUME
from cotide_lab.trace_replay.kernels.plan import PlanRule, replay_plan


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int, int]:
    """Return (size, demand) of some jobs, the capacity of a machine, and how many machines there are."""
    capacity = draw(st.integers(2, 8))
    jobs = draw(st.lists(st.tuples(st.integers(1, 12), st.integers(1, capacity)), min_size=1, max_size=14))
    return jobs, capacity, draw(st.integers(1, 5))


def played(policy: str, jobs: list[tuple[int, int]], capacity: int, machines: int) -> tuple[list[float], list[int]]:
    """Return starts and machines of jobs that are all submitted at 0."""
    cluster = Cluster(policy, {f"n{number}": (1000 * capacity, 1 << 40) for number in range(machines)})
    for number, (size, demand) in enumerate(jobs):
        cluster.submit(f"{number:02}", 0, size, size, 1000 * demand)
    starts = cluster.play()
    keys = [f"d/{number:02}" for number in range(len(jobs))]
    return [starts[key] for key in keys], [int(cluster.on[key][1:]) for key in keys]


def job_list(jobs: list[tuple[int, int]], capacity: int) -> JobList:
    sizes, demands = np.array(jobs, np.int64).T
    return JobList(sizes.copy(), demands.copy(), capacity)


@pytest.mark.parametrize("order", ["sjf", "sdf", "svf"])
@pytest.mark.parametrize("assignment", ["ef", "lw"])
@settings(max_examples=40, deadline=None)
@given(instance=instances())
def test_with_all_pods_there_from_the_start_the_schedule_is_that_of_list_scheduling(order, assignment, instance):
    jobs, capacity, machines = instance
    schedule = list_schedule(job_list(jobs, capacity), machines, order, assignment)
    assert played(f"{order}-{assignment}", *instance) == (schedule.starts.tolist(), schedule.machines.tolist())


@settings(max_examples=40, deadline=None)
@given(instance=instances())
def test_under_random_the_starts_are_those_of_list_scheduling_on_the_nodes_that_were_drawn(instance):
    jobs, capacity, machines = instance
    starts, on = played("svf-random", *instance)
    some = job_list(jobs, capacity)
    assert starts == on_given(some, machines, ORDERS["svf"](some), np.array(on)).starts.tolist()


@settings(max_examples=60, deadline=None)
@given(instance=instances())
def test_with_all_pods_there_from_the_start_hybrid_machines_are_those_of_the_paper(instance):
    jobs, capacity, machines = instance
    machines = max(2, machines)
    schedule = hybrid(job_list(jobs, capacity), machines)
    found = played("hybrid-machines", jobs, capacity, machines)
    assert found == (schedule.starts.tolist(), schedule.machines.tolist())


@pytest.mark.parametrize(("order", "code"), [("sjf", BY_RUN), ("sdf", BY_DEMAND), ("svf", BY_VOLUME)])
@pytest.mark.parametrize("machine", ["ef", "lw", "random"])
@settings(max_examples=30, deadline=None)
@given(log=jobs_of(outlive=True))
def test_on_one_machine_every_rule_starts_pods_when_the_replay_does(order, code, machine, log):
    jobs, capacity = log
    found = replay(replay_plan, jobs, PlanRule(capacity, code), GIVEN)[0]
    assert live_starts(f"{order}-{machine}", jobs, capacity) == found


@pytest.mark.parametrize("policy", [*sorted(LIST_POLICIES), "hybrid-machines"])
@settings(max_examples=15, deadline=None)
@given(world=clusters())
def test_every_pod_starts_and_no_node_is_overfilled_whatever_the_nodes_are_like(policy, world):
    nodes, pods = world
    cluster = Cluster(policy, nodes)
    for number, (at, run, estimate, cpu, memory) in enumerate(pods):
        cluster.submit(f"{number:02}", at, run, estimate, cpu, memory)
    assert len(cluster.play()) == len(pods)


THREE = (pod("long", 1000, 90.0), pod("wide", 3000, 20.0, 1.0), pod("short", 2000, 10.0, 2.0))
"""Volumes in core-seconds: long 90, wide 60, short 20."""


@pytest.mark.parametrize(
    ("policy", "first"),
    # Three cores: each order's first starts, and long beside short or first of the small ones.
    [("sjf-ef", {"short": "a"}), ("sdf-ef", {"long": "a", "short": "a"}), ("svf-ef", {"short": "a"})],
)
def test_the_order_decides_who_starts_first(policy, first):
    """Under sjf and svf short takes two of three cores until 10, wide all from 10 to 30; long would delay it. Under sdf
    long comes first, short fits beside it, and wide waits until 90."""
    scheduler, out = engine(policy, node(cpu=3000), *THREE)
    assert bound(out) == first
    starts = {key: one.start_seconds for key, one in scheduler.planned().items()}
    assert starts == ({"d/wide": 90.0} if policy == "sdf-ef" else {"d/wide": 10.0, "d/long": 30.0})


def test_least_work_counts_what_is_left_of_running_pods_as_a_share_of_the_node():
    """a has 4 cores and 1 x 100 s left, 25 s of the whole node; b has 2 cores and 1 x 30 s left, 15 s. p goes to b, and
    makes it 15 + 2 x 40 / 2 = 55 s; so q goes to a."""
    nodes = (node("a", 4000), node("b", 2000))
    held = (running("r", 1000, 100.0, "a"), running("s", 1000, 30.0, "b"))
    scheduler, out = engine("sjf-lw", *nodes, *held, pod("p", 2000, 40.0), pod("q", 2000, 50.0))
    assert bound(out) == {"q": "a"}
    assert scheduler.planned()["d/p"].node == "b"
    assert scheduler.planned()["d/p"].start_seconds == 30.0
    assert [one.message for one in out if isinstance(one, Wait)] == [
        "is planned on the node that it was given, behind the pods there"
    ]


@pytest.mark.parametrize("policy", ["sjf-lw", "sjf-random"])
def test_a_pod_keeps_its_node_and_gets_another_when_that_is_gone(policy):
    """Both nodes are full, so p waits on one of them, and stays there when the other is free."""
    scheduler, out = engine(
        policy, node("a"), node("b"), running("r", 4000, 50.0, "a"), running("s", 4000, 60.0, "b"), pod("p", 4000, 10.0)
    )
    assert not bound(out)
    given = scheduler.planned()["d/p"].node
    other = {"a": "b", "b": "a"}[given]
    ended = scheduler.state.pod({"a": "d/r", "b": "d/s"}[other])
    assert ended is not None
    assert not bound(scheduler.handle([PodUpserted(ended._replace(phase=PodPhase.SUCCEEDED))], 5.0))
    assert scheduler.planned()["d/p"].node == given
    assert bound(scheduler.handle([NodeDeleted(given)], 6.0)) == {"p": other}


def test_random_nodes_are_drawn_by_the_seed():
    def drawn(seed: int) -> dict[str, str]:
        nodes = [node(f"n{number}") for number in range(10)]
        return bound(engine("sjf-random", *nodes, *(pod(f"p{n}", 1000, 5.0) for n in range(12)), seed=seed)[1])

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_pod_of_more_than_half_a_machine_waits_for_its_part_though_another_node_is_free():
    """Of four nodes one is for pods of more than two cores. The second of these waits for the first, the small one has
    the second node."""
    pods = (pod("wide", 3000, 10.0), pod("wider", 4000, 20.0), pod("small", 2000, 5.0))
    scheduler, out = engine("hybrid-machines", *(node(f"n{number}") for number in range(4)), *pods)
    assert bound(out) == {"wide": "n0", "small": "n1"}
    assert scheduler.planned()["d/wider"].node == "n0"
    assert scheduler.planned()["d/wider"].start_seconds == 10.0
    (waiting,) = [one for one in out if isinstance(one, Wait)]
    assert waiting.message == "is planned behind other pods in its part of the nodes"


def test_a_pod_that_no_node_of_its_part_may_take_is_planned_on_all():
    """The larger of two nodes is for pods of more than half of it. picky may run nowhere else."""
    large = NodeUpserted(Node("large", (("cpu", 8000), ("memory", 1 << 30), ("pods", 110)), (("disk", "ssd"),)))
    picky = pod("picky", 1000, 5.0, node_selector=(("disk", "ssd"),))
    _, out = engine("hybrid-machines", large, node("tiny", 2000), picky, pod("free", 1000, 5.0))
    assert bound(out) == {"picky": "large", "free": "tiny"}


def test_who_waits_behind_a_pod_that_outlives_its_forecast_gets_another_node():
    """r was to end at 50. b joins at 10, empty; p waits for a until 50, and then it has the node with less work."""
    scheduler, out = engine("sjf-lw", node("a"), running("r", 4000, 50.0, "a"), pod("p", 4000, 10.0))
    assert not bound(out)
    assert not bound(scheduler.handle([node("b")], 10.0))
    assert scheduler.next_wakeup(10.0) == 50.0
    assert bound(scheduler.handle([], 50.0)) == {"p": "b"}


def test_who_waits_for_its_part_behind_a_pod_that_outlives_its_forecast_may_start_anywhere():
    """One of two nodes is for pods of much demand. r holds it until 50, as was expected, and is still there then."""
    events = (node("a"), node("b"), running("r", 4000, 50.0, "a"), pod("p", 4000, 10.0))
    scheduler, out = engine("hybrid-machines", *events)
    assert not bound(out)
    assert bound(scheduler.handle([], 50.0)) == {"p": "b"}
