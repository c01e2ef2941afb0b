"""Packed files are told by their first bytes, unpacked in bounded steps, and refused where they are damaged."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest

from cotide_core.errors import InputError
from cotide_sim.traces import compressed
from cotide_sim.traces.compressed import DAMAGED, open_bytes
from cotide_sim.traces.jobs import swf
from cotide_sim.traces.jobs.any_log import read_any_log
from cotide_sim.traces.jobs.swf import read_swf

PACKS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
ROW = b"1 0 0 5 2 -1 -1 2 10 -1 1 1 1 1 1 -1 -1 -1\n"


@pytest.mark.parametrize("pack", PACKS)
def test_a_packed_file_of_two_members_is_read_whole_whatever_its_name(tmp_path, pack):
    path = tmp_path / "log"
    path.write_bytes(PACKS[pack](b"one\n" * 50_000) + PACKS[pack](b"two\n"))
    with open_bytes(path) as stream:
        assert stream.read() == b"one\n" * 50_000 + b"two\n"


@pytest.mark.parametrize("pack", PACKS)
def test_one_step_of_a_file_that_unpacks_to_far_more_holds_no_more_than_was_asked_for(tmp_path, pack):
    path = tmp_path / "log"
    path.write_bytes(PACKS[pack](bytes(8 << 20)))
    with open_bytes(path) as stream:
        assert 0 < len(stream.read1(1 << 16)) <= 1 << 16


@pytest.mark.parametrize("pack", PACKS)
def test_the_bound_of_a_log_holds_for_what_it_unpacks_to(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(swf, "MAX_LOG", 1 << 20)
    path = tmp_path / "log.swf"
    path.write_bytes(PACKS[pack](ROW * 30_000))
    with pytest.raises(InputError, match="has more than 1 MiB"):
        read_swf(path)


@pytest.mark.parametrize("pack", PACKS)
def test_a_cut_off_archive_keeps_the_rows_before_the_cut_and_names_the_line(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(swf, "BLOCK_BYTES", 1 << 12)
    rows = b"".join(b"%d %d" % (number, number * 37) + ROW[3:] for number in range(1, 40_000))
    data = PACKS[pack](rows)
    path = tmp_path / "log.swf"
    path.write_bytes(data[: 2 * len(data) // 3])
    log = read_swf(path, on_bad="skip")
    assert 0 < len(log.table) < 40_000
    assert "damaged or cut off here" in log.faults[-1].message
    assert log.faults[-1].line == len(log.table) + 1


@pytest.mark.parametrize("pack", PACKS)
def test_an_archive_of_junk_behind_its_first_bytes_is_damaged(tmp_path, pack):
    path = tmp_path / "log.swf"
    path.write_bytes(PACKS[pack](ROW * 100)[:12] + b"\xff" * 100)
    with pytest.raises(InputError, match="damaged or cut off here"):
        read_swf(path)


def test_an_xz_file_that_asks_for_too_much_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed, "MAX_XZ_MEMORY", 1 << 16)
    path = tmp_path / "log"
    path.write_bytes(lzma.compress(b"one"))
    with pytest.raises(DAMAGED), open_bytes(path) as stream:
        stream.read1(10)


@pytest.mark.parametrize("pack", PACKS)
def test_the_format_of_a_packed_trace_is_told_by_its_content(tmp_path, pack):
    path = tmp_path / "log.swf.packed"
    path.write_bytes(PACKS[pack](b"; MaxProcs: 4\n" + ROW))
    found = read_any_log(path)
    assert (found.format, len(found.log.table)) == ("swf", 1)
