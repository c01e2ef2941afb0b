"""`cotide consolidate` from a user's chair, on the embedded server."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes
import pytest
from click.testing import CliRunner, Result
from official_calls import make_node, official_api, run_pod

from cotide_cli.commands import consolidate_command
from cotide_core.errors import ClusterError, InputError
from cotide_operator.consolidation.official_client import OfficialClient
from cotide_sim.apiserver.testing import ThreadedServer


@pytest.fixture
def core(server: ThreadedServer) -> Iterator[Any]:
    with official_api(server.url) as api:
        made = kubernetes.client.CoreV1Api(api)
        for name in ("n0", "n1", "n2"):
            make_node(made, name, {"node.kubernetes.io/instance-type": "small"})
        yield made


@contextlib.contextmanager
def replaced(core: Any, name: str, by: str, node: str) -> Iterator[None]:
    """Stand for the ReplicaSet controller, the scheduler and the kubelet of one pod that is evicted."""

    def replace_evicted() -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            there = {item.metadata.name: item for item in core.list_namespaced_pod("default").items}
            if name in there and there[name].metadata.deletion_timestamp is not None:
                core.delete_namespaced_pod(name, "default", grace_period_seconds=0)
            elif name not in there:
                run_pod(core, by, node, "100m")
                return
            time.sleep(0.05)

    controller = threading.Thread(target=replace_evicted)
    controller.start()
    try:
        yield
    finally:
        controller.join()


def cordoned(core: Any, name: str) -> bool:
    spec = core.read_node(name).spec
    return spec is not None and bool(spec.unschedulable)


def consolidate(server: ThreadedServer, folder: Path, *options: str) -> Result:
    path = server.write_kubeconfig(folder / "kubeconfig")
    asked = ["--kubeconfig", str(path), "--minimum-age", "0", *options]
    return CliRunner().invoke(consolidate_command.command, asked, standalone_mode=False)


def test_a_plan_says_what_moves_where_and_changes_nothing(server: ThreadedServer, core: Any, tmp_path: Path) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "600m")
    run_pod(core, "own-1", "n2", "900m")
    prices = tmp_path / "prices.yaml"
    prices.write_text("small: 0.25\n")
    result = consolidate(server, tmp_path, "-o", "json", "--prices", str(prices))
    assert result.exception is None, result.exception
    data = json.loads(result.stdout)
    assert data["nodes"] == {"used": 3, "after": 2, "atLeast": 2, "all": 3}
    assert [(one["pod"], one["target"]) for one in data["freed"][0]["moves"]] == [("default/web-1", "n1")]
    assert data["saves"]["priceAnHour"] == 0.25
    assert set(data["freed"][0]) == {"node", "moves", "millicores", "memoryBytes"}
    assert data["risks"] == ["pod default/web-1 is its controller's only one: it is away while it moves"]
    assert not cordoned(core, "n0")
    stays = {one["node"]: one["why"] for one in data["notFreed"]}
    assert stays["n1"] == "it receives pods of freed nodes"
    assert "Insufficient cpu" in stays["n2"]
    shown = consolidate(server, tmp_path)
    assert "3 of 3 nodes in use -> 2 (at least 2 by volume), 1 pod moves" in shown.stdout
    assert ["n1", "-", "it", "receives"] in [line.split()[:4] for line in shown.stdout.splitlines()]


def test_a_pool_that_is_left_out_keeps_its_nodes(server: ThreadedServer, core: Any, tmp_path: Path) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "200m")
    core.patch_node("n0", {"metadata": {"labels": {"pool": "gpu"}}})
    freed = json.loads(consolidate(server, tmp_path, "-o", "json").stdout)["freed"]
    assert [one["node"] for one in freed if one["moves"]] == ["n0"]
    without = ("--exclude-pool", "pool=ingress", "--exclude-pool", "pool=gpu")
    data = json.loads(consolidate(server, tmp_path, "-o", "json", *without).stdout)
    assert [one["node"] for one in data["freed"] if one["moves"]] == ["n1"]
    assert {one["node"]: one["why"] for one in data["notFreed"]}["n0"].startswith("it is left out")
    mistaken = consolidate(server, tmp_path, "--exclude-pool", "gpu").exception
    assert isinstance(mistaken, InputError)
    assert "wants LABEL=VALUE, not 'gpu'" in str(mistaken)


def test_a_mistake_in_the_prices_is_told_with_its_line(server: ThreadedServer, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("small: 0.25\nlarge: dear\n")
    error = consolidate(server, tmp_path, "--prices", str(prices)).exception
    assert str(error) == f"{prices}:2: large: wants a price of 0 and more, not 'dear'"


def test_constraints_of_running_pods_and_local_storage_hold(server: ThreadedServer, core: Any, tmp_path: Path) -> None:
    run_pod(core, "web-1", "n0", "100m", volumes=[{"name": "v", "emptyDir": {}}])
    run_pod(core, "api-1", "n1", "200m", nodeSelector={"disk": "fast"})
    run_pod(core, "own-1", "n2", "300m")
    data = json.loads(consolidate(server, tmp_path, "-o", "json").stdout)
    # web stays for its volume, api for its selector; own goes, beside the fuller of the two.
    assert [(one["node"], one["why"]) for one in data["kept"]] == [("n0", "it has local storage, which would be lost")]
    assert [(one["node"], one["moves"][0]["target"]) for one in data["freed"]] == [("n2", "n1")]


COSCHEDULING = ("scheduling.x-k8s.io", "v1alpha1")
OF_THE_SERVER = ("scheduling.k8s.io", "v1alpha2")
"""As Kubernetes 1.36 serves its own."""


def serve_pod_groups(core: Any, group: str, version: str) -> Any:
    """Serve PodGroups of either sort, as far as they are read; returns a client of custom objects."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": group,
        "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"},
        "scope": "Namespaced",
        "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
    }
    body = {"metadata": {"name": f"podgroups.{group}"}, "spec": spec}
    kubernetes.client.ApiextensionsV1Api(core.api_client).create_custom_resource_definition(body)
    return kubernetes.client.CustomObjectsApi(core.api_client)


