"""Gangs under policies that plan: rigid jobs of many processors, one start for all, others backfilled around it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from live_cluster import Cluster, bound, engine, jobs_of, node, pod, running
from replay_reference import Job, replay

from cotide_core.events import Gang, PodDeleted, PodPhase, PodUpserted
from cotide_core.instructions import Instruction, Wait
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN
from cotide_lab.trace_replay.kernels.easy import BY_RUN, BY_SUBMIT, QueueRule, replay_queue

PLANNING = ("easy", "easy-sjbf", "conservative", "svf", "slack", "hybrid", "svf-lw", "sjf-random", "hybrid-machines")


def gang_of(name: str, count: int, cpu: int, estimate: float, at: float = 0.0, minimum: int = 0):
    rule = Gang(f"d/{name}", minimum or count, 60.0)
    return [pod(f"{name}-{index}", cpu, estimate, at, gang=rule) for index in range(count)]


def rigid_starts(policy: str, jobs: list[Job], nodes: dict[str, tuple[int, int]]) -> list[float]:
    """Play a log in which a job of p processors is a gang of p pods of one core each; returns each job's start."""
    cluster = Cluster(policy, nodes)
    for job in jobs:
        rule = Gang(f"d/{job.number:02}", job.demand, 1e6)
        for index in range(job.demand):
            cluster.submit(f"{job.number:02}-{index}", job.submit, job.run, job.forecast, 1000, gang=rule)
    starts = cluster.play()
    for job in jobs:
        of_job = {starts[f"d/{job.number:02}-{index}"] for index in range(job.demand)}
        assert len(of_job) == 1, "all pods of a gang start at once"
    return [starts[f"d/{job.number:02}-0"] for job in jobs]


@pytest.mark.parametrize(
    ("policy", "kernel", "rule"),
    [
        ("easy", replay_queue, QueueRule(0, BY_SUBMIT, BY_SUBMIT)),
        ("easy-sjbf", replay_queue, QueueRule(0, BY_SUBMIT, BY_RUN)),
    ],
)
@settings(max_examples=60, deadline=None)
@given(log=jobs_of(outlive=True))
def test_rigid_jobs_as_gangs_start_when_the_replay_of_the_batch_log_starts_them(policy, kernel, rule, log):
    """The replay counts processors of one pool; on several nodes a reservation also says which, so here is one."""
    jobs, capacity = log
    found = replay(kernel, jobs, rule._replace(capacity=capacity), GIVEN)[0]
    assert rigid_starts(policy, jobs, {"a": (1000 * capacity, 1 << 30)}) == found


@settings(max_examples=40, deadline=None)
@given(log=jobs_of(outlive=False))
def test_on_nodes_of_one_core_every_gang_starts_and_none_overfills(log):
    """`Cluster` asserts that no node is overfilled; `rigid_starts` that nobody is lost and all start at once."""
    jobs, capacity = log
    rigid_starts("easy", jobs, {f"n{at}": (1000, 1 << 30) for at in range(capacity)})


FULL = (node(), running("r1", 2000, 50.0), running("r2", 1000, 100.0))
"""Four cores: two come back at 50, one at 100, one is free."""


def test_the_whole_gang_is_reserved_one_start_and_others_are_backfilled_around_it() -> None:
    """Four pods of a core start together at 100; 90 s fit before that on the free core, 200 s don't."""
    others = (pod("long", 1000, 200.0, 1.0), pod("short", 1000, 90.0, 2.0))
    scheduler, out = engine("easy", *FULL, *gang_of("wide", 4, 1000, 10.0), *others)
    assert bound(out) == {"short": "a"}
    planned = scheduler.planned()
    assert {planned[f"d/wide-{index}"].start_seconds for index in range(4)} == {100.0}
    assert all(planned[f"d/wide-{index}"].reserved for index in range(4))
    message = next(one.message for one in out if isinstance(one, Wait) and one.key == "d/wide-2")
    assert message == "gang d/wide: all start together, this one reserved on a"


@pytest.mark.parametrize("policy", PLANNING)
def test_a_gang_starts_in_one_cycle_or_waits_whole(policy) -> None:
    """Eight cores: x takes all of them, y waits until x is over."""
    scheduler, out = engine(policy, node("a"), node("b"), *gang_of("x", 8, 1000, 10.0), *gang_of("y", 4, 1000, 10.0))
    first = bound(out)
    assert len(first) in (4, 8), first
    assert len({name.split("-")[0] for name in first}) == 1
    out = scheduler.handle(
        [
            pod(name, 1000, 10.0, gang=Gang(f"d/{name[0]}", len(first), 60.0), node=on, phase=PodPhase.SUCCEEDED)
            for name, on in first.items()
        ],
        10.0,
    )
    assert len(bound(out)) == 12 - len(first)


@pytest.mark.parametrize("policy", PLANNING)
def test_a_planned_gang_that_loses_a_pod_is_not_started_with_the_rest(policy) -> None:
    scheduler, _ = engine(policy, node(), running("r", 4000, 50.0), *gang_of("x", 4, 1000, 10.0))
    ended = PodUpserted(running("r", 4000, 50.0).pod._replace(phase=PodPhase.SUCCEEDED))
    out = scheduler.handle([PodDeleted("d/x-3", "u-x-3"), ended], 50.0)
    assert not bound(out)
    out = _until_quiet(scheduler, gang_of("x", 4, 1000, 10.0)[3:], 51.0)
    assert len(bound(out)) == 4


def _until_quiet(scheduler, events, now: float) -> list[Instruction]:
    out = scheduler.handle(events, now)
    for _ in range(5):
        out += scheduler.handle([], now)
    return out
