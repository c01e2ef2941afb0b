"""What became of upstream's specs is read as it is, and only what was run and passed counts as passed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from specs import MESSAGE_CHARACTERS, NOT_RUN, Results, Spec, is_wanted, missed, of_report, table


def ran(text: str, state: str, seconds: float = 1.5, *, group: str = "[sig-scheduling]", **more: Any) -> dict[str, Any]:
    """One spec as ginkgo reports it."""
    return {
        "ContainerHierarchyTexts": [f"{group} SchedulerPredicates"],
        "LeafNodeText": text,
        "LeafNodeType": "It",
        "State": state,
        "RunTime": int(seconds * 1e9),
        **more,
    }


def results(scheduler: str = "cotide-fifo", **states: str) -> Results:
    return Results("1.35.4", scheduler, {name: Spec(state, 2.0) for name, state in states.items()})


def test_a_report_gives_each_spec_its_state_and_seconds() -> None:
    failed = ran("host ports", "failed", 61.0, Failure={"Message": "node-1 has both"})
    found = of_report([{"SpecReports": [ran("resource limits", "passed"), failed]}])
    assert found == {
        "SchedulerPredicates resource limits": Spec("passed", 1.5),
        "SchedulerPredicates host ports": Spec("failed", 61.0, "node-1 has both"),
    }


def test_a_message_is_one_short_line() -> None:
    failed = ran("host ports", "failed", Failure={"Message": f"node-1\n  has {'both ' * 200}"})
    [spec] = of_report([{"SpecReports": [failed]}]).values()
    assert spec.message.startswith("node-1 has both both")
    assert len(spec.message) == MESSAGE_CHARACTERS


@pytest.mark.parametrize("state", ["skipped", "pending", ""])
def test_a_spec_that_ginkgo_left_out_was_not_run(state: str) -> None:
    [spec] = of_report([{"SpecReports": [ran("taints", state)]}]).values()
    assert spec.state == NOT_RUN


@pytest.mark.parametrize("state", ["failed", "timedout", "panicked", "interrupted", "aborted"])
def test_every_other_state_is_no_pass(state: str) -> None:
    found = Results("1.35.4", "cotide-fifo", of_report([{"SpecReports": [ran("taints", state)]}]))
    assert found.passed == 0


def test_a_report_leaves_out_other_groups_and_what_is_no_spec() -> None:
    reports = [ran("of storage", "passed", group="[sig-storage]"), ran("", "passed", LeafNodeType="BeforeSuite")]
    assert of_report([{"SpecReports": reports}, {"SpecReports": None}]) == {}


def test_a_spec_that_fails_is_missed_only_where_kube_scheduler_passes_it() -> None:
    baseline = results("kube-scheduler", one="passed", two="failed", three=NOT_RUN)
    assert missed(results(one="failed", two="failed", three=NOT_RUN), baseline) == ["one"]


@pytest.mark.parametrize("mine", [{}, {"one": NOT_RUN}])
def test_a_spec_that_was_not_run_is_missed(mine: dict[str, str]) -> None:
    assert missed(results(**mine), results("kube-scheduler", one="passed")) == ["one"]


def test_a_narrowed_run_misses_only_what_it_was_asked_for() -> None:
    baseline = results("kube-scheduler", preemption="passed", taints="passed", spread="passed")
    mine = results(preemption="failed")
    assert missed(mine, baseline, focus="preem|taints") == ["preemption", "taints"]
    assert missed(mine, baseline, skip="preem|spread") == ["taints"]


@pytest.mark.parametrize(
    ("focus", "skip", "wanted"),
    [("", "", True), ("Preemption", "", False), ("Predicates .*ports", "", True), ("ports", "Predicates", False)],
)
def test_focus_and_skip_choose_by_the_whole_name(focus: str, skip: str, wanted: bool) -> None:
    assert is_wanted("SchedulerPredicates [Serial] host ports", focus, skip) is wanted


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = Results("1.35.4", "cotide-fifo", {"one": Spec("failed", 3.2, "why"), "two": Spec("passed", 1.0)})
    written.write(tmp_path / "folder" / "results.json")
    assert Results.read(tmp_path / "folder" / "results.json") == written


def test_a_narrowed_run_replaces_only_what_it_ran() -> None:
    found = results(one="passed", two=NOT_RUN, three="failed").over(results(one="failed", two="passed", four="passed"))
    assert {name: spec.state for name, spec in found.specs.items()} == {
        "one": "passed",
        "two": "passed",
        "three": "failed",
        "four": "passed",
    }


def test_the_table_shows_both_results_of_every_spec_and_counts() -> None:
    baseline = results("kube-scheduler", one="passed", two="passed")
    lines = table(results(one="passed", three="failed"), baseline).splitlines()
    rows = {line.split()[-1]: line for line in lines[1:-1]}
    assert rows["one"].split() == ["passed", "2.0", "passed", "one"]
    assert rows["two"].split() == ["not", "run", "0.0", "passed", "two"]
    assert rows["three"].split() == ["failed", "2.0", "not", "run", "three"]
    assert lines[-1] == "cotide-fifo passed 1 specs of Kubernetes 1.35.4, kube-scheduler 2"
