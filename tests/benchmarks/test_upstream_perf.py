"""Workloads of scheduler_perf are read with their sizes, templates are rendered, and runs are compared as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from perf_cluster import named, path
from perf_figures import HEADS, comparisons, faulty, geometric_mean, rows, run_of, table
from perf_workloads import CHOSEN, FOLDERS, render, sizes_of, workloads

BASIC: dict[str, Any] = {
    "name": "SchedulingBasic",
    "workloadTemplate": [{"opcode": "createNodes", "countParam": "$initNodes"}, {"opcode": "barrier"}],
    "workloads": [{"name": "5Nodes", "params": {"initNodes": 5, "initPods": 1}}],
}


@pytest.fixture
def perf(tmp_path: Path) -> Path:
    """A folder like scheduler_perf's, with one test."""
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        tests = [BASIC] if folder == "misc" else []
        (tmp_path / folder / "performance-config.yaml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    return tmp_path


def run(scheduler: str, workload: str = "Basic/5", pods: int = 10, seconds: float = 1.0, **more: Any) -> dict[str, Any]:
    """One run in which every pod is bound."""
    return {
        **run_of([seconds] * pods, pods, 0.02),
        "workload": workload,
        "scheduler": scheduler,
        "most_on_one_node": 2,
        "zone_skew": 1,
        "violations": {},
        "unbound": 0,
        "faults": [],
        **more,
    }


def test_a_workload_has_upstreams_sizes_and_those_that_are_asked_for(perf: Path) -> None:
    own, changed = workloads(perf, ["SchedulingBasic/5Nodes", "SchedulingBasic/5Nodes@initPods=7"])
    assert own.sizes == {"initNodes": 5, "initPods": 1}
    assert changed.sizes == {"initNodes": 5, "initPods": 7}


def test_sizes_of_our_own_need_no_workload_of_that_name(perf: Path) -> None:
    [one] = workloads(perf, ["SchedulingBasic/500Nodes"])
    assert (one.name, one.sizes) == ("SchedulingBasic/500Nodes", CHOSEN["SchedulingBasic/500Nodes"])


@pytest.mark.parametrize("asked", ["Nothing/5Nodes", "SchedulingBasic/7Nodes", "SchedulingBasic/5Nodes@initPods=few"])
def test_a_workload_that_is_not_there_is_refused(perf: Path, asked: str) -> None:
    with pytest.raises(ValueError, match=r"no test|no workload|invalid literal"):
        list(workloads(perf, [asked]))


def test_counts_come_from_the_sizes_or_from_the_operation(perf: Path) -> None:
    [one] = workloads(perf, ["SchedulingBasic/5Nodes"])
    counts = [one.count(operation) for operation in ({"countParam": "$initNodes"}, {"count": 3}, {})]
    assert counts == [5, 3, 1]


def test_templates_of_a_workload_are_found_from_its_folder(perf: Path) -> None:
    [one] = workloads(perf, ["SchedulingBasic/5Nodes"])
    assert one.template(one.pod) == perf.resolve() / "templates" / "pod-default.yaml"


def test_every_chosen_size_is_a_name_and_a_number() -> None:
    assert all(sizes and all(number >= 0 for number in sizes.values()) for sizes in CHOSEN.values())
    assert sizes_of("A/b@n=1,m=2") == ("A/b", {"n": 1, "m": 2})


def test_templates_are_rendered_with_index_and_count() -> None:
    text = "a: pod-{{ .Index }}\nb: {{div .Index 5}}\nc: {{ mod .Index 12 }}\nd: {{ div 30000 .Count }}Mi\n"
    assert render(text, 17, 100) == {"a": "pod-17", "b": 3, "c": 5, "d": "300Mi"}


@pytest.mark.parametrize("expression", ["add .Index 1", "div .Index", ".Name", ".Index 3", "div"])
def test_an_expression_that_is_not_understood_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"no expression|invalid literal"):
        render(f"a: {{{{ {expression} }}}}", 1, 1)


