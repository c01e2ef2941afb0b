"""A Job's next steps: what is wanted against what is seen."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_builders import plan, plan_job, pod, spec

from cotide_operator.apis.types import JobSpec
from cotide_operator.controllers.child_pods import ChildPod, job_pod_name
from cotide_operator.controllers.job_reconciler import (
    Outcome,
    Progress,
    ReconcilerCache,
    backoff_seconds,
    read_indexes,
    read_progress,
    write_indexes,
    write_retries,
)


def test_a_new_job_makes_its_first_pods_up_to_the_parallelism() -> None:
    assert plan([]).make == ((0, 0), (1, 0))


def test_the_next_index_is_made_when_one_succeeds() -> None:
    after = plan([pod(0, "Succeeded"), pod(1, "Running")])
    assert after.progress.completed == {0}
    assert after.make == ((2, 0),)


def test_a_job_whose_completions_are_reached_has_succeeded() -> None:
    after = plan([pod(0, "Succeeded"), pod(1, "Succeeded"), pod(2, "Succeeded")])
    assert after.progress.outcome is Outcome.SUCCEEDED
    assert after.make == ()


def test_finished_work_is_not_admitted_again_when_its_pods_are_gone() -> None:
    after = plan([], progress=Progress(completed=frozenset({0, 1})))
    assert after.make == ((2, 0),)
    assert plan([], progress=Progress(outcome=Outcome.SUCCEEDED)).make == ()


def test_a_failed_pod_is_replaced_after_the_back_off_under_a_new_name() -> None:
    memory = ReconcilerCache()
    first = plan([pod(0, "Failed"), pod(1, "Running")], memory=memory, completions=2)
    assert (first.progress.failures, first.progress.evictions) == (1, 0)
    assert first.make == ()
    assert first.recheck_seconds == 1010.0
    later = plan_job(spec(2), first.progress, [pod(0, "Failed"), pod(1, "Running")], memory, now_seconds=1010.0)
    assert later.make == ((0, 1),)
    assert later.progress.failures == 1  # the same failed pod, still there, is not counted twice


@pytest.mark.parametrize(
    "lost",
    [
        pod(0, "Failed", reason="Evicted"),
        pod(0, "Failed", reason="OutOfcpu"),
        pod(0, "Failed", disrupted=True),
        pod(0, "Failed", deleting=True),
    ],
)
def test_a_pod_that_lost_its_node_is_replaced_at_once_and_is_no_failure(lost: ChildPod) -> None:
    after = plan([lost], completions=1, backoff_limit=0)
    assert (after.progress.failures, after.progress.evictions) == (0, 1)
    assert after.make == ((0, 1),)


def test_a_pod_that_was_met_and_is_gone_counts_as_evicted_once() -> None:
    memory = ReconcilerCache()
    plan([pod(0, "Running")], memory=memory, completions=1)
    gone = plan([], memory=memory, completions=1)
    assert gone.progress.evictions == 1
    assert gone.make == ((0, 1),)
    again = plan_job(spec(1), gone.progress, [], memory, 1001.0)
    assert again.progress.evictions == 1
    assert again.make == ((0, 1),)


def test_a_pod_that_is_being_evicted_is_waited_for() -> None:
    after = plan([pod(0, "Running", deleting=True)], completions=1)
    assert after.make == ()
    assert after.progress.evictions == 0


def test_one_failure_more_than_the_limit_fails_the_job_and_takes_the_others_down() -> None:
    progress = Progress(failures=2, retries={0: 2})
    after = plan([pod(0, "Failed", retry=2), pod(1, "Running")], progress=progress, backoff_limit=2)
    assert after.progress.failures == 3
    assert after.progress.outcome is Outcome.FAILED
    assert [doomed.index for doomed in after.delete] == [1]


def test_a_smaller_parallelism_takes_waiting_pods_first_and_is_no_eviction() -> None:
    memory = ReconcilerCache()
    pods = [pod(0, "Running", node="a"), pod(1), pod(2, "Running", node="b")]
    assert plan(pods, memory=memory, parallelism=3).delete == ()
    smaller = plan(pods, memory=memory, parallelism=1)
    assert [surplus.index for surplus in smaller.delete] == [1, 2]
    after = plan([pods[0]], progress=smaller.progress, memory=memory, parallelism=1)
    assert after.progress.evictions == 0
    assert plan([pods[0]], progress=after.progress, memory=memory, parallelism=2).make == ((1, 0),)


def test_fewer_completions_take_the_pods_beyond_them() -> None:
    after = plan([pod(0, "Running"), pod(2, "Running")], completions=2, parallelism=2)
    assert [stray.index for stray in after.delete] == [2]
    assert after.make == ((1, 0),)


def test_a_status_that_was_lost_is_rebuilt_from_the_pods_that_are_left() -> None:
    pods = [
        pod(0, "Failed"),
        pod(0, "Failed", retry=1, reason="Evicted"),
        pod(0, "Running", retry=2),
        pod(1, "Succeeded"),
    ]
    after = plan(pods, completions=2)
    assert after.progress == Progress(frozenset({1}), {0: 2}, failures=1, evictions=1)
    assert after.make == ()


def test_the_back_off_doubles_from_ten_seconds_to_six_minutes() -> None:
    assert [backoff_seconds(n) for n in (1, 2, 3, 6, 7, 500)] == [10, 20, 40, 320, 360, 360]


def test_progress_survives_the_status() -> None:
    progress = Progress(frozenset({0, 1, 2, 7}), {2: 1, 5: 3}, failures=4, evictions=5)
    status = {
        "completedIndexes": write_indexes(progress.completed),
        "retriedIndexes": write_retries(progress.retries),
        "failures": 4,
        "evictions": 5,
        "phase": "Running",
    }
    assert status["completedIndexes"] == "0-2,7"
    assert read_progress(status) == progress
    assert read_progress({}) == Progress()
    assert read_progress({"phase": "Failed"}).outcome is Outcome.FAILED


@given(st.sets(st.integers(0, 200)))
def test_index_ranges_read_back(indexes: set[int]) -> None:
    assert read_indexes(write_indexes(indexes)) == indexes


class Cluster:
    """A tiny cluster that keeps the controllers' promises to check: names once, one pod an index."""

    def __init__(self, wanted: JobSpec, seed: int) -> None:
        self.spec, self.rng = wanted, random.Random(seed)
        self.pods: dict[str, ChildPod] = {}
        self.stored, self.memory, self.now = Progress(), ReconcilerCache(), 0.0
        self.true_failures = self.true_losses = 0

    def step(self) -> None:
        self.now += 500.0  # beyond every back-off
        children = sorted(self.pods.values(), key=lambda child: (child.index, child.retry))
        result = plan_job(self.spec, self.stored, children, self.memory, self.now)
        assert result.progress.completed >= self.stored.completed
        assert result.progress.failures >= self.stored.failures
        assert result.progress.evictions >= self.stored.evictions
        self.stored = result.progress
        if self.rng.random() < 0.2:  # a crash after the write of the status, before anything is made
            self.memory = ReconcilerCache()
            return
        for index, retry in result.make:
            name = job_pod_name("count", index, retry)
            if name not in self.pods:
                self.pods[name] = pod(index, retry=retry)
        for doomed in result.delete:
            self.pods.pop(doomed.name, None)
        alive = [child for child in self.pods.values() if child.alive]
        assert len({child.index for child in alive}) == len(alive) <= self.spec.parallelism

    def disturb(self) -> None:
        for child in [child for child in self.pods.values() if child.alive]:
            fate = self.rng.random()
            if fate < 0.35:
                self.pods[child.name] = replace(child, phase="Succeeded")
            elif fate < 0.5:
                self.pods[child.name] = replace(child, phase="Failed")
                self.true_failures += 1
            elif fate < 0.6:
                self.pods[child.name] = replace(child, phase="Failed", reason="Evicted")
                self.true_losses += 1
            elif fate < 0.65:
                del self.pods[child.name]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 4))
