"""deploy/monitoring: rules that promtool takes and tests, and no metric that the operator does not expose."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import pages
from repository import ROOT

from cotide_operator.observability.metrics import Metrics

MONITORING = ROOT / "deploy" / "monitoring"
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "rules.yaml").read_text(encoding="utf-8"))["spec"]
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "cotide.json").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
CASES = Path(__file__).with_name("test_monitoring_rules.yaml")
NAME = re.compile(r"\bcotide_[a-z0-9_]+")
TARGET_LABELS = {"namespace", "instance", "job"}  # put on by who scrapes
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian's package prometheus)")


def exposed() -> dict[str, set[str]]:
    """Labels by the name of each series, as the operator exposes them."""
    found: dict[str, set[str]] = {}
    metrics = Metrics()
    for metric in set(metrics.registry._names_to_collectors.values()):
        labels, kind, name = set(metric._labelnames), metric._type, metric._name
        if kind == "counter":
            found[f"{name}_total"] = labels
        elif kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            found[name] = labels
    return found


def labels_read(query: str) -> set[str]:
    """Labels that a query groups, joins or selects by."""
    lists = re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", query)
    selectors = re.findall(r"\{([^}]*)\}", query)
    named = {label.strip() for one in lists for label in one.split(",")}
    return named | {name for selector in selectors for name in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)}


@pytest.mark.parametrize("query", [*QUERIES, *(alert["expr"] for alert in ALERTS)])
def test_a_query_reads_only_metrics_and_labels_that_the_operator_exposes(query: str) -> None:
    series = exposed()
    names = set(NAME.findall(query))
    assert names
    assert names <= set(series)
    assert labels_read(query) <= set.union(TARGET_LABELS, *(series[name] for name in names))


def test_every_metric_of_the_operator_is_shown_or_watched() -> None:
    text = "\n".join([*QUERIES, *(alert["expr"] for alert in ALERTS)])
    used = set(NAME.findall(text))
    unseen = {
        name
        for name in exposed()
        if re.sub(r"_(bucket|sum|count)$", "", name) not in {re.sub(r"_(bucket|sum|count)$", "", one) for one in used}
    }
    assert unseen == set()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_legend_names_labels_that_its_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", target["expr"]))))
        assert named <= (grouped or TARGET_LABELS)


def test_every_row_of_the_dashboard_and_every_metric_that_a_page_names_is_there() -> None:
    """Fake nodes and the node agent have metrics of their own, which are not the operator's."""
    text = (ROOT / "docs" / "guide" / "monitoring.md").read_text(encoding="utf-8")
    section = text.partition("## Dashboard")[2].partition("\n## ")[0].lower()
    rows = [str(panel["title"]).lower() for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert [row for row in rows if row not in section] == []
    families = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in exposed()}
    for page, shown in pages().items():
        for name in re.findall(r"`(cotide_[a-z0-9_]+)[`{]", shown):
            family = re.sub(r"_(bucket|sum|count|total)$", "", name)
            package = any((ROOT / root / name).is_dir() for root in ("operator", "predictors", "sim"))
            if not package and not name.startswith(("cotide_sim_", "cotide_node_agent_")):
                assert family in families, f"{page}: {name}"


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_data_source_is_the_users_choice_everywhere() -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in PANELS:
        for one in [panel, *panel["targets"]]:
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"]
    used = set(re.findall(r"\$(\w+)", " ".join(QUERIES))) - {"__rate_interval"}
    assert used <= set(variables)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_an_alert_says_what_is_wrong_and_where_to_read_on(alert: dict[str, Any]) -> None:
    notes, name = alert["annotations"], alert["alert"]
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert notes["summary"].endswith(".")
    assert len(notes["description"]) > len(notes["summary"])
    assert notes["runbook"] == f"docs/guide/monitoring.md#{name.lower()}"
    page = (ROOT / "docs" / "guide" / "monitoring.md").read_text(encoding="utf-8")
    sections = re.split(r"^### ", page, flags=re.MULTILINE)
    (section,) = [one for one in sections if one.splitlines()[0] == name]
    assert len(section.split()) > 20  # more than its name


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"]
    fired = {one["alertname"] for case in cases for one in case["alert_rule_test"] if one["exp_alerts"]}
    assert fired == {alert["alert"] for alert in ALERTS}


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@promtool
def test_promtool_takes_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    assert f"{len(ALERTS)} rules found" in run(
        "promtool", "check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path
    )


@promtool
def test_alerts_fire_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    bare = [
        {
            **group,
            "rules": [{key: value for key, value in rule.items() if key != "annotations"} for rule in group["rules"]],
        }
        for group in RULES["groups"]
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": bare}))
    shutil.copy(CASES, tmp_path / "cases.yaml")
    assert "SUCCESS" in run("promtool", "test", "rules", "cases.yaml", folder=tmp_path)


def test_the_service_monitor_selects_our_service_and_its_port() -> None:
    spec = yaml.safe_load((MONITORING / "service-monitor.yaml").read_text(encoding="utf-8"))["spec"]
    service = yaml.safe_load((ROOT / "deploy" / "base" / "service.yaml").read_text(encoding="utf-8"))
    wanted = spec["selector"]["matchLabels"].items()
    assert wanted <= service["metadata"]["labels"].items()
    assert spec["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
    assert {one["port"] for one in spec["endpoints"]} <= {port["name"] for port in service["spec"]["ports"]}


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs the kubectl binary")
def test_kubectl_builds_the_folder_with_the_dashboard_in_it() -> None:
    built = {one["kind"]: one for one in yaml.safe_load_all(run("kubectl", "kustomize", ".", folder=MONITORING))}
    assert set(built) == {"ServiceMonitor", "PrometheusRule", "ConfigMap"}
    assert built["ConfigMap"]["metadata"]["name"] == "cotide-dashboard"
    assert built["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(built["ConfigMap"]["data"]["cotide.json"]) == DASHBOARD
