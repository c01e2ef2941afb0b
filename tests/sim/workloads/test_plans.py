"""Plans and the profiling campaign: reproducible, consistent, within their stated ranges."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_sim.cluster import profiling
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.traces.jobs import alibaba2017, google2011
from cotide_sim.traces.load import worldcup98
from cotide_sim.workloads import sizing, traced
from cotide_sim.workloads.generated import generate
from cotide_sim.workloads.traced import from_traces

MODEL = GeneratedInterference()


def lone(job_type: str, input_bytes: int) -> float:
    return float(MODEL.isolated_seconds((job_type,), np.array([float(input_bytes)]))[0])


def test_the_same_seed_gives_the_same_plan_and_another_seed_another():
    assert generate(7, 10, 300.0) == generate(7, 10, 300.0)
    assert generate(7, 10, 300.0) != generate(8, 10, 300.0)


def test_a_generated_plan_keeps_what_its_docstring_says():
    plan = generate(3, 20, 600.0)
    assert sum(service.replicas for service in plan.services) == 12
    peaks = [max(service.rates) for service in plan.services]
    assert all(min(s.rates) >= sizing.RATE_MIN and max(s.rates) <= sizing.PEAK_RATES[1] for s in plan.services)
    assert len(set(peaks)) == len(peaks)
    assert list(plan.jobs) == sorted(plan.jobs, key=lambda job: job.at_seconds)
    assert all(0 <= job.at_seconds <= sizing.ARRIVALS_SHARE * 600.0 for job in plan.jobs)
    assert len({job.name for job in plan.jobs}) == len(plan.jobs)
    assert {job.workload_class for job in plan.jobs} == {WorkloadClass.BATCH, WorkloadClass.GRATIS}
    assert all(job.isolated_seconds == lone(job.type, job.input_bytes) for job in plan.jobs)
    assert all(job.requested_seconds is None or job.requested_seconds >= job.isolated_seconds for job in plan.jobs)
    # One burst may pass the target: at most 12 jobs of 4 pods with 3 cores for 400 s.
    target = sizing.LOAD * 20 * 8 * 600.0
    assert target <= plan.offered_core_seconds <= target + 12 * 4 * 3 * 400


@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_small_clusters_get_plans_too(nodes):
    plan = generate(1, nodes, 60.0)
    assert plan.services
    assert plan.jobs


def test_input_for_seconds_inverts_the_run_time():
    # wordcount takes .05 s + 12.5 s a gigabyte: 100 s are 8 GB (100.05 s).
    assert sizing.input_for_seconds("wordcount", 100.0, lone) == 8_000_000_000
    assert sizing.input_for_seconds("sample", 1e6, lone) == sizing.INPUT_MAX
    assert sizing.input_for_seconds("sample", 0.0, lone) == sizing.INPUT_STEP


def test_profiling_is_reproducible_and_speaks_of_what_a_metrics_system_shows():
    qos, runs = profiling.profile(MODEL, 5, qos_trials=200, completion_trials=60)
    again, runs_again = profiling.profile(MODEL, 5, qos_trials=200, completion_trials=60)
    assert qos.latency_milliseconds.tolist() == again.latency_milliseconds.tolist()
    assert runs.seconds.tolist() == runs_again.seconds.tolist()
    assert ((qos.mixes.cpu_pressure > 0) == (qos.mixes.counts.sum(axis=1) > 0)).all()
    assert (qos.mixes.cpu_pressure <= 1).all()
    # The noise has a standard deviation of a tenth: all 200 latencies lie within six of them.
    ratio = np.log(qos.latency_milliseconds / MODEL.p95_milliseconds(qos.mixes))
    assert np.abs(ratio).max() < 0.6
    assert 0.05 < ratio.std() < 0.15


def test_profiled_run_times_are_never_below_the_lone_ones():
    _, runs = profiling.profile(MODEL, 6, qos_trials=1, completion_trials=80)
    stretch = runs.seconds / MODEL.isolated_seconds(runs.types, runs.input_bytes)
    assert (stretch >= 1 - 1e-9).all()
    crowded = (runs.requests_per_second > 50e3) & (runs.cpu_pressure > 0.5)
    assert stretch[crowded].mean() > stretch[runs.requests_per_second == 0].mean()


def small_traces(directory: Path) -> Path:
    """Write a tiny data directory: a sine of requests, 400 Alibaba tasks, 400 Google jobs, two grid jobs."""
    files: dict[str, list[list[object]]] = {
        worldcup98.FILE: [["period", "count"]],
        alibaba2017.FILE: [[
            "task_create_time", "task_end_time", "job_id", "task_id", "number_of_instances", "status",
            "number_of_cpus_requested_per_instance_in_the_task",
            "normalized_memory_requested_per_instance_in_the_task",
        ]],
        google2011.FILE: [[
            "job_ID", "priority", "requestCPU", "requestRAM", "requestDisk", "user_name", "scheduling_class",
            "logical_job_name", "task_duration", "task_number",
        ]],
        "colocation/memcached_batch_grid.csv": [[
            "workload_type", "input_size_bytes", "rps_target", "order", "censored", "completion_seconds",
            "completion_est_seconds", "completion_alone_seconds",
        ]],
    }  # fmt: skip
    for minute in range(600):
        stamp = np.datetime64("1998-06-01T00:00") + np.timedelta64(minute, "m")
        files[worldcup98.FILE].append([str(stamp).replace("T", " ") + ":00", int(2000 + 1000 * np.sin(minute / 50))])
    for row in range(400):
        status = "Terminated" if row % 10 else "Failed"
        files[alibaba2017.FILE].append([row * 5, row * 5 + 20 + row, row // 4, row % 4, 1 + row % 90, status, 50, 0.01])
        files[google2011.FILE].append([6e9 + row, row % 7, 3.1, 0.02, 0, f"u{row % 9}", 1, f"n{row % 9}", row / 300, 1])
    order = 0
    for name in sizing.JOB_TYPES:
        for size in (100e6, 200e6, 400e6):
            files["colocation/memcached_batch_grid.csv"].append(
                [name, size, 1000, order, 0, size / 1e8, size / 1e8, size / 1e8]
            )
            order += 1
    for name, rows in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        opener = gzip.open if name.endswith(".gz") else open
        with opener(path, "wt", newline="") as stream:
            csv.writer(stream).writerows(rows)
    return directory


def test_traces_become_a_plan_that_depends_on_nothing_but_its_arguments(tmp_path, monkeypatch):
    monkeypatch.setattr(traced, "GOOGLE_SECONDS", 4000.0)
    directory = small_traces(tmp_path)
    plan = from_traces(directory, 1, 4, 300.0)
    assert plan == from_traces(directory, 1, 4, 300.0)
    assert plan != from_traces(directory, 2, 4, 300.0)
    assert {job.workload_class for job in plan.jobs} == {WorkloadClass.BATCH, WorkloadClass.GRATIS}
    # The lone run times above are 10 s a gigabyte, whatever the type.
    assert all(job.isolated_seconds == pytest.approx(job.input_bytes / 1e8) for job in plan.jobs)
    assert all(0 <= job.at_seconds < sizing.ARRIVALS_SHARE * 300.0 for job in plan.jobs)
    assert all(1 <= job.completions <= 4 and 1000 <= job.millicores <= 4000 for job in plan.jobs)
    assert all(max(service.rates) <= sizing.PEAK_RATES[1] for service in plan.services)


def test_what_a_row_becomes_does_not_depend_on_the_seed(tmp_path, monkeypatch):
    # All rows lie in the window, and 400 nodes take them all.
    monkeypatch.setattr(traced, "GOOGLE_SECONDS", 1000.0)
    directory = small_traces(tmp_path)
    # Users' estimates are drawn; type, size and pods come from the row alone.
    kinds = [
        sorted((job.type, job.input_bytes, job.completions, job.millicores) for job in plan.jobs)
        for plan in (from_traces(directory, seed, 400, 300.0) for seed in (1, 2))
    ]
    assert len(kinds[0]) > 600
    # The window's upper end is open: the last job by identifier may fall out.
    assert abs(len(kinds[0]) - len(kinds[1])) <= 1
    assert set(kinds[0]) == set(kinds[1])


def test_a_missing_trace_is_named(tmp_path):
    directory = small_traces(tmp_path)
    (directory / alibaba2017.FILE).unlink()
    with pytest.raises(InputError, match="Alibaba 2017 batch tasks was expected"):
        from_traces(directory, 1, 4, 300.0)
