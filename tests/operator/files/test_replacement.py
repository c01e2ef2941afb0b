"""A file is replaced whole or stays as it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cotide_files.replacement import replace_file


@pytest.mark.parametrize("durable", [False, True])
def test_the_new_content_takes_the_place_of_the_old_and_nothing_stays_next_to_it(tmp_path: Path, durable: bool) -> None:
    file = tmp_path / "state.json"
    file.write_text("old")
    (tmp_path / f".state.json.{os.getpid()}.new").write_text("of a killed process, and longer")
    replace_file(file, b"new", durable=durable)
    assert file.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_reader_with_the_old_file_open_reads_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text("old")
    with file.open() as opened:
        replace_file(file, b"new")
        assert opened.read() == "old"


def test_credentials_are_never_readable_by_others(tmp_path: Path) -> None:
    (tmp_path / f".config.{os.getpid()}.new").write_text("")
    (tmp_path / f".config.{os.getpid()}.new").chmod(0o644)
    replace_file(tmp_path / "config", b"token", mode=0o600)
    assert stat.S_IMODE((tmp_path / "config").stat().st_mode) == 0o600


def test_two_processes_write_the_same_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process writes while the first is between its content and its rename; the last rename stays."""
    file, rename = tmp_path / "config", Path.replace

    def after_another(aside: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", rename)
        monkeypatch.setattr(os, "getpid", lambda: 2)
        replace_file(file, b"second")
        return rename(aside, target)

    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(Path, "replace", after_another)
    replace_file(file, b"first")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("config", "first")]


def test_after_a_failure_the_old_content_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError("no space left on device")

    file = tmp_path / "state.json"
    file.write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        replace_file(file, b"new", durable=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("state.json", "old")]
