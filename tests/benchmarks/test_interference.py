"""The interference benchmark without a node: what a stopped run goes on with, and what its figures say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from interference import parsed, rounds
from interference_figures import ROWS, Finding, as_json, bars, findings, table
from journal import Journal

PLAN = {"seconds": 3.0, "rate": 4000.0}


def window(number: int, row: str, p99: float, **more: Any) -> dict[str, Any]:
    """One line of the journal; all latencies follow the p99."""
    quantiles = {"p50_ms": p99 / 4, "p95_ms": p99 / 2, "p99_ms": p99, "p999_ms": p99 * 3}
    used = {"batch_pods": 4, "batch_cores": 0.8, "busy_share": 0.9, "lag_ms": 0.01}
    return {"round": number, "row": row, **quantiles, **used, **more}


def found_of(*windows: dict[str, Any]) -> dict[str, Finding]:
    return {finding.row: finding for finding in findings(windows, 1)}


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "out" / "journal.jsonl"
    first = Journal(file, PLAN)
    first.add(window(0, "alone", 0.2))
    with file.open("a", encoding="utf-8") as sink:
        sink.write('{"round": 0, "row": "besteff')  # the power went
    second = Journal(file, PLAN)
    assert not second.lacks(round=0, row="alone")
    assert second.lacks(round=0, row="besteffort")
    second.add(window(0, "besteffort", 0.3))
    assert [line["row"] for line in Journal(file, PLAN).lines] == ["alone", "besteffort"]


def test_windows_of_another_plan_are_not_mixed_in(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.jsonl", PLAN)
    with pytest.raises(SystemExit, match="other rate: choose another --out"):
        Journal(tmp_path / "journal.jsonl", {**PLAN, "rate": 8000.0})


def test_a_report_goes_by_the_plan_that_was_measured(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.jsonl", PLAN).add(window(0, "alone", 0.2))
    found = Journal(tmp_path / "journal.jsonl", None)
    assert (found.plan, len(found.lines)) == (PLAN, 1)
    with pytest.raises(SystemExit, match="nothing was measured yet"):
        Journal(tmp_path / "elsewhere.jsonl", None)
    assert not (tmp_path / "elsewhere.jsonl").exists()


def test_a_file_that_is_no_journal_is_left_alone_and_named(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text("[]\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="is no journal of this command"):
        Journal(tmp_path / "journal.jsonl", PLAN)
    assert (tmp_path / "journal.jsonl").read_text(encoding="utf-8") == "[]\n"


def test_each_round_measures_every_row_once_in_an_order_of_its_own() -> None:
    drawn = [[row for block in blocks for row in block] for _, blocks in rounds(3, ROWS, 0)]
    assert all(sorted(one) == sorted(ROWS) for one in drawn)
    assert drawn[0] != drawn[1] != drawn[2]
    assert len({tuple(dict.fromkeys(row.block for row in one)) for one in drawn}) == 3  # of the blocks, too
    assert drawn == [[row for block in blocks for row in block] for _, blocks in rounds(3, ROWS, 0)]


def test_rows_that_share_pods_are_measured_one_after_the_other() -> None:
    for _, blocks in rounds(3, ROWS, 1):
        assert [len({row.block for row in block}) for block in blocks] == [1] * len({row.block for row in ROWS})


def test_the_ratio_to_the_service_alone_is_taken_within_each_round() -> None:
    """The second round is ten times as slow for both: 1.1 in each, so that nothing is uncertain about it."""
    found = found_of(
        window(0, "alone", 0.2), window(0, "besteffort", 0.22), window(1, "alone", 2.0), window(1, "besteffort", 2.2)
    )
    ratio = found["besteffort"].p99_to_alone
    assert ratio is not None
    assert (ratio.low, ratio.middle, ratio.high) == pytest.approx((1.1, 1.1, 1.1))
    assert found["alone"].p99_to_alone is None
    assert found["besteffort"].latency["p99_ms"].middle == pytest.approx(math.sqrt(0.22 * 2.2))


def test_a_round_without_the_service_alone_has_no_ratio() -> None:
    found = found_of(window(0, "besteffort", 0.22), window(1, "alone", 0.2))
    assert found["besteffort"].p99_to_alone is None
    assert "besteffort" in table(list(found.values()))


def test_idle_is_what_batch_left_and_what_it_took() -> None:
    """Nine tenths of a cpu are used, eight by batch: without it nine tenths would be idle, of which it has eight."""
    found = found_of(window(0, "besteffort+agent", 0.2), window(0, "alone", 0.2, batch_cores=0.0, busy_share=0.1))
    assert found["besteffort+agent"].idle_share == pytest.approx(0.8 / 0.9)
    assert found["alone"].idle_share is None


def test_a_bar_is_met_by_the_whole_interval_only() -> None:
    """Ratios of 1.0 and 1.1 have a middle of 1.05, and with two rounds an interval that ends beyond 1.1."""
    alone = [window(number, "alone", 0.2) for number in range(2)]
    beside = [window(0, "besteffort+agent80", 0.2), window(1, "besteffort+agent80", 0.22)]
    (bar,) = bars(findings([*alone, *beside], 1)).values()
    assert bar["found"] == pytest.approx(math.sqrt(1.1))
    assert not bar["met"]
    same = [window(number, "besteffort+agent80", 0.21) for number in range(2)]
    (bar,) = bars(findings([*alone, *same], 1)).values()
    assert bar["met"]


def test_what_batch_adds_to_the_wait_for_the_cpu_is_told_in_p99s_of_the_service_alone() -> None:
    """Alone 2 us of a p99 of 200 us; beside batch 12 us: ten more are a twentieth of it."""
    rounds_ = range(2)
    alone = [window(number, "alone", 0.2, queued_us=2.0) for number in rounds_]
    beside = [window(number, "besteffort+agent80", 5.0, queued_us=12.0) for number in rounds_]
    found = findings([*alone, *beside], 1)
    by_name = {one.row: one for one in found}
    assert by_name["besteffort+agent80"].queued_us is not None
    assert by_name["besteffort+agent80"].queued_us.middle == pytest.approx(12.0)
    by_quantile, by_wait = bars(found).values()
    assert by_wait["found"] == pytest.approx(1.05)
    assert by_wait["met"]
    assert not by_quantile["met"]
    assert "12.0 (12.0-12.0)" in table(found)


def test_a_journal_of_before_waits_were_measured_is_still_read() -> None:
    (only,) = findings([window(0, "besteffort+agent80", 0.2)], 1)
    assert (only.queued_us, only.queued_to_alone) == (None, None)


def test_one_window_has_no_interval_and_json_says_null() -> None:
    (only,) = as_json(findings([window(0, "alone", 0.2)], 1))
    assert only["latency"]["p99_ms"]["high"] is None
    json.dumps(only, allow_nan=False)


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--repeats", "0"], "--repeats must be 1"), (["--rows", "alone,foo"], "there is no foo")]
)
def test_a_mistake_in_options_is_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
