"""The demo as a user runs it: one command, real HTTP, a table of figures, and ledgers that replay."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cotide_core.config import SchedulerConfig
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_sim.cluster.comparison import config_of
from cotide_sim.cluster.world import World
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.workloads.scenarios import plan_of

SECONDS = 12
"""Wall-clock seconds of each policy: 240 simulated ones, in which tens of pods run."""
SPEED = 20
NODES, SEED = 6, 3
POLICIES = ("qpsm", "fifo", "hierarchical", "predictive")


def cotide(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cotide_cli", *arguments], capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, dict[str, object]], Path]:
    ledger = tmp_path_factory.mktemp("demo") / "ledger"
    done = cotide(
        "demo", "--seconds", str(SECONDS), "--nodes", str(NODES), "--policies", ",".join(POLICIES),
        "--seed", str(SEED), "--ledger", str(ledger), "-o", "json", "--page", str(ledger.parent / "demo.html"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["seed"], document["nodes"], document["scenario"]) == (SEED, NODES, "slack")
    return document["policies"], ledger


def test_each_policy_places_and_finishes_work(demo: tuple[dict[str, dict[str, object]], Path]) -> None:
    policies, ledger = demo
    assert tuple(policies) == POLICIES
    for name, figures in policies.items():
        assert int(str(figures["pods_bound"])) > 5, name
        assert int(str(figures["jobs_finished"])) >= 1, name
        assert 0.0 < float(str(figures["cpu_utilisation"])) <= 1.0, name
        assert 0.0 <= float(str(figures["qos_violation_ratio"])) <= 1.0, name
        assert figures["ledger"] == str(ledger / name)
        assert int(str(figures["overload_slots"])) >= 0, name
        assert figures["online_evictions"] == 0, name


def test_the_services_that_run_are_the_same_live_and_in_virtual_time(
    demo: tuple[dict[str, dict[str, object]], Path],
) -> None:
    """The same arrivals: twelve pods of services that ask for two fifths of six nodes, and jobs."""
    live, _ = demo
    plan = plan_of("slack", SEED, NODES, float(SECONDS * SPEED), data=None)
    every = {f"demo/{service.name}" for service in plan.services}
    for policy in POLICIES:
        config = config_of(policy, SchedulerConfig(seed=SEED))
        world = World(plan, GeneratedInterference(), config, HeuristicCatalogue(), nodes=NODES)
        virtual = world.run().summary
        for figures in (virtual, live[policy]):
            assert (figures["services_never_ran"], figures["online_pods_waiting"]) == ([], 0), policy
        by_service = live[policy]["qos_violation_ratio_by_service"]
        assert isinstance(by_service, dict)
        assert {f"demo/{name}" for name in by_service} == every, policy


def test_the_page_says_what_the_terminal_said(demo: tuple[dict[str, dict[str, object]], Path]) -> None:
    policies, ledger = demo
    page = (ledger.parent / "demo.html").read_text()
    assert re.search(r'<p class="lead">(There is no verdict|\w+ won|A tie)', page)
    assert all(name in page for name in policies)
    assert "http" not in page.replace(str(ledger), "")


def test_hierarchical_decides_by_forecasts_of_real_use(demo: tuple[dict[str, dict[str, object]], Path]) -> None:
    _, ledger = demo
    text = (ledger / "hierarchical" / "ledger.jsonl").read_text()
    for kind in ("NodeUsageSampled", "NodeForecasted"):
        assert f'"kind":"{kind}"' in text, kind
    assert "most is left there next to the predicted load" in text
    assert "cotide.dev/reclaimed-cpu" in text


def test_every_instruction_of_the_demo_replays(demo: tuple[dict[str, dict[str, object]], Path]) -> None:
    policies, ledger = demo
    for name in policies:
        replayed = cotide("replay", str(ledger / name))
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_one_changed_byte_in_a_ledger_is_found(demo: tuple[dict[str, dict[str, object]], Path], tmp_path: Path) -> None:
    _, ledger = demo
    lines = (ledger / "fifo" / "ledger.jsonl").read_bytes()
    middle = len(lines) // 2
    changed = lines[:middle] + bytes([lines[middle] ^ 1]) + lines[middle + 1 :]
    copy = tmp_path / "ledger"
    shutil.copytree(ledger / "fifo", copy)
    (copy / "ledger.jsonl").write_bytes(changed)
    replayed = cotide("replay", str(copy))
    assert replayed.returncode == 1
    line = lines[:middle].count(b"\n") + 1
    assert f"line {line}" in replayed.stdout + replayed.stderr
