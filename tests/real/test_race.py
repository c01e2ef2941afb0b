"""The race runs, times everybody by one watch, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from binaries import Binaries
from real_cluster import ROOT

RACERS = ("bare", "kube-scheduler", "cotide-fifo")
NODES, PODS, FEW = 20, 100, 20
SECONDS = 240


def race(*arguments: str) -> dict[str, object]:
    program = str(ROOT / "benchmarks" / "race" / "real_race.py")
    command = [sys.executable, program, "--nodes", str(NODES), "--rounds", "1", "-o", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def result(binaries: Binaries) -> dict[str, object]:
    few = ["--steady", str(FEW), "--burst", str(FEW)]
    return race("--pods", str(PODS), *few, "--racers", ",".join(RACERS))


def test_every_racer_binds_every_pod_and_says_what_it_took(result: dict) -> None:
    assert (result["nodes"], result["pods"]) == (NODES, PODS)
    assert result["machine"].keys() == {"cores", "processor", "memory_gib", "kernel"}
    assert [one["racer"] for one in result["rounds"]] == list(RACERS)
    for one in result["rounds"]:
        assert one["bound"] == PODS
        assert one["pods_per_second"] > 0
        assert 0 < one["nodes_used"] <= NODES
        assert one["first_bind_seconds"] > 0
        assert one["cpu_seconds"].keys() == {"scheduler", "apiserver", "etcd"}
        assert one["memory_bytes"]["highest"] >= one["memory_bytes"]["now"] > 0


def test_schedulers_say_an_event_for_each_pod_and_are_timed_while_pods_come(result: dict) -> None:
    for one in result["rounds"][1:]:
        assert one["events"] >= PODS, one["racer"]
        assert one["cpu_seconds_with_events"]["apiserver"] >= one["cpu_seconds"]["apiserver"]
        for kind in ("steady", "burst"):
            assert one[kind]["pods"] == FEW
            # The median is 0 where most pods are bound before the watch has told of them: both come in one read.
            assert 0 <= one[kind]["p50_ms"] <= one[kind]["p99_ms"] <= one[kind]["max_ms"]
            assert one[kind]["max_ms"] > 0


def test_the_medians_carry_the_ratios(result: dict) -> None:
    median = result["median"]
    assert set(median) == set(RACERS)
    assert median["cotide-fifo"]["ratio_to_bare"] == pytest.approx(
        median["cotide-fifo"]["pods_per_second"] / median["bare"]["pods_per_second"], abs=0.006
    )
    assert "ratio_to_kube-scheduler" in median["cotide-fifo"]


def test_a_start_in_a_full_cluster_is_timed(binaries: Binaries) -> None:
    found = race("--scale", "--pods", "40", "--waiting", "10", "--watch-memory-seconds", "0", "--racers", "cotide-fifo")
    [one] = found["rounds"]
    assert one["first_bind_seconds"] > 0
    assert one["memory_bytes"]["highest"] > 0


def test_varied_pods_on_nodes_with_images_are_raced_over_with_a_reduced_rival(binaries: Binaries) -> None:
    racers = ("kube-scheduler-reduced", "kube-scheduler-least", "cotide-predictive")
    more = ["--pod-kilobytes", "2,5,10", "--images", "50", "--fsync", "--steady", "0", "--burst", "0"]
    found = race("--pods", str(PODS), *more, "--racers", ",".join(racers))
    assert (found["pod_kilobytes"], found["images"], found["fsync"]) == ([2.0, 5.0, 10.0], 50, True)
    for one in found["rounds"]:
        assert one["bound"] == PODS
        assert one["events_missing"] == 0, one["racer"]
    notes = {one["racer"]: one["notes_at_last_bind"] for one in found["rounds"]}
    assert notes == {"kube-scheduler-reduced": 0, "kube-scheduler-least": 0, "cotide-predictive": PODS}


def test_an_unknown_racer_is_a_mistake_of_the_user() -> None:
    program = str(ROOT / "benchmarks" / "race" / "real_race.py")
    done = subprocess.run([sys.executable, program, "--racers", "snail"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--racers: snail is none of bare, kube-scheduler, " in done.stderr
    assert "Traceback" not in done.stderr