@pytest.mark.parametrize("served", [COSCHEDULING, OF_THE_SERVER])
def test_pod_groups_are_read_and_a_gang_is_not_broken_up(
    server: ThreadedServer, core: Any, tmp_path: Path, served: tuple[str, str]
) -> None:
    """Without the PodGroup nobody knows how large the gang is; one of two may go where one is enough."""
    custom = serve_pod_groups(core, *served)
    label = {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}}
    spec = {"schedulingGroup": {"podGroupName": "g"}} if served == OF_THE_SERVER else {}
    for name, node, cpu in (("train-0", "n0", "100m"), ("train-1", "n1", "600m")):
        run_pod(core, name, node, cpu, **spec)
        if served == COSCHEDULING:
            core.patch_namespaced_pod(name, "default", label)
    run_pod(core, "own-1", "n2", "900m")
    kept = {one["node"]: one["why"] for one in json.loads(consolidate(server, tmp_path, "-o", "json").stdout)["kept"]}
    assert kept["n0"] == "it has a constraint that Cotide does not support"
    group = {"apiVersion": "/".join(served), "kind": "PodGroup", "metadata": {"name": "g"}}
    where = (*served, "default", "podgroups")

    def asks_for(size: int) -> dict[str, Any]:
        return {"minMember": size} if served == COSCHEDULING else {"schedulingPolicy": {"gang": {"minCount": size}}}

    custom.create_namespaced_custom_object(*where, {**group, "spec": asks_for(2)})
    kept = {one["node"]: one["why"] for one in json.loads(consolidate(server, tmp_path, "-o", "json").stdout)["kept"]}
    assert kept["n0"] == "its gang would be below its minimum without it"
    custom.patch_namespaced_custom_object(*where, "g", {"spec": asks_for(1)})
    freed = json.loads(consolidate(server, tmp_path, "-o", "json").stdout)["freed"]
    assert [(one["pod"], one["target"]) for one in freed[0]["moves"]] == [("default/train-0", "n1")]


