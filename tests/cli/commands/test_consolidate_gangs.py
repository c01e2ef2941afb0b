"""`cotide consolidate --move-gangs` on the embedded server: a gang leaves its node whole, or it is said why not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from click.testing import CliRunner
from official_calls import make_node, official_api, run_pod

from cotide_cli.commands import consolidate_command
from cotide_sim.apiserver.testing import ThreadedServer

GANG = {"cotide.dev/gang": "train", "cotide.dev/gang-min-member": "2"}
MEMBERS = ("default/train-0", "default/train-1")
STAYING = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}


@pytest.fixture
def core(server: ThreadedServer) -> Iterator[Any]:
    """A gang of two on n0, and a pod that must stay on n1."""
    with official_api(server.url) as api:
        made = kubernetes.client.CoreV1Api(api)
        for name in ("n0", "n1"):
            make_node(made, name, {})
        for name in ("train-0", "train-1"):
            run_member(made, name, "n0")
        run_pod(made, "own-1", "n1", "100m")
        made.patch_namespaced_pod("own-1", "default", STAYING)
        yield made


def run_member(core: Any, name: str, node: str) -> None:
    run_pod(core, name, node, "100m")
    core.patch_namespaced_pod(name, "default", {"metadata": {"annotations": GANG}})


def consolidate(server: ThreadedServer, folder: Path, *options: str) -> dict[str, Any]:
    path = server.write_kubeconfig(folder / "kubeconfig")
    asked = ["--kubeconfig", str(path), "--minimum-age", "0", "-o", "json", *options]
    result = CliRunner().invoke(consolidate_command.command, asked, standalone_mode=False)
    assert result.exception is None, result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_plan_moves_it_only_where_that_is_asked_for(server: ThreadedServer, core: Any, tmp_path: Path) -> None:
    kept = {one["node"]: one["why"] for one in consolidate(server, tmp_path)["kept"]}
    assert kept["n0"] == "its gang would be below its minimum without it"
    data = consolidate(server, tmp_path, "--move-gangs")
    (freed,) = data["freed"]
    assert (freed["node"], freed["together"]) == ("n0", [list(MEMBERS)])
    assert "2 pods of a gang, default/train-0 among them, leave n0 at once: none works meanwhile" in data["risks"]


def test_a_budget_that_lets_one_go_keeps_it_and_the_plan_says_so(
    server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    policy = kubernetes.client.PolicyV1Api(core.api_client)
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}}
    policy.create_namespaced_pod_disruption_budget("default", budget)
    until = time.monotonic() + 20
    while not policy.read_namespaced_pod_disruption_budget("b", "default").status.disruptions_allowed:
        assert time.monotonic() < until
        time.sleep(0.05)
    kept = {one["node"]: one["why"] for one in consolidate(server, tmp_path, "--move-gangs")["kept"]}
    assert kept["n0"] == "its gang can only move as a whole, and a disruption budget allows fewer at once"


def test_apply_evicts_all_of_it_and_waits_until_all_are_back(server: ThreadedServer, core: Any, tmp_path: Path) -> None:
    def replace_evicted() -> None:
        """Stand for their controller, which makes the first again only once both have left."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            there = [item for item in core.list_namespaced_pod("default").items if item.spec.node_name == "n0"]
            for one in there:
                if one.metadata.deletion_timestamp is not None:
                    core.delete_namespaced_pod(one.metadata.name, "default", grace_period_seconds=0)
            if not there:
                for name in ("train-2", "train-3"):
                    run_member(core, name, "n1")
                return
            time.sleep(0.05)

    controller = threading.Thread(target=replace_evicted)
    controller.start()
    try:
        data = consolidate(server, tmp_path, "--move-gangs", "--apply", "--timeout", "20")
    finally:
        controller.join()
    assert data["carried"] == {"freed": ["n0"], "moved": list(MEMBERS), "surprise": ""}
