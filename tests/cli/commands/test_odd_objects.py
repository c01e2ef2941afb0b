"""An object that is odd anywhere inside ends no command in a traceback: it is one sentence, or is left out with one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_files import CONFIG
from hypothesis import given, settings
from hypothesis import strategies as st
from object_server import object_server
from odd_objects import NODE, ODD, POD, WORLD, places, spoilt

from cotide_cli import main

Said = tuple[int, list[str], str]
Run = Callable[[str, dict[str, Any]], Said]
COMMANDS = {
    "explain pod a": ["/api/v1/pods", "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/namespaces/default/events",
                      "/apis/cotide.dev/v1alpha1/jobs", "/apis/scheduling.k8s.io/v1/priorityclasses"],
    "explain job a": ["/apis/cotide.dev/v1alpha1/jobs", "/api/v1/pods", "/api/v1/namespaces/default/events"],
    "consolidate": list(WORLD),
    "consolidate --undo": ["/api/v1/nodes"],
    "whatif --each-node": list(WORLD),
    "capacity --config config.yaml": ["/api/v1/nodes", "/api/v1/pods"],
}  # fmt: skip
"""What is typed, and the collections that it reads."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "config.yaml").write_text(CONFIG)
    with object_server() as server, contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        kubeconfig = server.write_kubeconfig(Path("kubeconfig"))
        patch.setenv("COLUMNS", "120")

        def said(command: str, objects: dict[str, Any]) -> Said:
            """Run a command on a world with these objects in it; return exit code, lines of stderr, and stdout."""
            server.objects = WORLD | objects
            patch.setattr(sys, "argv", ["cotide", *command.split(), "--kubeconfig", str(kubeconfig)])
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as caught:
                main.main()
            assert isinstance(caught.value.code, int)
            return caught.value.code, [line for line in err.getvalue().splitlines() if line], out.getvalue()

        yield said


@pytest.mark.parametrize("command", COMMANDS)
def test_the_world_without_a_fault_is_read_whole(command: str, run: Run) -> None:
    code, lines, out = run(command, {})
    assert (code, lines) == (0, []), lines
    assert out or command == "consolidate --undo"


@pytest.mark.parametrize("command", COMMANDS)
@settings(max_examples=int(os.environ.get("COTIDE_ODD_EXAMPLES", "25")), deadline=None, derandomize=True)
@given(data=st.data())
def test_an_object_that_is_odd_at_any_depth_is_a_sentence(command: str, run: Run, data: st.DataObject) -> None:
    collection = data.draw(st.sampled_from(COMMANDS[command]))
    found = WORLD[collection]
    at = data.draw(st.sampled_from(list(places(found))))
    odd = spoilt(found, at, data.draw(st.sampled_from(ODD)))
    code, lines, _ = run(command, {collection: odd})
    assert code in (0, 1, 2), lines
    assert all(line.startswith("cotide: ") for line in lines), lines
    assert code == 0 or len(lines) == 1 + sum("left out: " in line for line in lines[:-1]), lines


@pytest.mark.parametrize(
    ("command", "collection", "odd", "message"),
    [
        ("capacity --config config.yaml", "/api/v1/pods", spoilt(POD, ("status", "startTime"), "yesterday"),
         "cotide: pod default/a is not what an API server sends: 'yesterday' is not a time"),
        ("consolidate", "/api/v1/nodes", spoilt(NODE, ("spec", "taints"), 5), "cotide: nodes n is not what"),
    ],
)  # fmt: skip
def test_what_is_odd_is_named_with_its_field(command: str, collection: str, odd: Any, message: str, run: Run) -> None:
    code, lines, _ = run(command, {collection: odd})
    assert (code, len(lines)) == (1, 1)
    assert message in lines[0]


@pytest.mark.parametrize(
    ("command", "collection"),
    [
        ("explain pod a", "/api/v1/namespaces/default/events"),
        ("explain pod a", "/api/v1/namespaces"),
        ("consolidate", "/apis/policy/v1/poddisruptionbudgets"),
        ("whatif --each-node", "/apis/cotide.dev/v1alpha1/workloads"),
    ],
)
def test_what_is_odd_beside_is_left_out_with_a_warning(command: str, collection: str, run: Run) -> None:
    code, lines, out = run(command, {collection: spoilt(WORLD[collection], ("metadata", "labels"), [5])})
    assert (code, len(lines)) == (0, 1)
    assert lines[0].startswith("cotide: left out: ")
    assert "labels" in lines[0]
    assert out


@pytest.mark.parametrize(
    ("at", "odd", "field"),
    [
        (("metadata", "ownerReferences"), [1], "ownerReferences[0]"),
        (("metadata", "ownerReferences"), {}, "ownerReferences"),
        (("metadata", "labels"), ["app"], "labels"),
        (("spec", "containers"), 5, "containers"),
        (("status", "conditions"), [[]], "conditions[0]"),
    ],
)
def test_a_field_of_the_pod_itself_that_is_odd_is_not_read_and_all_others_are(
    at: tuple[str, ...], odd: Any, field: str, run: Run
) -> None:
    code, lines, out = run("explain pod a -o json", {"/api/v1/pods": spoilt(POD, at, odd)})
    assert (code, json.loads(out)["name"]) == (0, "a")
    assert {line.partition("pod ")[0] for line in lines} <= {"cotide: left out: "}, "it is among those of its node, too"
    shown = " ".join(run("explain pod a", {"/api/v1/pods": spoilt(POD, at, odd)})[2].split())
    assert "Not read pod default/a is not what an API server sends" in shown
    assert f".{field}" in shown.replace(" ", "")


def test_a_pod_without_a_name_is_none(run: Run) -> None:
    code, lines, _ = run("explain pod a", {"/api/v1/pods": spoilt(POD, ("metadata", "name"), 5)})
    assert (code, lines) == (1, ["cotide: the answer about pod default/a is not what an API server sends; is it one?"])


def test_a_node_that_is_odd_is_left_alone_by_a_plan_of_capacity(run: Run) -> None:
    odd = {"/api/v1/nodes": spoilt(NODE, ("status", "allocatable"), "all"),
           "/api/v1/pods": spoilt(POD, ("spec", "nodeName"), "")}  # fmt: skip
    code, lines, out = run("capacity --config config.yaml", odd)
    assert (code, len(lines), bool(out)) == (0, 1, True)
    message = "cotide: left out: node n is not what an API server sends: Expected `object`, got `str` - at "
    assert lines[0].startswith(message)


def test_nulls_of_a_pod_are_no_fault(run: Run) -> None:
    for at in (("metadata", "labels"), ("metadata", "ownerReferences"), ("status",), ("spec", "containers", 0)):
        for command in ("explain pod a", "consolidate", "capacity --config config.yaml"):
            assert run(command, {"/api/v1/pods": spoilt(POD, at, None)})[:2] == (0, []), (command, at)
