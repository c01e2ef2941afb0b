"""The ledger on disk: an earlier one is kept, models lie beside it, and a disk that says no is one sentence."""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path

import pytest

from cotide_core.config import SchedulerConfig
from cotide_core.errors import LedgerError
from cotide_core.events import Tick
from cotide_core.recording.ledger import read_ledger
from cotide_operator.observability import ledger_file
from cotide_operator.observability.ledger_file import LedgerFile
from cotide_operator.observability.metrics import Metrics

FILES = {"ledger-1.jsonl": 1, "ledger-2.jsonl": 2, "ledger.jsonl": 3}


def test_each_call_of_the_engine_is_a_line_that_reads_back(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path, SchedulerConfig(seed=5))
    ledger.entry(1.5, [Tick()], [])
    ledger.close()
    with (tmp_path / "ledger.jsonl").open("rb") as lines:
        (entry,) = list(read_ledger(lines))
    assert (entry.now, entry.events, entry.instructions) == (1.5, (Tick(),), ())


def test_an_earlier_ledger_is_kept_under_another_name(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        LedgerFile(tmp_path, SchedulerConfig(seed=seed)).close()
    seeds = {name: (tmp_path / name).read_text().count(f'"seed":{seed}') for name, seed in FILES.items()}
    assert seeds == dict.fromkeys(FILES, 1)


def test_a_model_is_kept_once_under_its_id_and_never_half(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path, SchedulerConfig())
    for _ in range(2):
        ledger.keep_model("abc", {"manifest.json": b"{}", "forest.npz": b"x"})
    ledger.close()
    assert sorted(one.name for one in (tmp_path / "models").iterdir()) == ["abc"]
    assert sorted(one.name for one in (tmp_path / "models" / "abc").iterdir()) == ["forest.npz", "manifest.json"]


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(LedgerError, match="can't be written: "):
        LedgerFile(tmp_path / "file", SchedulerConfig())


class Disk:
    """A file that takes so many bytes and then says that it is full."""

    def __init__(self, room: int) -> None:
        self.room, self.written = room, bytearray()

    def write(self, data: bytes) -> int:
        taken = data[: self.room]
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(taken)
        self.written += taken
        return len(taken)

    def close(self) -> None:
        pass


def on_disk(tmp_path: Path, room: int) -> tuple[LedgerFile, Disk, Metrics]:
    metrics = Metrics()
    ledger, disk = LedgerFile(tmp_path, SchedulerConfig(), metrics), Disk(room)
    ledger._file = disk  # type: ignore[assignment]  # as much of a file as is used
    return ledger, disk, metrics


def metric(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"cotide_{name}")


def test_a_full_disk_stops_the_ledger_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ledger, disk, metrics = on_disk(tmp_path, room=700)
    for now in range(50):
        ledger.entry(float(now), [Tick()], [])
        ledger.flush()
    assert "No space left on device" in ledger.trouble
    assert metric(metrics, "ledger_stopped") == 1
    assert len([record for record in caplog.records if "No space left" in record.getMessage()]) == 1  # said once
    assert len(disk.written) == 700  # in the middle of a line


def test_a_ledger_goes_on_where_it_stopped_when_there_is_space(tmp_path: Path) -> None:
    ledger, disk, metrics = on_disk(tmp_path, room=700)
    for now in range(50):
        ledger.entry(float(now), [Tick()], [])
        ledger.flush()
    disk.room = 1 << 20
    ledger.flush()
    assert (ledger.trouble, metric(metrics, "ledger_stopped")) == ("", 0)
    entries = list(read_ledger(bytes(disk.written).splitlines(keepends=True)))
    assert [entry.now for entry in entries] == [float(now) for now in range(50)]  # one chain, nothing is missing


def test_a_ledger_that_waits_too_long_ends_as_a_readable_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_file, "HELD_BYTES", 2000)
    ledger, disk, metrics = on_disk(tmp_path, room=1500)
    for now in range(100):
        ledger.entry(float(now), [Tick()], [])
        ledger.flush()
    disk.room = 1 << 20
    ledger.entry(100.0, [Tick()], [])
    ledger.flush()
    ledger.close()
    assert (metric(metrics, "ledger_lines_lost_total") or 0) > 50
    assert "ended" in ledger.trouble
    whole = bytes(disk.written)
    lines = whole[: whole.rindex(b"\n") + 1].splitlines(keepends=True)
    assert [entry.now for entry in read_ledger(lines)] == [float(now) for now in range(len(lines) - 1)]


def test_a_disk_that_is_full_at_the_start_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(ledger_file, "FileIO", full)
        ledger = LedgerFile(tmp_path, SchedulerConfig())
        ledger.entry(1.0, [Tick()], [])
        ledger.flush()
        assert ledger.trouble
    ledger.close()
    with (tmp_path / "ledger.jsonl").open("rb") as lines:
        assert [entry.now for entry in read_ledger(lines)] == [1.0]


def test_a_model_waits_for_space_too(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    ledger = LedgerFile(tmp_path, SchedulerConfig())
    ledger.keep_model("abc", {"manifest.json": b"{}"})
    assert ledger.trouble
    (tmp_path / "models").unlink()
    ledger.flush()
    assert (tmp_path / "models" / "abc" / "manifest.json").read_bytes() == b"{}"
    assert not ledger.trouble


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_real_full_device_raises_nothing(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path, SchedulerConfig())
    ledger._file = FileIO("/dev/full", "w")
    ledger.entry(1.0, [Tick()], [])
    ledger.flush()
    ledger.close()
    assert "No space left" in ledger.trouble