def test_through_failures_evictions_and_crashes_every_end_is_counted_once(
    seed: int, completions: int, parallelism: int
) -> None:
    cluster = Cluster(spec(completions, parallelism, backoff_limit=1000), seed)
    for _ in range(400):
        cluster.step()
        if cluster.stored.outcome is not None:
            break
        cluster.disturb()
    cluster.step()
    assert cluster.stored.outcome is Outcome.SUCCEEDED
    assert len(cluster.stored.completed) == completions
    assert cluster.stored.failures == cluster.true_failures
    assert cluster.stored.evictions >= cluster.true_losses


def test_a_pod_that_was_evicted_and_exits_with_0_is_complete_as_for_batch_v1() -> None:
    after = plan([pod(0, "Succeeded", disrupted=True, deleting=True)], completions=1, backoff_limit=0)
    assert (after.progress.completed, after.progress.evictions, after.progress.failures) == ({0}, 0, 0)
    assert after.progress.outcome is Outcome.SUCCEEDED


def test_a_pod_over_its_own_storage_limit_is_a_failure_and_waits_like_one() -> None:
    after = plan([pod(0, "Failed", reason="Evicted", own_limit=True)], completions=1, backoff_limit=6)
    assert (after.progress.failures, after.progress.evictions, after.make) == (1, 0, ())
