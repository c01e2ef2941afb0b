"""The default PromQL of what pods use, as promtool evaluates it: resets, sandboxes and gaps in cAdvisor's series."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotide_operator.config.metric_settings import POD_CPU_QUERY, POD_MEMORY_QUERY

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian's package prometheus)")

CPU = 'container_cpu_usage_seconds_total{{namespace="ns",pod="{pod}",container="{container}"}}'
MEMORY = 'container_memory_working_set_bytes{{namespace="ns",pod="{pod}",container="{container}"}}'


def evaluate(folder: Path, series: dict[str, str], query: str, at: str, expected: dict[str, float]) -> None:
    """Check what a query gives for each pod at a moment; series have a value each 30 s."""
    samples = [
        {"labels": f'{{namespace="ns", pod="{pod}"}}', "value": value} for pod, value in sorted(expected.items())
    ]
    case: dict[str, Any] = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": at, "exp_samples": samples}],
    }
    (folder / "case.yaml").write_text(yaml.safe_dump({"evaluation_interval": "30s", "tests": [case]}))
    command = ["promtool", "test", "rules", "case.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_containers_are_summed_and_the_sandbox_is_not(tmp_path: Path) -> None:
    series = {
        CPU.format(pod="a", container="web"): "0+15x20",  # half a core
        CPU.format(pod="a", container="side"): "0+3x20",
        CPU.format(pod="a", container="POD"): "0+30x20",
        CPU.format(pod="a", container=""): "0+18x20",  # the pod's own cgroup: both containers again
    }
    evaluate(tmp_path, series, POD_CPU_QUERY, "5m", {"a": 600.0})


def test_a_counter_that_was_reset_is_neither_negative_nor_huge(tmp_path: Path) -> None:
    # 15 core-seconds in 30 s, and a restart of the container between two samples: from 150 to 9, and on from there.
    series = {CPU.format(pod="a", container="web"): "0 15 30 45 60 75 90 105 120 135 150 9 24 39 54"}
    evaluate(tmp_path, series, POD_CPU_QUERY, "5m30s", {"a": 450.0})  # (15 + 15 + 15 + 9) / 120 s: 9 since the restart


def test_a_pod_whose_series_ended_is_absent_and_not_zero(tmp_path: Path) -> None:
    series = {
        CPU.format(pod="a", container="web"): "0+15x20",
        CPU.format(pod="gone", container="web"): "0 15 30 stale",
        MEMORY.format(pod="a", container="web"): "1000x20",
        MEMORY.format(pod="gone", container="web"): "1000x3 stale",
    }
    evaluate(tmp_path, series, POD_CPU_QUERY, "5m", {"a": 500.0})
    evaluate(tmp_path, series, POD_MEMORY_QUERY, "5m", {"a": 1000.0})


def test_a_young_pods_rate_is_too_low_which_is_why_it_settles(tmp_path: Path) -> None:
    series = {CPU.format(pod="young", container="web"): "_x8 0+15x12"}  # half a core since 4m
    evaluate(tmp_path, series, POD_CPU_QUERY, "4m30s", {"young": 125.0})  # 15 s of work by 120 s