def test_apply_moves_pods_one_by_one_and_leaves_the_node_cordoned(
    server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "600m")

    with replaced(core, "web-1", "web-2", "n1"):
        result = consolidate(server, tmp_path, "--apply", "--timeout", "20", "-o", "json")
    assert result.exception is None, result.exception
    data = json.loads(result.stdout)
    assert data["carried"] == {"freed": ["n2", "n0"], "moved": ["default/web-1"], "surprise": ""}
    assert result.return_value == 0
    node = core.read_node("n0")
    assert (node.spec.unschedulable, node.metadata.annotations["cotide.dev/consolidation"]) == (True, "freed")


def test_a_surprise_is_exit_code_1_and_the_cordon_is_undone(server: ThreadedServer, core: Any, tmp_path: Path) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "600m")
    # Nobody makes the pod again.
    result = consolidate(server, tmp_path, "--apply", "--timeout", "1")
    assert result.return_value == 1
    assert "stopped: n0: pod default/web-1 was evicted" in result.stderr
    assert not cordoned(core, "n0")


def test_nothing_is_consolidated_while_pods_wait(server: ThreadedServer, core: Any, tmp_path: Path) -> None:
    run_pod(core, "web-1", "n0", "100m")
    spec = {"schedulerName": "cotide", "containers": [{"name": "c", "image": "i"}]}
    core.create_namespaced_pod("default", {"metadata": {"name": "new"}, "spec": spec})
    result = consolidate(server, tmp_path, "--apply")
    assert isinstance(result.exception, ClusterError)
    assert "1 pod waits for a node" in str(result.exception)
    assert "1 pod waits for a node" in consolidate(server, tmp_path).stderr


@pytest.mark.parametrize("more", [{"nodeSelector": {"pool": "gpu"}}, {"schedulingGates": [{"name": "admission"}]}])
def test_a_pod_that_no_node_could_take_and_a_gated_pod_hold_up_nothing(
    server: ThreadedServer, core: Any, tmp_path: Path, more: dict[str, Any]
) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "600m")
    spec = {"schedulerName": "cotide", "containers": [{"name": "c", "image": "i"}], **more}
    core.create_namespaced_pod("default", {"metadata": {"name": "new"}, "spec": spec})
    with replaced(core, "web-1", "web-2", "n1"):
        assert consolidate(server, tmp_path, "--apply", "--timeout", "20").return_value == 0
    assert cordoned(core, "n0")


def test_a_pod_that_another_scheduler_found_unschedulable_waits_as_for_the_operator(
    server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    run_pod(core, "web-1", "n0", "100m")
    spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i"}]}
    core.create_namespaced_pod("default", {"metadata": {"name": "new"}, "spec": spec})
    assert "waits" not in consolidate(server, tmp_path).stderr
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    core.patch_namespaced_pod_status("new", "default", {"status": {"conditions": [waits]}})
    assert "1 pod waits for a node" in consolidate(server, tmp_path).stderr


def test_a_node_of_the_control_plane_is_not_freed_and_its_line_names_the_role(
    server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "200m")
    core.patch_node("n0", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})
    data = json.loads(consolidate(server, tmp_path, "-o", "json").stdout)
    assert [one["node"] for one in data["freed"] if one["moves"]] == ["n1"]
    assert "names it a node of the control plane" in {one["node"]: one["why"] for one in data["notFreed"]}["n0"]


def hold(core: Any, name: str, mark: str, **records: str) -> None:
    """Cordon a node as a run did that held it."""
    annotations = {"cotide.dev/consolidation": mark, **{f"cotide.dev/{key}": text for key, text in records.items()}}
    core.patch_node(name, {"metadata": {"annotations": annotations}, "spec": {"unschedulable": True}})


