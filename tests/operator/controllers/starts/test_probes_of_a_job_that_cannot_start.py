"""A Job none of whose pods can be started: two go on trying, the others wait, and the next ones try other nodes."""

from __future__ import annotations

from typing import Any

from job_builders import LIMITS, plan_job, pod, spec

from cotide_operator.apis.types import JobSpec
from cotide_operator.controllers.child_pods import ChildPod
from cotide_operator.controllers.job_reconciler import AVOIDED_NODES, JobPlan, Progress, ReconcilerCache
from cotide_operator.controllers.starts.start_conditions import NAMED, avoiding, started_condition
from cotide_operator.controllers.starts.start_times import SLOW_SECONDS

WHY = "ErrImagePull: absent"


def stuck(index: int, **more: Any) -> ChildPod:
    """A pod on a node of its own, which can't start it."""
    return pod(index, **{"node": f"n{index}", "cannot_start": WHY, **more})


class Parallel:
    """A Job of five pods at once, looked at again and again."""

    def __init__(self, wanted: JobSpec | None = None) -> None:
        self.memory, self.progress, self._spec = ReconcilerCache(), Progress(), wanted or spec(5, 5, 6)

    def at(self, seconds: float, *pods: ChildPod) -> JobPlan:
        found = plan_job(self._spec, self.progress, list(pods), self.memory, seconds, LIMITS)
        self.progress = found.progress
        return found


def names(pods: tuple[ChildPod, ...]) -> list[str]:
    return [one.name for one in pods]


def test_while_no_pod_can_be_started_two_are_made_and_the_others_held_back() -> None:
    job = Parallel()
    first = job.at(1000.0, stuck(0))
    assert (first.make, first.held_back) == (((1, 0),), 3)
    both = job.at(1001.0, stuck(0), stuck(1))
    assert (both.make, both.delete, both.held_back) == ((), (), 3)


def test_those_that_hold_a_node_beyond_two_are_taken_back_after_a_minute_and_count_as_nothing() -> None:
    job = Parallel()
    five = [stuck(index) for index in range(5)]
    assert job.at(1000.0, *five).delete == ()
    later = job.at(1000.0 + SLOW_SECONDS, *five)
    assert sorted(names(later.delete)) == ["count-2", "count-3", "count-4"]
    assert (later.progress.failures, later.held_back) == (0, 3)
    gone = job.at(1070.0, *five[:2])
    assert (gone.make, gone.progress.failures, gone.progress.retries) == ((), 0, {})


def test_those_whose_containers_are_being_created_stay_meanwhile() -> None:
    job = Parallel()
    slow = [pod(index, node="n", creating="containers are being created") for index in (2, 3, 4)]
    job.at(1000.0, stuck(0), stuck(1), *slow)
    assert job.at(1000.0 + SLOW_SECONDS, stuck(0), stuck(1), *slow).delete == ()


def test_once_one_runs_all_are_made_again_under_their_names() -> None:
    job = Parallel()
    five = [stuck(index) for index in range(5)]
    job.at(1000.0, *five)
    job.at(1000.0 + SLOW_SECONDS, *five)
    job.at(1070.0, *five[:2])
    plan = job.at(1080.0, pod(0, "Running", node="n0"), stuck(1))
    assert (plan.make, plan.held_back) == (((2, 0), (3, 0), (4, 0)), 0)


def test_so_is_a_job_whose_probe_ended_between_two_looks() -> None:
    for phase in ("Succeeded", "Failed"):
        job = Parallel()
        job.at(1000.0, stuck(0))
        assert len(job.at(1010.0, pod(0, phase, node="n0")).make) >= 4


def test_given_up_probes_are_followed_by_no_more_than_two() -> None:
    job = Parallel()
    both = [stuck(0), stuck(1)]
    job.at(1000.0, *both)
    late = job.at(1100.0, *both)
    assert (names(late.given_up), late.make, late.progress.failures) == (["count-0", "count-1"], (), 2)
    assert job.at(1101.0, *(stuck(index, deleting=True) for index in (0, 1))).given_up == ()
    after = job.at(1200.0)
    assert (after.make, after.held_back) == (((0, 1), (1, 1)), 3)


