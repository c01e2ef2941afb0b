"""The tables of docs/compatibility.md are those of the results in the tree."""

from __future__ import annotations

import pytest
from compatibility import PAGE, current, perf_tables, specs_table, written
from specs import NOT_RUN, Results, Spec


def test_the_page_shows_the_results_that_are_kept() -> None:
    assert PAGE.read_text() == current(), "run python benchmarks/upstream/compatibility.py"


def test_a_column_is_a_run_and_kube_scheduler_comes_first() -> None:
    mine = Results("1.35.4", "cotide-fifo", {"a [Serial]": Spec("failed"), "b": Spec("passed")})
    theirs = Results("1.35.4", "kube-scheduler", {"a [Serial]": Spec("passed"), "b": Spec(NOT_RUN)})
    assert specs_table([mine, theirs]).splitlines() == [
        "| spec | kube-scheduler, 1.35.4 | fifo, 1.35.4 |",
        "| --- | --- | --- |",
        "| a \\[Serial] | passed | failed |",
        "| b | not run | passed |",
        "| passed | 1 of 2 | 1 of 2 |",
    ]


def test_a_policy_has_a_table_of_its_own() -> None:
    run = {
        "workload": "Basic/5",
        "pods": 1,
        "bound": 1,
        "pods_per_second": 10.0,
        "cpu_seconds_per_1000_pods": 1.0,
        "most_on_one_node": 1,
        "zone_skew": 0,
        "violations": {},
        "unbound": 0,
        "faults": [],
        "load_average": 2.0,
    }
    runs = [{**run, "scheduler": name} for name in ("kube-scheduler", "cotide-fifo", "cotide-qpsm")]
    text = perf_tables({"plan": {"kubernetes": "1.35.4"}, "machine": {"cores": 2, "memory_gib": 24}, "runs": runs})
    assert text.startswith("Kubernetes 1.35.4, 2 cores, 24 GiB, load 2 to 2.")
    assert [line for line in text.splitlines() if line.startswith("Policy")] == ["Policy `fifo`:", "Policy `qpsm`:"]


def test_a_page_without_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no block specs"):
        written("nothing", specs="| a |")