def test_fields_that_gos_decoder_takes_are_named_as_the_api_names_them() -> None:
    body = render("spec: {topologySpreadConstraints: [{maxSkew: 1, NodeTaintsPolicy: Honor}]}", 0, 1)
    assert body["spec"]["topologySpreadConstraints"] == [{"maxSkew": 1, "nodeTaintsPolicy": "Honor"}]


def test_objects_with_a_generated_name_get_different_ones() -> None:
    bodies: list[dict[str, Any]] = [{"metadata": {"generateName": "pod-"}} for _ in range(2)]
    first, second = map(named, bodies)
    assert first != second
    assert bodies[0]["metadata"] == {"name": first}


def test_paths_name_collections_objects_and_parts() -> None:
    assert path("Pod", "shop", "web", "status") == "/api/v1/namespaces/shop/pods/web/status"
    assert path("CSINode", name="n1") == "/apis/storage.k8s.io/v1/csinodes/n1"
    assert path("Node") == "/api/v1/nodes"


def test_a_rate_counts_from_the_start_to_the_last_binding() -> None:
    found = run_of([0.5, 2.0, 4.0], 4, 0.03)
    assert (found["bound"], found["pods"], found["pods_per_second"]) == (3, 4, 0.8)
    assert found["cpu_seconds_per_1000_pods"] == 10.0


def test_a_run_without_bindings_has_no_rate() -> None:
    assert run_of([], 5, 1.0)["pods_per_second"] == 0.0


def test_workloads_are_compared_with_kube_schedulers() -> None:
    [one] = comparisons([run("kube-scheduler"), run("cotide-fifo", seconds=0.5), run("cotide-qpsm")], "cotide-fifo")
    assert one.ratio == 2.0
    assert one.cpu_ratio == 1.0


def test_a_workload_without_kube_schedulers_run_is_left_out() -> None:
    assert comparisons([run("cotide-fifo")], "cotide-fifo") == []


def test_of_repeats_the_median_rate_and_the_worst_evenness_count() -> None:
    mine = [run("cotide-fifo", seconds=s, most_on_one_node=n) for s, n in ((1.0, 2), (2.0, 9), (10.0, 3))]
    [one] = comparisons([run("kube-scheduler"), *mine], "cotide-fifo")
    assert (one.mine.pods_per_second, one.mine.most_on_one_node) == (5.0, 9)


@pytest.mark.parametrize(
    "fault", [{"violations": {"taint": 1}}, {"bound": 9}, {"unbound": 2}, {"faults": ["a pod moved"]}]
)
def test_every_fault_of_cotide_makes_its_workload_faulty(fault: dict[str, Any]) -> None:
    compared = comparisons([run("kube-scheduler"), run("cotide-fifo", **fault)], "cotide-fifo")
    assert faulty(compared) == ["Basic/5"]


def test_what_kube_scheduler_leaves_too_is_no_fault() -> None:
    runs = [run(scheduler, violations={"affinity": 3}) for scheduler in ("kube-scheduler", "cotide-fifo")]
    assert faulty(comparisons(runs, "cotide-fifo")) == []


def test_the_geometric_mean_leaves_out_what_has_no_ratio() -> None:
    assert geometric_mean([1.0, 4.0, None]) == pytest.approx(2.0)
    assert geometric_mean([None]) is None


def test_the_table_has_a_row_for_each_workload_and_the_means() -> None:
    runs = [
        run(scheduler, workload, seconds=seconds)
        for workload, faster in (("a", 4.0), ("b", 1.0))
        for scheduler, seconds in (("kube-scheduler", 4.0), ("cotide-fifo", 4.0 / faster))
    ]
    compared = comparisons(runs, "cotide-fifo")
    assert [row[0] for row in rows(compared)] == ["a", "b", "geometric mean"]
    assert [row[3] for row in rows(compared)] == ["4.00", "1.00", "2.00"]
    assert all(len(row) == len(HEADS) for row in rows(compared))
    assert len(table(compared).splitlines()) == 4
