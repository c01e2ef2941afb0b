"""The checker sees each breach that it is there for, and none where there is none."""

from __future__ import annotations

from typing import Any

import pytest
from invariant_checker import InvariantChecker
from manifests import container, node_manifest, pod_manifest


def pod(name: str, on: str = "", cpu: str = "1", phase: str = "Pending", **more: Any) -> dict[str, Any]:
    """A pod as a watch brings it: its node and its phase are what the checker follows."""
    named = {"cls": "batch", "namespace": "ns", "uid": name, "creationTimestamp": "t", **more}
    return pod_manifest(
        name, cpu, spec={"nodeName": on, "containers": [container(cpu)]}, status={"phase": phase}, **named
    )


class Story:
    """Tells a checker one version after the other."""

    def __init__(self) -> None:
        self.checker, self._version = InvariantChecker(), 0
        self._known: dict[str, dict[str, Any]] = {}
        self.is_so("nodes", node_manifest("n", "2", memory="1Gi", pods="3"))

    def is_so(self, plural: str, obj: dict[str, Any]) -> None:
        self._version += 1
        name = obj["metadata"]["name"]
        self.checker.see(plural, self._version, self._known.get(name), obj)
        self._known[name] = obj

    def is_gone(self, plural: str, name: str) -> None:
        self._version += 1
        self.checker.see(plural, self._version, self._known.pop(name), None)

    @property
    def breaches(self) -> list[str]:
        return self.checker.violations


def test_a_full_node_is_no_breach_and_one_pod_more_is() -> None:
    story = Story()
    for name in ("a", "b"):
        story.is_so("pods", pod(name))
        story.is_so("pods", pod(name, on="n"))
    assert story.breaches == []  # 2 x 1 cpu on a node of 2
    story.is_so("pods", pod("c", cpu="100m"))
    story.is_so("pods", pod("c", on="n", cpu="100m"))
    assert story.breaches == ["version 7: node n offers 2000 cpu, its pods ask for 2100: ['ns/a', 'ns/b', 'ns/c']"]


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "gone"])
def test_what_has_ended_makes_room_and_what_is_leaving_does_not(end: str) -> None:
    story = Story()
    story.is_so("pods", pod("a", on="n", cpu="2"))
    if end == "gone":
        story.is_gone("pods", "a")
    else:
        story.is_so("pods", pod("a", on="n", cpu="2", phase=end))
    story.is_so("pods", pod("b", on="n", cpu="2"))
    assert story.breaches == []
    story.is_so("pods", pod("b", on="n", cpu="2", deletionTimestamp="t"))
    story.is_so("pods", pod("c", on="n", cpu="1"))
    assert len(story.breaches) == 1


def test_a_node_that_comes_back_is_weighed_with_what_is_on_it() -> None:
    story = Story()
    story.is_so("pods", pod("a", on="n"))
    story.is_gone("nodes", "n")
    story.is_so("pods", pod("b", on="n", cpu="2"))
    assert story.breaches == []
    story.is_so("nodes", node_manifest("n", "2", memory="1Gi", pods="3"))
    assert "offers 2000 cpu, its pods ask for 3000" in story.breaches[0]


def test_more_pods_than_a_node_takes() -> None:
    story = Story()
    for name in "abcd":
        story.is_so("pods", pod(name, on="n", cpu="0"))
    assert story.breaches == ["version 5: node n offers 3 pods, its pods ask for 4: ['ns/a', 'ns/b', 'ns/c', 'ns/d']"]


def test_a_pod_that_is_bound_again_or_moved() -> None:
    story = Story()
    story.is_so("pods", pod("a", on="n"))
    story.is_so("pods", pod("a", on="m"))
    assert story.breaches == ["version 3: pod ns/a was bound to n at 2, now to 'm'"]


def test_an_online_pod_that_leaves_unless_the_run_took_it() -> None:
    story = Story()
    story.checker.taken.add("mine")
    story.is_so("pods", pod("a", cls="online", uid="mine"))
    story.is_so("pods", pod("a", cls="online", uid="mine", deletionTimestamp="t"))
    assert story.breaches == []
    story.is_so("pods", pod("b", cls="online"))
    story.is_so("pods", pod("b", cls="online", deletionTimestamp="t"))
    assert len(story.breaches) == 1


def test_an_index_of_a_job_that_runs_or_succeeds_twice() -> None:
    story = Story()
    labels = {"cotide.dev/job": "j", "cotide.dev/index": "0"}
    story.is_so("pods", pod("j-0", labels=labels))
    story.is_so("pods", pod("j-0-r1", labels=labels))
    assert story.breaches == ["version 3: index 0 of Job j has 2 pods alive: ['ns/j-0', 'ns/j-0-r1']"]
    story.breaches.clear()
    for name in ("j-0", "j-0-r1"):
        story.is_so("pods", pod(name, labels=labels, phase="Succeeded"))
    assert story.breaches == ["version 5: index 0 of Job j succeeded 2 times"]


def test_what_a_job_left_that_is_no_more_does_not_count_for_the_next_one_of_its_name() -> None:
    story = Story()
    labels = {"cotide.dev/job": "j", "cotide.dev/index": "0"}

    def of(uid: str) -> dict[str, Any]:
        owner = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": uid, "controller": True}
        return {"labels": labels, "ownerReferences": [owner]}

    story.is_so("jobs", {"metadata": {"name": "j", "namespace": "ns", "uid": "now"}})
    story.is_so("pods", pod("j-0", **of("before")))
    story.is_so("pods", pod("j-0-r1", **of("now")))
    story.is_so("pods", pod("j-0", phase="Succeeded", **of("before")))
    story.is_so("pods", pod("j-0-r1", phase="Succeeded", **of("now")))
    assert story.breaches == []
    assert [name for name, one in story.checker.pods.items() if story.checker.orphaned(one)] == ["ns/j-0"]
    story.is_so("pods", pod("j-0-r2", phase="Succeeded", **of("now")))
    assert story.breaches == [
        "version 7: index 0 of Job j had succeeded, and got ns/j-0-r2",
        "version 7: index 0 of Job j succeeded 2 times",
    ]


@pytest.mark.parametrize("gone", [True, False])
def test_a_pod_that_succeeded_and_is_let_go_before_its_job_counts_it(gone: bool) -> None:
    story = Story()
    kept: dict[str, Any] = {"finalizers": ["cotide.dev/job-tracking"], "phase": "Succeeded"}

    def let_go(index: int) -> None:
        labels = {"cotide.dev/job": "j", "cotide.dev/index": str(index)}
        story.is_so("pods", pod(f"j-{index}", labels=labels, **kept))
        if gone:
            story.is_gone("pods", f"j-{index}")
        else:
            story.is_so("pods", pod(f"j-{index}", labels=labels, phase="Succeeded"))

    let_go(7)  # of a Job that is gone
    story.is_so("jobs", {"metadata": {"name": "j", "namespace": "ns"}, "status": {"completedIndexes": "0-1"}})
    let_go(1)
    assert story.breaches == []
    let_go(2)
    assert story.breaches == ["version 8: pod ns/j-2 had succeeded and was let go; its Job counts '0-1'"]
