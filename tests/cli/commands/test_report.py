"""`cotide report`: what it prints, and what it says of a file that it can't read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cotide_cli.commands.report_command import command
from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.errors import InputError
from cotide_core.events import Event, Node, NodeUpserted, Pod, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.recording.ledger import LedgerWriter


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """One pod that waited 60 s, for want of anybody but Cotide."""
    config = SchedulerConfig(assume_timeout_seconds=1e9)
    engine, writer = Scheduler(config, HeuristicCatalogue()), LedgerWriter(config)
    pod = Pod("d/p", "u", WorkloadClass.BATCH, (("cpu", 1000),), 10.0, ours=True)
    cycles: list[tuple[float, list[Event]]] = [
        (0.0, [NodeUpserted(Node("a", (("cpu", 4000), ("pods", 110))))]),
        (10.0, [PodUpserted(pod)]),
        (70.0, [PodUpserted(pod._replace(node="a"))]),
    ]
    lines = [writer.header(), *(writer.entry(now, events, engine.handle(events, now)) for now, events in cycles)]
    (tmp_path / "ledger.jsonl").write_bytes(b"".join(lines))
    return tmp_path


def test_the_table_says_what_was_seen_and_what_would_have_been(ledger: Path) -> None:
    shown = CliRunner().invoke(command, [str(ledger)]).output
    assert "placed      1 pod; Cotide would have refused the node: none" in shown
    assert "room        1 pod would have run earlier, 0.02 core hours, at most 1000m at once" in shown
    assert "waits       mean 60.0 s, p50 60.0 s, p95 60.0 s" in shown
    assert "as if       mean 0.0 s, p50 0.0 s, p95 0.0 s" in shown


def test_the_same_as_data(ledger: Path) -> None:
    found = json.loads(CliRunner().invoke(command, [str(ledger / "ledger.jsonl"), "-o", "json"]).output)
    assert (found["placed"], found["earlier_core_seconds"]) == (1, 60.0)
    assert found["waits"] == {"pods": 1, "mean": 60.0, "p50": 60.0, "p95": 60.0}


def test_a_ledger_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(tmp_path / "nowhere")])
    assert isinstance(result.exception, InputError)
    assert "can't be read: No such file or directory" in str(result.exception)


def test_a_last_line_that_is_being_written_is_left_out_and_the_rest_reported(ledger: Path) -> None:
    file = ledger / "ledger.jsonl"
    whole = CliRunner().invoke(command, [str(ledger), "-o", "json"]).stdout
    file.write_bytes(file.read_bytes() + b'{"chain":"5f')
    result = CliRunner().invoke(command, [str(ledger), "-o", "json"])
    assert result.stdout == whole
    assert result.stderr == f"{file}: the last line is incomplete and skipped\n"


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    file = tmp_path / "log.swf"
    file.write_text("; MaxProcs: 4\n1 2 3\n")
    result = CliRunner().invoke(command, [str(file)])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{file}: line 1 is not how a ledger begins")
