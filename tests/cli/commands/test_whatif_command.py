"""`cotide whatif` from a user's chair, on a ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engine_objects import pod_upserted

from cotide_cli.commands import whatif_command
from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError
from cotide_core.events import Event, Gang, Node, NodeUpserted, PodPhase, PodUpserted
from cotide_core.recording.ledger import LedgerWriter


def ledger_of(folder: Path, *events: Event) -> Path:
    writer = LedgerWriter(SchedulerConfig())
    file = folder / "ledger.jsonl"
    file.write_bytes(writer.header() + writer.entry(1000.0, events, []))
    return file


def pod(name: str, node: str | None, cpu: int, **fields: Any) -> PodUpserted:
    """A pod that runs where a node is named, and waits where none is."""
    phase = PodPhase.PENDING if node is None else PodPhase.RUNNING
    return pod_upserted(name, cpu, node=node, **{"phase": phase, **fields})


def nodes(*names: str) -> list[Event]:
    return [NodeUpserted(Node(name, (("cpu", 1000), ("memory", 1000), ("pods", 9)))) for name in names]


def whatif(folder: Path, *options: str) -> Any:
    asked = ["--ledger", str(folder), "-o", "json", *options]
    result = CliRunner().invoke(whatif_command.command, asked, standalone_mode=False)
    assert result.exception is None, result.exception
    return json.loads(result.stdout)


def test_without_a_node_its_pods_move_or_wait_with_the_engines_reason(tmp_path: Path) -> None:
    ledger_of(tmp_path, *nodes("a", "b"), pod("1", "a", 300), pod("2", "a", 900), pod("3", "b", 200))
    answer = whatif(tmp_path, "--without-node", "a")
    assert [(one["pod"], one["source"], one["target"]) for one in answer["moves"]] == [("d/1", "a", "b")]
    assert [(one["pod"], one["already"]) for one in answer["waits"]] == [("d/2", False)]
    assert "Insufficient cpu" in answer["waits"][0]["why"]


def test_a_gang_without_its_node_moves_whole_or_waits_with_the_rest_of_it_released(tmp_path: Path) -> None:
    """Of three pods of 300 two lose a; b, with the third, has room for one more, or for two once the single is gone."""
    gang = [pod(str(at), "a" if at < 2 else "b", 300, gang=Gang("d/g", 3, 60.0)) for at in range(3)]
    ledger_of(tmp_path, *nodes("a", "b"), *gang, pod("single", "b", 200))
    answer = whatif(tmp_path, "--without-node", "a")
    assert (answer["moves"], {one["pod"] for one in answer["waits"]}) == ([], {"d/0", "d/1"})
    assert [one["pod"] for one in answer["evicted"]] == ["d/2"]
    assert whatif(tmp_path, "--each-node")[-1] == {"node": "a", "pods": 2, "withoutPlace": 2, "mustStay": 2}
    ledger_of(tmp_path, *nodes("a", "b"), *gang)
    answer = whatif(tmp_path, "--without-node", "a")
    assert ({one["pod"] for one in answer["moves"]}, answer["evicted"]) == ({"d/0", "d/1"}, [])


def test_more_nodes_take_what_waits(tmp_path: Path) -> None:
    ledger_of(tmp_path, *nodes("a"), pod("1", "a", 900), pod("2", None, 800), pod("3", None, 800))
    answer = whatif(tmp_path, "--add-node", "a x1")
    assert [one["target"] for one in answer["placed"]] == ["a-whatif-0"]
    assert [one["already"] for one in answer["waits"]] == [True]
    assert len(whatif(tmp_path, "--add-node", "a x2", "--policy", "fifo")["placed"]) == 2


def test_a_workload_grows_and_shrinks(tmp_path: Path) -> None:
    ledger_of(tmp_path, *nodes("a"), *[pod(str(number), "a", 200, job="d/j") for number in range(3)])
    grown = whatif(tmp_path, "--scale-workload", "d/j=2x")
    assert (len(grown["placed"]), len(grown["waits"])) == (2, 1)  # 1,000 - 600 take two of three
    assert whatif(tmp_path, "--scale-workload", "d/j=0.3x")["removed"] == ["d/1", "d/0"][::-1]


def test_a_slip_of_three_zeros_is_one_sentence_and_no_full_memory(tmp_path: Path) -> None:
    """A workload of 200 pods, a thousand times: 199,800 more."""
    ledger_of(tmp_path, *nodes("a"), *[pod(str(number), "a", 1, job="d/j") for number in range(200)])
    asked = ["--ledger", str(tmp_path), "--scale-workload", "d/j=1000x"]
    error = CliRunner().invoke(whatif_command.command, asked, standalone_mode=False).exception
    assert str(error) == "--scale-workload: 199800 pods more for 'd/j', of all workloads at most 100000 are played"


def test_each_node_alone_is_answered_at_once(tmp_path: Path) -> None:
    ledger_of(tmp_path, *nodes("a", "b"), pod("1", "a", 300), pod("2", "b", 900))
    assert whatif(tmp_path, "--each-node") == [
        {"node": "a", "pods": 1, "withoutPlace": 1, "mustStay": 0},
        {"node": "b", "pods": 1, "withoutPlace": 1, "mustStay": 0},
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--without-node", "z"], "--without-node: no node is called 'z'"),
        (["--add-node", "z x2"], "no node and no instance type is called 'z'"),
        (["--add-node", "a x0"], "not a type and number"),
        (["--scale-workload", "w"], "not a workload and factor"),
        (["--scale-workload", "d/w=2x"], "no Workload and no Job with pods"),
        (["--policy", "nonsense"], "nonsense"),
        ([], "give one of --without-node, --add-node, --policy, --scale-workload, --each-node"),
        (["--without-node", ""], "--without-node: names no node"),
        (["--without-node", " , "], "--without-node: names no node"),
        (["--each-node", "--at", "nan"], "--at: nan is not a number of seconds"),
        (["--each-node", "--policy", "fifo"], "is asked alone"),
        (
            ["--without-node", "a", "--at", "1"],
            "--at: nothing was recorded up to this time: the ledger begins at 1000",
        ),
    ],
)
def test_a_users_mistake_is_one_sentence(tmp_path: Path, options: list[str], words: str) -> None:
    ledger_of(tmp_path, *nodes("a"), pod("1", "a", 300))
    asked = ["--ledger", str(tmp_path), *options]
    result = CliRunner().invoke(whatif_command.command, asked, standalone_mode=False)
    assert isinstance(result.exception, InputError)
    assert words in str(result.exception)


def test_a_ledger_in_which_nothing_stands_yet_is_not_blamed_on_a_time_that_nobody_gave(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_bytes(LedgerWriter(SchedulerConfig()).header())
    asked = ["--ledger", str(tmp_path), "--each-node"]
    result = CliRunner().invoke(whatif_command.command, asked, standalone_mode=False)
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == "--ledger: nothing was recorded in this ledger yet"


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.yaml"
    file.write_text("a: 1\n")
    asked = ["--ledger", str(file), "--each-node"]
    result = CliRunner().invoke(whatif_command.command, asked, standalone_mode=False)
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{file}: line 1 is not how a ledger begins")


def test_placed_pods_keep_the_constraints_that_they_were_recorded_with(tmp_path: Path) -> None:
    waiting = pod("1", None, 100, node_selector=(("disk", "fast"),)).pod
    ledger_of(
        tmp_path, *nodes("a", "b"), PodUpserted(waiting),
        PodUpserted(waiting._replace(node="a", phase=PodPhase.RUNNING, node_selector=())),
    )  # fmt: skip
    assert "didn't match" in whatif(tmp_path, "--without-node", "a")["waits"][0]["why"]
