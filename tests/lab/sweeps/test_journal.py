"""The journal of a sweep keeps what was finished, finds what was half written, and belongs to one sweep."""

from __future__ import annotations

import pytest

from cotide_core.errors import InputError
from cotide_lab.sweeps import journal_file as journal_module
from cotide_lab.sweeps.cells import Cell, Outcome
from cotide_lab.sweeps.journal import SweepJournal


def outcome_of(seed, *, trace="log", digest="a", error=None):
    figures = {} if error else {"wait_seconds_mean": (0.1 + seed, None, 1 / 3)}
    return Outcome(Cell(trace, digest, "s", "request", "easy", seed), 4, 9, figures, error, 0.25)


def written(path, count):
    with SweepJournal(path) as journal:
        for seed in range(count):
            journal.add(outcome_of(seed))
    return path.read_bytes()


def test_what_was_added_comes_back_exactly(tmp_path):
    path = tmp_path / "journal"
    written(path, 3)
    with SweepJournal(path) as journal:
        assert list(journal.outcomes.values()) == [outcome_of(seed) for seed in range(3)]
        assert journal.remarks == []


def test_a_line_cut_off_anywhere_is_found_and_the_lines_before_it_stay(tmp_path):
    path = tmp_path / "journal"
    whole = written(path, 3)
    third = whole.rstrip(b"\n").rfind(b"\n") + 1
    for size in [third + 1, *range(third + 9, len(whole) - 2, 31), len(whole) - 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with SweepJournal(path) as journal:
            assert list(journal.outcomes.values()) == [outcome_of(0), outcome_of(1)]
            assert journal.remarks == [f"{path}:4: half-written line cut off, its cell is run again"]
            journal.add(outcome_of(2))
        assert path.read_bytes() == whole


def test_a_head_cut_off_anywhere_is_written_again(tmp_path):
    path = tmp_path / "journal"
    head = written(path, 0)
    for size in range(0, len(head), 5):
        path.write_bytes(head[:size])
        with SweepJournal(path):
            pass
        assert path.read_bytes() == head


def test_a_changed_byte_costs_its_cell_only(tmp_path):
    path = tmp_path / "journal"
    lines = written(path, 3).splitlines(keepends=True)
    lines[2] = lines[2].replace(b"easy", b"fcfs")
    path.write_bytes(b"".join(lines))
    with SweepJournal(path) as journal:
        assert list(journal.outcomes.values()) == [outcome_of(0), outcome_of(2)]
        assert journal.remarks == [f"{path}:3: broken line, its cell is run again"]


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"notes", b"\n"])
def test_a_file_that_is_no_journal_is_refused_and_left_alone(content, tmp_path):
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no journal of a sweep"):
        SweepJournal(path)
    assert path.read_bytes() == content


def test_a_journal_of_another_version_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    monkeypatch.setattr(journal_module, "version", lambda _: "0.0.9")
    written(path, 1)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"was made by cotide 0\.0\.9"):
        SweepJournal(path)


def test_one_sweep_at_a_time_holds_a_journal(tmp_path):
    path = tmp_path / "journal"
    with SweepJournal(path), pytest.raises(InputError, match="is in use by another sweep"):
        SweepJournal(path)
    with SweepJournal(path):
        pass


def test_another_trace_under_a_known_name_is_refused(tmp_path):
    with SweepJournal(tmp_path / "journal") as journal:
        journal.add(outcome_of(1, digest="a" * 64))
        journal.check([outcome_of(2, digest="a" * 64).cell, outcome_of(2, trace="other", digest="b").cell])
        with pytest.raises(
            InputError, match=r"holds results of another log \(sha256 aaaaaaaaaaaa\.\.\., now sha256 bbbb"
        ):
            journal.check([outcome_of(2, digest="b" * 64).cell])