def test_a_few_bad_nodes_hold_nobody_back_while_other_pods_run_or_ran_since() -> None:
    job = Parallel(spec(9, 4, 6))
    bad = [stuck(0), stuck(1)]
    job.at(1000.0, *bad, pod(2, "Running", node="a"), pod(3, "Running", node="a"))
    plan = job.at(1050.0, *bad, pod(2, "Succeeded", node="a"), pod(3, "Succeeded", node="a"))
    assert (plan.make, plan.held_back) == (((4, 0), (5, 0)), 0)


def test_a_gang_tries_with_as_many_as_must_start_together() -> None:
    gang = spec(5, 5, 6).model_copy(update={"gang": spec_gang(4)})
    job = Parallel(gang)
    five = [stuck(index) for index in range(5)]
    job.at(1000.0, *five)
    assert names(job.at(1000.0 + SLOW_SECONDS, *five).delete) == ["count-4"]


def spec_gang(minimum: int) -> Any:
    """The gang of a Job's spec."""
    body = spec(5, 5).model_dump(by_alias=True, mode="json", exclude_none=True) | {"gang": {"minMember": minimum}}
    return JobSpec.model_validate(body).gang


def test_a_group_of_kueues_stays_whole_since_it_is_admitted_whole() -> None:
    job = Parallel()
    five = [stuck(index, kueue_group=True) for index in range(5)]
    job.at(1000.0, *five)
    later = job.at(1000.0 + SLOW_SECONDS, *five)
    assert (later.delete, later.held_back) == ((), 0)


def test_a_new_leader_holds_back_at_once() -> None:
    assert Parallel().at(5000.0, stuck(0), stuck(1)).make == ()


def test_a_node_on_which_a_pod_was_given_up_is_avoided_until_one_runs_there() -> None:
    job = Parallel(spec(1, 1, 6))
    job.at(1000.0, stuck(0))
    job.at(1100.0, stuck(0))
    assert list(job.memory.avoided) == ["n0"]
    job.at(1200.0, pod(0, "Running", node="n1", retry=1))
    assert list(job.memory.avoided) == ["n0"]
    job.at(1300.0, pod(0, "Running", node="n0", retry=1))
    assert list(job.memory.avoided) == []


def test_the_latest_of_many_such_nodes_are_remembered() -> None:
    job = Parallel(spec(1, 1, 99))
    for number in range(AVOIDED_NODES + 1):
        seconds = 1000.0 + 1000.0 * number
        job.at(seconds, stuck(0, node=f"m{number}", retry=number))
        job.at(seconds + 100.0, stuck(0, node=f"m{number}", retry=number))
    assert list(job.memory.avoided) == [f"m{number}" for number in range(1, AVOIDED_NODES + 1)]


def test_the_next_pod_prefers_other_nodes_beside_what_its_template_prefers() -> None:
    liked = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    template = {"spec": {"affinity": {"nodeAffinity": {preferred: [liked]}, "podAffinity": {}}}}
    made = avoiding(template, ["n0"])
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": ["n0"]}]
    assert made["spec"]["affinity"] == {
        "nodeAffinity": {preferred: [liked, {"weight": 100, "preference": {"matchFields": fields}}]},
        "podAffinity": {},
    }
    assert template["spec"]["affinity"]["nodeAffinity"] == {preferred: [liked]}
    assert avoiding(template, []) is template
    assert avoiding({"spec": {}}, ["n0"])["spec"]["affinity"]["nodeAffinity"][preferred]


def test_the_condition_names_the_first_pods_and_says_what_is_held_back() -> None:
    found = started_condition([stuck(index) for index in range(NAMED + 2)], (), (), held_back=45)
    assert found is not None
    assert found["message"] == (
        f"5 pods can't be started: count-0 on n0: {WHY}; count-1 on n1: {WHY}; count-2 on n2: {WHY}; and 2 more;"
        " 45 more pods made once one runs"
    )
