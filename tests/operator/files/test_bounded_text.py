"""Files without an end are refused with their bound, and nothing of them is held."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest

from cotide_core.errors import InputError
from cotide_files import bounded_text
from cotide_files.bounded_text import bounded_lines, checksum_of, read_bounded
from cotide_files.columns import read_table
from cotide_files.rows import stream_rows
from cotide_sim.traces.jobs import swf
from cotide_sim.traces.jobs.csv_log import BLANKS_READ, first_line
from cotide_sim.traces.jobs.swf import read_swf


def test_lines_come_with_their_ends_as_they_are() -> None:
    assert list(bounded_lines(io.StringIO("a\n\nb"), "file")) == ["a\n", "\n", "b"]
    assert list(bounded_lines(io.BytesIO(b"a\nb\n"), "file")) == [b"a\n", b"b\n"]


def test_a_line_may_be_as_long_as_the_bound_and_no_longer() -> None:
    assert list(bounded_lines(io.StringIO("abc\n"), "file", line_most=4)) == ["abc\n"]
    with pytest.raises(InputError, match=r"^file:2: has a line of more than 4 bytes, of which no more is read$"):
        list(bounded_lines(io.StringIO("a\nabcd\n"), "file", line_most=4))


def test_lines_without_an_end_are_refused_at_the_bound() -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:
            buffer[:] = (b"1,2\n" * (len(buffer) // 4 + 1))[: len(buffer)]
            return len(buffer)

    lines = bounded_lines(io.BufferedReader(Endless(), 4096), "file", most=3 << 20)
    with pytest.raises(InputError, match=r"^file: has more than 3 MiB, of which no more is read$"):
        list(lines)


def test_a_packed_file_counts_as_what_it_unpacks_to(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"a\n" + b"1\n" * 1000))
    with pytest.raises(InputError, match="has more than 100 bytes"):
        list(stream_rows(path, ["a"], what="rows", most=100))
    assert len(list(stream_rows(path, ["a"], what="rows"))) == 1000


def test_tables_and_logs_are_refused_beyond_their_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a\n" + "1" * (bounded_text.MAX_LINE + 1))
    with pytest.raises(InputError, match=":2: has a line of more than 16 MiB"):
        read_table(path, numbers=("a",))
    path.write_text("1" * (3 * bounded_text.MAX_LINE))
    with pytest.raises(InputError, match="has a line of more than 16 MiB"):
        read_swf(path)
    monkeypatch.setattr(swf, "MAX_LOG", 1000)
    path.write_text("; Comment: words\n" * 100)
    with pytest.raises(InputError, match="has more than 1000 bytes"):
        read_swf(path)


def test_blank_lines_without_an_end_are_no_first_line(tmp_path: Path) -> None:
    path = tmp_path / "blank"
    path.write_text("\n" * (2 * BLANKS_READ) + "words")
    assert first_line(path) == ""
    path.write_text("\n" * 9 + "words")
    assert first_line(path) == "words"


def test_small_files_are_read_whole_up_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"1234")
    assert read_bounded(path, 4) == b"1234"
    with pytest.raises(InputError, match="has more than 3 bytes"):
        read_bounded(path, 3)


def test_only_of_files_there_are_checksums(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert checksum_of(path) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    with pytest.raises(InputError, match="is no file"):
        checksum_of(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe")
    held_open = os.open(tmp_path / "pipe", os.O_RDWR)
    with pytest.raises(InputError, match="is no file"):
        checksum_of(tmp_path / "pipe")
    os.close(held_open)