QUICKLY = ("--watch", "--stable", "0", "--interval", "1")
WATCH_RECORD = "cotide.dev/consolidation-watch"


def test_watch_shows_each_round_and_changes_nothing(server: ThreadedServer, core: Any, tmp_path: Path) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "600m")
    result = consolidate(server, tmp_path, *QUICKLY, "--rounds", "2", "-o", "json")
    assert result.exception is None, result.exception
    first, second = [json.loads(line) for line in result.stdout.splitlines()]
    assert (first["round"], second["round"]) == (1, 2)
    # n2 is the one empty node that stays open.
    assert [one["node"] for one in second["drain"]] == ["n0"]
    assert (second["nodes"], second["moves"]) == ({"used": 2, "after": 1, "atLeast": 1}, 1)
    assert not cordoned(core, "n0")
    shown = consolidate(server, tmp_path, *QUICKLY, "--rounds", "1").stdout
    assert "2 nodes in use -> 1 (at least 1 by volume), 1 pod moves; 60 may within the hour" in shown
    assert "would drain n0: 1 pod" in shown


def test_watch_waits_until_a_node_could_be_freed_for_long_enough(
    server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "600m")
    result = consolidate(server, tmp_path, "--watch", "--rounds", "1", "-o", "json")
    assert (json.loads(result.stdout)["moves"], json.loads(result.stdout)["drain"]) == (1, [])


def test_watch_with_apply_moves_pods_and_the_hours_budget_outlives_the_run(
    server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "600m")
    uid = core.read_namespaced_pod("web-1", "default").metadata.uid
    asked = ("--apply", *QUICKLY, "--rounds", "1", "--timeout", "20", "-o", "json", "--moves-per-hour", "1")
    with replaced(core, "web-1", "web-2", "n1"):
        result = consolidate(server, tmp_path, *asked)
    assert result.exception is None, result.exception
    _, done = [json.loads(line) for line in result.stdout.splitlines()]
    assert done["carried"] == {"freed": ["n0"], "moved": ["default/web-1"], "surprise": ""}
    node = core.read_node("n0")
    assert (node.spec.unschedulable, node.metadata.annotations["cotide.dev/consolidation"]) == (True, "freed")
    assert list(json.loads(node.metadata.annotations[WATCH_RECORD])["moved"]) == [uid]
    again = json.loads(consolidate(server, tmp_path, *asked).stdout.splitlines()[0])
    assert (again["movesLeft"], again["held"], again["drain"]) == (0, {"n0": "freed"}, [])


def test_a_freed_node_is_given_back_when_a_pod_waits_that_it_could_take(
    server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    run_pod(core, "api-1", "n1", "600m")
    hold(core, "n0", "freed", **{"consolidation-watch": json.dumps({"since": time.time()})})
    hold(core, "n2", "freed")  # a person's
    core.create_namespaced_pod(
        "default",
        {"metadata": {"name": "new"}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "700m"}}}]}},
    )  # fmt: skip
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    core.patch_namespaced_pod_status("new", "default", {"status": {"conditions": [waits]}})
    shown = consolidate(server, tmp_path, "--apply", *QUICKLY, "--rounds", "1").stdout
    assert "1 pod waits for a node: nothing is planned" in shown
    assert "give back n0: pods wait that would run there" in shown
    assert (cordoned(core, "n0"), cordoned(core, "n2")) == (False, True)


