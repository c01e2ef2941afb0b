"""The journal: what was there comes back, whoever wrote meanwhile and however the agent ended."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from cotide_core.errors import InputError
from cotide_node_agent.service import undo_what_was_left
from cotide_node_agent.undo_journal import UndoJournal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "cpu.shares"
    made.write_text("1024\n")
    return made


def test_what_was_there_is_on_disk_before_the_file_is_changed(file: Path, tmp_path: Path) -> None:
    journal = UndoJournal(tmp_path / "journal")
    file.chmod(0o444)
    journal.change(file, "2")
    assert UndoJournal(tmp_path / "journal").load() == 1


def test_what_another_wrote_meanwhile_is_put_back_and_not_what_was_there_at_first(file: Path, tmp_path: Path) -> None:
    journal = UndoJournal(tmp_path / "journal")
    journal.change(file, "2")
    file.write_text("512\n")  # a kubelet resized the pod
    journal.change(file, "2")
    assert file.read_text() == "2"
    journal.undo()
    assert file.read_text() == "512"


def test_what_another_wrote_last_stays(file: Path, tmp_path: Path) -> None:
    journal = UndoJournal(tmp_path / "journal")
    journal.change(file, "2")
    file.write_text("512\n")
    journal.undo()
    assert file.read_text() == "512\n"


def test_nothing_is_written_where_the_file_says_so_already(file: Path, tmp_path: Path) -> None:
    journal = UndoJournal(tmp_path / "journal")
    assert journal.change(file, "1024")
    assert len(journal) == 0
    assert not (tmp_path / "journal").exists()


def test_a_file_that_is_gone_is_no_error(file: Path, tmp_path: Path) -> None:
    journal = UndoJournal(tmp_path / "journal")
    journal.change(file, "2")
    file.unlink()
    assert not journal.change(file, "3")
    after = UndoJournal(tmp_path / "journal")
    assert (after.load(), after.undo()) == (1, 0)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"\xff\x00", b'{"format": 2, "before": {}}', b'{"format": 1, "before": 3}']
)
def test_what_is_no_journal_is_refused_by_name(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(text)
    with pytest.raises(InputError, match=r"journal is no journal of changed control groups"):
        UndoJournal(tmp_path / "journal").load()


def test_no_file_is_changed_that_the_journal_could_not_take(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = UndoJournal(tmp_path / "journal")
    with monkeypatch.context() as full:
        full.setattr(UndoJournal, "_save", no_space)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                journal.change(file, "2")
    assert (file.read_text(), len(journal)) == ("1024\n", 0)
    assert journal.change(file, "2")
    assert UndoJournal(tmp_path / "journal").load() == 1


def test_all_is_put_back_where_the_journal_can_not_be_written(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = UndoJournal(tmp_path / "journal")
    journal.change(file, "2")
    monkeypatch.setattr(UndoJournal, "_save", no_space)
    assert journal.undo() == 1
    assert file.read_text() == "1024"


def test_what_could_not_be_put_back_is_tried_again_also_by_the_next_agent(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = UndoJournal(tmp_path / "journal")
    journal.change(file, "2")
    with monkeypatch.context() as refusing:
        refusing.setattr(Path, "write_text", invalid)  # version 1: a container may have no more than its pod
        refusing.setattr(UndoJournal, "_save", lambda _: None)
        assert journal.undo() == 0
    assert journal.before(file) == "1024"
    after = UndoJournal(tmp_path / "journal")
    assert (after.load(), after.undo(), file.read_text()) == (1, 1, "1024")


def no_space(_: UndoJournal) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def invalid(*_: object, **__: object) -> int:
    raise OSError(errno.EINVAL, "Invalid argument")


def test_who_asks_to_put_back_is_told_when_there_was_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As with the path of a journal that nobody wrote."""
    with caplog.at_level(logging.INFO):
        undo_what_was_left(tmp_path / "journal")
    assert caplog.messages == [f"{tmp_path}/journal: no former agent left files to restore"]
