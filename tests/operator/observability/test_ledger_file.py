"""The ledger on disk: an earlier one is kept, models lie beside it, and a disk that says no is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotide_core.config import SchedulerConfig
from cotide_core.errors import LedgerError
from cotide_core.events import Tick
from cotide_core.ledger import read_ledger
from cotide_operator.observability.ledger_file import LedgerFile

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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_is_one_sentence_whenever_it_shows(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    ledger = LedgerFile(tmp_path, SchedulerConfig())
    with pytest.raises(LedgerError, match="can't be written"):
        ledger.keep_model("abc", {"manifest.json": b"{}"})
    ledger.close()
    ledger = LedgerFile(tmp_path / "full", SchedulerConfig())
    ledger._file.close()
    ledger._file = Path("/dev/full").open("wb", buffering=1 << 20)  # noqa: SIM115 - the ledger closes it
    ledger.entry(1.0, [Tick()], [])
    with pytest.raises(LedgerError, match="No space left"):
        ledger.flush()
    with pytest.raises(LedgerError, match="No space left"):
        ledger.close()
