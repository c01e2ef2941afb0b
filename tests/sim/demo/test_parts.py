"""The demo's outer parts: options, manifests, the live view and the summary."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_sim.cluster.scorecard import Summary
from cotide_sim.demo.facts import RECENT_DECISIONS, DecisionFact, PodFact, RunFacts, ServiceFact, Stage
from cotide_sim.demo.live import LiveView, progress_line, render
from cotide_sim.demo.manifests import job_manifest, service_manifest
from cotide_sim.demo.options import DemoOptions, checked, parse_policies
from cotide_sim.demo.summary import PolicyOutcome, as_data, print_tables
from cotide_sim.workloads.plan import PlannedJob, PlannedService


def some_options(**changes: object) -> DemoOptions:
    given: dict[str, object] = {
        "seconds": 20.0,
        "nodes": 4,
        "seed": 0,
        "policies": ("qpsm",),
        "data": None,
        "ledger": None,
        "output": "table",
    }
    return DemoOptions(**(given | changes))  # type: ignore[arg-type]  # a builder of test values


def some_facts() -> RunFacts:
    facts = RunFacts(policy="qpsm", started_seconds=100.0, duration_seconds=400.0, now_seconds=200.0, jobs_planned=3)
    facts.pods["u1"] = PodFact("sort-0", WorkloadClass.BATCH, Stage.RUNNING, "n1")
    facts.pods["u2"] = PodFact("grep-0", WorkloadClass.GRATIS, Stage.QUEUED)
    facts.pods["u3"] = PodFact("web-0", WorkloadClass.ONLINE, Stage.RUNNING, "n1")
    facts.services["web-0"] = ServiceFact("web-0", "n1", 5000.0, 12.0, 10.0)
    facts.node_cpu_share = {"n1": 0.75, "n2": 0.25}
    facts.node_load_share = {"n1": 1.1, "n2": 0.5}
    facts.overload_slots = 3
    facts.reclaimed_millicores = {"n1": 2000, "n2": 5000}
    facts.decisions.append(DecisionFact(150.0, "grep-0", None, "2 would break the latency limit of demo/web (p=0.83)"))
    return facts


def some_figures() -> Summary:
    return Summary(
        pods_bound=10,
        jobs_finished=3,
        waiting_seconds_total=120.0,
        waiting_seconds_mean=12.0,
        qos_violation_ratio=0.25,
        cpu_utilisation=0.5,
        evictions=0,
        overload_slots=0,
        online_evictions=0,
        services_never_ran=["demo/db"],
        online_pods_waiting=2,
    )


def test_policies_are_split_and_checked() -> None:
    assert parse_policies("qpsm, fifo") == ("qpsm", "fifo")
    with pytest.raises(InputError, match="there is no 'fiffo', did you mean 'fifo'"):
        parse_policies("qpsm,fiffo")
    with pytest.raises(InputError, match="named twice"):
        parse_policies("fifo,fifo")
    with pytest.raises(InputError, match="at least one"):
        parse_policies(" , ")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seconds": 1.0}, "--seconds: 1 is too short"),
        ({"nodes": 0}, "--nodes: 0 nodes"),
        ({"data": Path("no/such/place")}, "--data: there is no directory"),
    ],
)
def test_an_option_that_cannot_work_is_named(change: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        checked(some_options(**change))


def test_a_ledger_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "qpsm").mkdir()
    (tmp_path / "qpsm" / "ledger.jsonl").write_text("")
    with pytest.raises(InputError, match="holds a ledger already"):
        checked(some_options(ledger=tmp_path))


def test_the_true_run_time_of_a_job_is_for_the_fake_nodes_only() -> None:
    job = PlannedJob(
        name="sort-1",
        at_seconds=3.0,
        workload_class=WorkloadClass.BATCH,
        type="sort",
        input_bytes=2_000_000,
        priority=100,
        completions=2,
        millicores=1500,
        memory_bytes=2 * 2**30,
        isolated_seconds=42.0,
        requested_seconds=None,
    )
    manifest = job_manifest(job)
    assert manifest["spec"]["template"]["metadata"]["annotations"] == {"sim.cotide.dev/lone-seconds": "42.000"}
    assert "requestedSeconds" not in manifest["spec"]
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "1500m", "memory": "2Gi"}


def test_a_service_starts_its_rates_with_the_run() -> None:
    service = PlannedService(
        name="web",
        replicas=2,
        millicores=2000,
        memory_bytes=2**30,
        limit_milliseconds=2.0,
        rates=(10.0, 20.5),
        rates_step_seconds=30.0,
    )
    manifest = service_manifest(service, origin_seconds=1234.5)
    annotations = manifest["spec"]["template"]["metadata"]["annotations"]
    assert annotations["sim.cotide.dev/rates"] == "10.0,20.5"
    assert annotations["sim.cotide.dev/rates-origin-seconds"] == "1234.500"
    assert manifest["spec"]["qos"] == {"latencyP95Milliseconds": 2.0}


def test_the_live_view_shows_counts_nodes_services_and_reasons() -> None:
    shown = "\n".join(drawn(some_facts()))
    for words in ("policy 1 of 5", "1m 40s of 6m 40s", "web-0", "12.00", "would break the latency limit", "mean 50%",
                  "3 overloads", "7 cores offered to batch and gratis pods, 0 held"):  # fmt: skip
        assert words in shown


def drawn(facts: RunFacts, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render(facts, 1, 5, width=width, height=height))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]  # the StringIO given above


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 50)])
@pytest.mark.parametrize("nodes", [1, 40, 2000])
def test_the_live_view_of_a_large_cluster_fits_the_screen(width: int, height: int, nodes: int) -> None:
    facts = some_facts()
    for number in range(nodes):
        name = f"a-node-with-a-long-name-{number}"
        facts.node_cpu_share[name], facts.node_load_share[name] = 0.5, 1.2
        facts.services[f"service-{number}"] = ServiceFact(f"service-{number}", name, 123456.0, 123.4, 0.5)
    for number in range(RECENT_DECISIONS):
        facts.decisions.append(
            DecisionFact(150.0, "a-pod-with-a-long-name-0", None, f"{number} Insufficient cpu, " * 20)
        )
    lines = drawn(facts, width, height)
    assert len(lines) < height
    assert {len(line) for line in lines} == {width}
    assert any("overloads" in line for line in lines)
    assert sum("Insufficient cpu" in line for line in lines) >= 3


def test_without_a_terminal_a_line_is_written_now_and_then() -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=False)
    facts = some_facts()
    with LiveView(console, 2, 5) as view:
        for wall_seconds in (0.0, 1.0, 4.9, 5.0):
            view.show(facts, wall_seconds)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # the StringIO given above
    assert lines == [progress_line(facts, 2, 5)] * 2
    assert "1 queued, 1 running" in lines[0]
    assert "1 of 1 services over their limit" in lines[0]


def test_the_json_has_the_promised_keys_in_order() -> None:
    figures = some_figures()
    outcomes = {"qpsm": PolicyOutcome(figures, {"web": 0.25}, "somewhere/qpsm")}
    document = as_data(7, 40, outcomes, scenario="latency", slot_seconds=25.0)
    assert (document["seed"], document["nodes"]) == (7, 40)
    assert (document["scenario"], document["overload_slot_seconds"]) == ("latency", 25.0)
    assert document["policies"]["qpsm"]["services_never_ran"] == ["demo/db"]
    assert document["policies"]["qpsm"]["online_pods_waiting"] == 2
    assert list(document["policies"]["qpsm"])[:9] == [
        "pods_bound",
        "jobs_finished",
        "waiting_seconds_total",
        "waiting_seconds_mean",
        "qos_violation_ratio",
        "cpu_utilisation",
        "evictions",
        "overload_slots",
        "online_evictions",
    ]
    assert document["policies"]["qpsm"]["ledger"] == "somewhere/qpsm"


def test_the_tables_show_each_policy_and_each_service() -> None:
    figures = some_figures()
    console = Console(file=io.StringIO(), width=160)
    print_tables(console, {"qpsm": PolicyOutcome(figures, {"web": 0.25}, None)})
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO given above
    for words in ("qpsm", "2m", "12.0s", "25.00%", "50.0%", "web", "25.0%"):
        assert words in shown


@pytest.mark.parametrize("width", [20, 40, 60, 80, 160])
def test_the_tables_cut_no_figure_and_no_heading_however_narrow_the_screen_is(width: int) -> None:
    figures = some_figures() | {"waiting_seconds_total": 123456.0, "evictions": 1234, "overload_slots": 4321}
    names = ("predictive", "hierarchical", "qpsm", "fifo", "random", "conservative")
    console = Console(file=io.StringIO(), width=width)
    print_tables(console, {name: PolicyOutcome(figures, {"shop/a-service": 0.125}, None) for name in names})
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO given above
    assert "…" not in shown
    lines = shown.splitlines()
    rows = [line for line in lines if line.startswith("hierarchical  ")]
    assert " ".join(" ".join(row.split()[1:]) for row in rows).endswith("4321 1234 (0) 1 (2)")
    assert shown.split().count("12.5%") == len(names)
    for word in ("overload", "evicted", "(online)", "conservative"):
        assert word in shown
    if width >= 60:
        assert max(map(len, lines)) <= width
    if width >= 100:
        assert len(rows) == 1