def test_what_a_killed_watch_left_is_open_again_and_the_operators_nodes_are_its_own(
    server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    record = json.dumps({"since": time.time()})
    hold(core, "n0", "draining", **{"consolidation-watch": record})
    hold(core, "n1", "emptying", **{"consolidation-watch": record})
    consolidate(server, tmp_path, "--apply", "--watch", "--rounds", "1")
    assert (cordoned(core, "n0"), cordoned(core, "n1")) == (False, False)
    hold(core, "n2", "draining", **{"consolidation-record": record})
    result = consolidate(server, tmp_path, "--apply", "--watch", "--rounds", "1")
    assert isinstance(result.exception, ClusterError)
    assert "the operator consolidates this cluster (it holds node n2)" in str(result.exception)
    assert "held: n2 draining" in consolidate(server, tmp_path, "--watch", "--rounds", "1").stdout
    assert cordoned(core, "n2")


def test_ctrl_c_uncordons_what_is_being_drained(server: ThreadedServer, core: Any, tmp_path: Path) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "600m")
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    command = [sys.executable, "-m", "cotide_cli", "consolidate", "--apply", *QUICKLY, "--minimum-age", "0"]
    # Who runs these tests in the background of a script has SIGINT ignored, which a command would inherit.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    # Nobody makes the pod again, so the drain goes on until it is stopped.
    with subprocess.Popen([*command, "--kubeconfig", str(path)], stderr=subprocess.PIPE) as running:
        signal.signal(signal.SIGINT, inherited)
        until = time.monotonic() + 60
        while not cordoned(core, "n0") and time.monotonic() < until:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
    assert running.returncode == 0, stderr
    assert "n0: uncordoned again" in stderr.decode()
    assert not cordoned(core, "n0")


@pytest.mark.parametrize("option", ["interval", "stable", "reserve", "minimum-age", "idle-watts", "timeout"])
def test_what_is_no_number_is_refused(option: str, tmp_path: Path) -> None:
    asked = [f"--{option}", "nan", "--kubeconfig", str(tmp_path / "kubeconfig")]
    result = CliRunner().invoke(consolidate_command.command, asked, standalone_mode=False)
    assert str(result.exception) == f"--{option}: nan is no number"


@pytest.mark.parametrize("option", ["most-moves", "moves-per-node", "moves-per-hour"])
def test_more_moves_than_there_are_pods_anywhere_are_refused(option: str) -> None:
    asked = [f"--{option}", "99999999999999999999"]
    result = CliRunner().invoke(consolidate_command.command, asked, standalone_mode=False)
    assert isinstance(result.exception, click.UsageError)


@pytest.mark.parametrize("other", [["--plan"], ["--apply"], ["--ledger", "ledger.jsonl"]])
def test_undoing_goes_with_nothing_else(server: ThreadedServer, core: Any, tmp_path: Path, other: list[str]) -> None:
    """Who asks for a plan, or for a ledger's, wants nothing changed."""
    hold(core, "n0", "draining")
    error = consolidate(server, tmp_path, "--undo", *other).exception
    assert str(error).startswith("--undo: ")
    assert cordoned(core, "n0")


def test_a_node_that_is_not_to_be_freed_and_is_gone_ends_no_watch(
    server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    run_pod(core, "web-1", "n0", "100m")
    run_pod(core, "api-1", "n1", "600m")
    path = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
    options = {
        "exclude_namespace": (), "exclude_node": ("n0",), "exclude_pool": (), "minimum_age": 0.0, "reserve": 0.1,
        "most_moves": 10, "moves_per_node": 10, "move_local_storage": False, "move_unwilling": False,
        "move_gangs": False,
    }  # fmt: skip
    plan = consolidate_command.planner(options)
    assert [one.node for one in plan(OfficialClient(path).read()).freed] == ["n2", "n1"], "n0 stays"
    core.delete_node("n0")
    assert [one.node for one in plan(OfficialClient(path).read()).freed] == ["n2"], "n1 has nowhere to go"
    error = consolidate(server, tmp_path, "--watch", "--rounds", "1", "--exclude-node", "n0").exception
    assert str(error) == "--exclude-node: no node is called 'n0'", "one that never was is a slip"


def test_apply_on_a_ledger_is_refused(tmp_path: Path) -> None:
    asked = ["--apply", "--ledger", str(tmp_path)]
    result = CliRunner().invoke(consolidate_command.command, asked, standalone_mode=False)
    assert isinstance(result.exception, InputError)
