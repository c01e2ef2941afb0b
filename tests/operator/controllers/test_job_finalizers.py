"""Pods of a Job that our finalizer keeps: counted once, let go after that, whoever deletes them and when."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_builders import plan, plan_job, pod, spec

from cotide_kube.objects import PodObject
from cotide_operator.controllers.child_pods import ChildPod, job_pod_name, see
from cotide_operator.controllers.job_reconciler import JobPlan, Outcome, Progress, ReconcilerCache


def kept(index: int, phase: str = "Running", *, retry: int = 0, **more: object) -> ChildPod:
    return pod(index, phase, retry=retry, tracked=True, **more)


def released(after: JobPlan) -> list[str]:
    return [one.name for one in after.release]


def test_a_pod_that_ended_is_counted_and_then_let_go_and_one_that_runs_is_not() -> None:
    after = plan([kept(0, "Succeeded"), kept(1)])
    assert after.progress.completed == {0}
    assert released(after) == ["count-0"]
    again = plan([kept(0, "Succeeded"), kept(1)], progress=after.progress)
    assert again.progress == after.progress  # it is there until the finalizer is off, and is not counted again
    assert released(again) == ["count-0"]


def test_a_failed_pod_is_let_go_and_not_counted_again_while_it_is_still_there() -> None:
    memory = ReconcilerCache()
    first = plan([kept(0, "Failed")], memory=memory, completions=1)
    assert released(first) == ["count-0"]
    again = plan([kept(0, "Failed")], progress=first.progress, memory=memory, completions=1)
    assert again.progress.failures == 1
    assert released(again) == ["count-0"]


def test_an_end_that_nobody_watched_is_found_on_the_pod_that_waits_for_it() -> None:
    ended = kept(0, "Succeeded", deleting=True, let_go=True)
    after = plan([ended], completions=1)  # without memory of it: the controller is new
    assert after.progress.outcome is Outcome.SUCCEEDED
    assert after.make == ()


def test_a_pod_that_is_being_stopped_is_waited_for_and_may_still_succeed() -> None:
    memory = ReconcilerCache()
    stopping = plan([kept(0, deleting=True)], memory=memory, completions=1)
    assert (stopping.make, stopping.release, stopping.progress) == ((), (), Progress())
    done = plan([kept(0, "Succeeded", deleting=True, let_go=True)], memory=memory, completions=1)
    assert done.progress.outcome is Outcome.SUCCEEDED


def test_a_pod_whose_grace_is_over_was_taken_away_and_its_place_is_free_at_once() -> None:
    gone = kept(0, deleting=True, let_go=True)
    after = plan([gone], completions=1, backoff_limit=0)
    assert (after.progress.evictions, after.progress.failures) == (1, 0)
    assert after.make == ((0, 1),)
    assert released(after) == ["count-0"]


def test_a_pod_without_our_finalizer_is_there_until_it_is_gone() -> None:
    after = plan([pod(0, "Running", deleting=True, let_go=True)], completions=1)
    assert (after.make, after.release, after.progress) == ((), (), Progress())


def test_a_withdrawn_pod_is_let_go_uncounted_and_its_name_is_used_again_when_it_is_gone() -> None:
    memory = ReconcilerCache()
    smaller = plan([kept(0), kept(1)], memory=memory, parallelism=1)
    assert [one.index for one in smaller.delete] == [1]
    stopped = kept(1, "Failed", deleting=True, let_go=True)
    larger = plan([kept(0), stopped], progress=smaller.progress, memory=memory, parallelism=2)
    assert (larger.progress, larger.make) == (Progress(), ((2, 0),))  # count-1 is a name in use: the next index instead
    assert released(larger) == ["count-1"]
    assert plan([kept(0)], progress=larger.progress, memory=memory, parallelism=2).make == ((1, 0),)


def test_a_withdrawn_pod_that_finished_its_work_has_succeeded() -> None:
    memory = ReconcilerCache()
    plan([kept(0), kept(1)], memory=memory, parallelism=1)
    after = plan([kept(0), kept(1, "Succeeded", deleting=True, let_go=True)], memory=memory, parallelism=1)
    assert after.progress.completed == {1}
    assert released(after) == ["count-1"]


@pytest.mark.parametrize("last", ["Succeeded", "Failed"])
def test_a_job_that_is_over_keeps_no_pod_whether_it_ended_or_still_runs(last: str) -> None:
    pods = [kept(0, last), kept(1), pod(2, "Running")]
    progress = Progress(frozenset({1, 2}) if last == "Succeeded" else frozenset())
    after = plan(pods, progress=progress, backoff_limit=0)
    assert after.progress.outcome is Outcome(last)
    assert [one.index for one in after.delete] == [1, 2]
    assert released(after) == ["count-0", "count-1"]
    assert released(plan(pods, progress=after.progress)) == ["count-0", "count-1"]


def test_an_end_that_is_not_counted_yet_is_kept() -> None:
    # A status that was set back: an earlier pod of the index is alive, and its turn comes first.
    after = plan([kept(0), kept(0, "Succeeded", retry=1)], completions=1)
    assert (after.progress, after.release) == (Progress(), ())


def test_a_pod_beyond_the_completions_is_let_go_when_it_ended() -> None:
    assert released(plan([kept(0), kept(4, "Succeeded"), kept(5)], completions=1)) == ["count-4"]


@pytest.mark.parametrize(
    ("finished", "own"),
    [
        ("2026-11-20T13:00:40Z", True),  # 20 s before the deletion was asked for (due 13:01:30, with 30 s of grace)
        ("2026-11-20T13:00:57Z", False),  # 3 s before: the clocks may be as far apart
        ("2026-11-20T13:01:10Z", False),  # while it was stopped
        (None, False),
    ],
)
def test_a_pod_that_failed_before_somebody_deleted_it_failed_by_itself(finished: str | None, own: bool) -> None:
    terminated = {"exitCode": 1, **({"finishedAt": finished} if finished else {})}
    seen = see(
        msgspec.convert(
            {
                "metadata": {
                    "name": "count-0",
                    "labels": {"cotide.dev/index": "0"},
                    "finalizers": ["a/b", "cotide.dev/job-tracking"],
                    "deletionTimestamp": "2026-11-20T13:01:30Z",
                    "deletionGracePeriodSeconds": 30,
                },
                "status": {
                    "phase": "Failed",
                    "containerStatuses": [{"name": "work", "state": {"terminated": terminated}}],
                },
            },
            PodObject,
        )
    )
    assert (seen.tracked, seen.deleting, seen.let_go) == (True, True, False)
    assert seen.lost_its_node is not own
    assert replace(seen, disrupted=True).lost_its_node


class Cluster:
    """Keeps a deleted pod while it carries the finalizer; controllers crash anywhere and sleep while pods end."""

    def __init__(self, completions: int, parallelism: int, seed: int) -> None:
        self.spec, self.rng = spec(completions, parallelism, backoff_limit=1000), random.Random(seed)
        self.pods: dict[str, ChildPod] = {}
        self.stored, self.memory, self.now = Progress(), ReconcilerCache(), 0.0
        self.failed = self.lost = 0
        self.succeeded: dict[int, int] = {}

    def look(self) -> None:
        self.now += 500.0  # beyond every back-off
        result = plan_job(self.spec, self.stored, list(self.pods.values()), self.memory, self.now)
        if self._crashed():  # before the status is written
            return
        self.stored = result.progress
        if self._crashed():
            return
        for index, retry in result.make:
            assert index not in self.succeeded, "it runs a second time"
            name = job_pod_name("count", index, retry)
            assert name not in self.pods, "made while its name is in use"
            self.pods[name] = kept(index, "Pending", retry=retry)
        if self._crashed():
            return
        for doomed in result.delete:
            self.delete(doomed.name)
        for one in result.release:
            if self._crashed():
                return
            self.release(one.name)

    def _crashed(self) -> bool:
        crashed = self.rng.random() < 0.1
        if crashed:
            self.memory = ReconcilerCache()
        return crashed

    def release(self, name: str) -> None:
        if name in self.pods:
            self.pods[name] = replace(self.pods[name], tracked=False)
            self._collect(name)

    def delete(self, name: str) -> None:
        one = self.pods[name]
        if one.deleting:
            return
        forced = one.phase in ("Pending", "Succeeded", "Failed") or self.rng.random() < 0.3
        if forced and one.phase in ("Pending", "Running"):
            self.lost += 1
        doomed = (one.finished_seconds or self.now) + 10.0
        self.pods[name] = replace(one, deleting=True, let_go=forced, doomed_seconds=doomed)
        self._collect(name)

    def _collect(self, name: str) -> None:
        if self.pods[name].let_go and not self.pods[name].tracked:
            del self.pods[name]

    def live(self) -> None:
        for name, one in list(self.pods.items()):
            fate = self.rng.random()
            if one.let_go:
                continue
            if one.deleting and one.phase == "Running":  # its kubelet stops it
                if fate < 0.3:
                    self._end(one, "Succeeded")
                elif fate < 0.6:
                    self.lost += 1
                    self.pods[name] = replace(one, phase="Failed", finished_seconds=one.doomed_seconds, let_go=True)
            elif one.phase == "Pending" and fate < 0.5:
                self.pods[name] = replace(one, phase="Running")
            elif one.phase == "Running" and fate < 0.3:
                self._end(one, "Succeeded")
            elif one.phase == "Running" and fate < 0.4:
                self.failed += 1
                self._end(one, "Failed")
            elif fate > 0.8:
                self.delete(name)

    def _end(self, one: ChildPod, phase: str) -> None:
        if phase == "Succeeded":
            self.succeeded[one.index] = self.succeeded.get(one.index, 0) + 1
        self.pods[one.name] = replace(one, phase=phase, finished_seconds=self.now, let_go=one.deleting)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 4))
def test_every_end_is_counted_once_though_nobody_watches_and_everybody_deletes(
    seed: int, completions: int, parallelism: int
) -> None:
    cluster = Cluster(completions, parallelism, seed)
    for _ in range(600):
        cluster.look()
        for _ in range(cluster.rng.choice((1, 1, 5))):
            cluster.live()
        if cluster.stored.outcome is not None:
            break
    assert cluster.stored.outcome is Outcome.SUCCEEDED
    assert cluster.succeeded == dict.fromkeys(range(completions), 1)
    assert (cluster.stored.failures, cluster.stored.evictions) == (cluster.failed, cluster.lost)
    for _ in range(50):
        cluster.look()
    assert not [one for one in cluster.pods.values() if one.tracked]
