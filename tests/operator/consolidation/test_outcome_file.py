"""The lines beside the ledger: bounded, and whole whatever ends the operator that writes them."""

from __future__ import annotations

import errno
import json
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from cotide_operator.consolidation import outcome_file
from cotide_operator.consolidation.outcome_file import NAME, PROVISIONING, OutcomeFile
from cotide_operator.observability.metrics import Metrics

LINE_BYTES = len('{"n": 100}\n')


@pytest.fixture(params=[NAME, PROVISIONING])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(outcome_file, "FILE_BYTES", 10 * LINE_BYTES, raising=False)
    return str(request.param)


def note(directory: Path, name: str, *numbers: int, metrics: Metrics | None = None) -> None:
    """Write lines as an operator that starts, writes each, and ends."""
    file = OutcomeFile(directory, metrics or Metrics(), name)
    for number in numbers:
        file.note({"n": number})


def kept(directory: Path, name: str) -> list[int]:
    """Return the numbers in the two files, as the documentation says to read them."""
    stem = name.removesuffix(".jsonl")
    files = [one for one in (directory / f"{stem}-1.jsonl", directory / name) if one.exists()]
    return [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]


def test_lines_are_kept_in_order_over_restarts(tmp_path: Path, name: str) -> None:
    for first in (100, 103, 106):
        note(tmp_path, name, first, first + 1, first + 2)
    assert kept(tmp_path, name) == list(range(100, 109))
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_the_latest_lines_stay_and_the_two_files_never_grow_further(tmp_path: Path, name: str, at_once: int) -> None:
    for first in range(100, 1000, at_once):
        note(tmp_path, name, *range(first, min(first + at_once, 1000)))
        assert sum(one.stat().st_size for one in tmp_path.iterdir()) <= 20 * LINE_BYTES
    found = kept(tmp_path, name)
    assert found == list(range(1000 - len(found), 1000))
    assert 10 < len(found) <= 20, "one full file and what has come since"


def test_behind_half_a_line_of_a_killed_operator_a_new_line_begins(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"n": 1}\n{"n": ')
    note(tmp_path, name, 2, 3)
    assert (tmp_path / name).read_text().splitlines() == ['{"n": 1}', '{"n": ', '{"n": 2}', '{"n": 3}']


def test_what_a_full_disk_took_half_of_is_counted_and_leaves_nothing_behind(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:4])

    metrics = Metrics()
    note(tmp_path, name, 1)
    with monkeypatch.context() as patch:
        patch.setattr(outcome_file, "FileIO", Full)
        note(tmp_path, name, 2, 3, metrics=metrics)
    note(tmp_path, name, 4)
    assert kept(tmp_path, name) == [1, 4]
    assert metrics.ledger_lost._value.get() == 2


def test_a_disk_that_takes_nothing_and_a_character_without_utf8_raise_nothing(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    OutcomeFile(tmp_path, Metrics(), name).note({"node": "\ud800"})
    assert json.loads((tmp_path / name).read_text()) == {"node": "\ud800"}

    def full(*_: object) -> FileIO:
        raise OSError(errno.ENOSPC, "No space left on device")

    metrics = Metrics()
    monkeypatch.setattr(outcome_file, "FileIO", full)
    note(tmp_path, name, 1, metrics=metrics)
    note(tmp_path / "nowhere", name, 1, metrics=metrics)
    assert metrics.ledger_lost._value.get() == 2


def test_without_a_ledger_nothing_is_written() -> None:
    OutcomeFile(None, Metrics()).note({"n": 1})
