"""`cotide train`: samples in, a model directory out, and one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotide_cli import main as entry
from cotide_core.classes import WorkloadClass
from cotide_core.cycle import SchedulerConfig
from cotide_core.events import (
    Event,
    Node,
    NodeUpserted,
    Pod,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.recording.ledger import LedgerWriter
from cotide_lab.evaluation.asking import read_model
from cotide_predictors.completion.completion_model import CompletionModel
from cotide_predictors.qos.qos_model import QosModel
from cotide_predictors.qos.services_model import ServicesQosModel

QOS_HEADER = "requests_per_second,other_requests_per_second,limit_ms,cpu_pressure,latency_p95_ms,jobs"
COMPLETION_HEADER = "type,input_bytes,requests_per_second,cpu_pressure,seconds"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["cotide", *arguments])
    with pytest.raises(SystemExit) as done:
        entry.main()
    code = done.value.code
    assert isinstance(code, int)
    return code


def qos_file(directory: Path, *extra: str) -> Path:
    """Thirty rates with and without a job; latency 1 ms + 1 ms for each 10,000 requests/s, twice that beside a job."""
    rows = [f"{rate}000,0,3,0,{1 + rate / 10:g}," for rate in range(0, 60, 2)]
    rows += [f"{rate}000,0,3,0.5,{2 + rate / 5:g},sort:1:1e8" for rate in range(0, 60, 2)]
    path = directory / "qos.csv"
    path.write_text("\n".join([QOS_HEADER, *rows, *extra]) + "\n", encoding="utf-8")
    return path


def completion_file(directory: Path, *extra: str) -> Path:
    rows = [f"sort,{size}e7,{rate}000,0.5,{size * (1 + rate / 100):g}" for size in range(1, 6) for rate in (0, 50, 100)]
    path = directory / "jobs.csv"
    path.write_text("\n".join([COMPLETION_HEADER, *rows, *extra]) + "\n", encoding="utf-8")
    return path


def test_qos_model_is_written_from_a_file_of_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    samples = str(qos_file(tmp_path))
    assert run(monkeypatch, "train", "qos", "--samples", samples, "--out", str(out), "-o", "json") == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["samples"] == 60
    assert report["types"] == ["sort"]
    assert report["limits_milliseconds"] == [3.0]  # the samples' own
    assert "training on 60 mixes" in captured.err
    model = read_model(out)
    assert isinstance(model, QosModel)
    assert model.model_id == report["model"]
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "model.ubj"]


def test_same_seed_writes_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = str(completion_file(tmp_path))
    for name in ("one", "two"):
        assert run(monkeypatch, "train", "completion", "--samples", samples, "--out", str(tmp_path / name)) == 0
    assert read_model(tmp_path / "one").model_id == read_model(tmp_path / "two").model_id
    assert "completion model" in capsys.readouterr().out
    assert isinstance(read_model(tmp_path / "one"), CompletionModel)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("1,0,3,0.5,fast,sort:1:0", "qos.csv:62: latency_p95_ms: 'fast' is not a number"),
        ("1,0,3,0.5,0,sort:1:0", "qos.csv:62: latency_p95_ms: 0 must be > 0"),
        ("1,0,0,0.5,1,sort:1:0", "qos.csv:62: limit_ms: 0 must be > 0"),
        ("1,0,3,0.5,1,sort", "qos.csv:62: jobs: 'sort' is not type:count:input_bytes"),
        ("1,0,3,0.5,1,sort:0:5", "qos.csv:62: jobs: 'sort:0:5' needs a count > 0 and a size >= 0"),
        ("1,0,3", "qos.csv:62: 3 cells where the header has 6"),
    ],
)
def test_broken_sample_is_one_line_with_file_line_and_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], row: str, complaint: str
) -> None:
    samples = str(qos_file(tmp_path, row))
    assert run(monkeypatch, "train", "qos", "--samples", samples, "--out", str(tmp_path / "model")) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].endswith(complaint)
    assert "Traceback" not in captured.err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (["1000,0,3,0,1,"], "1 sample with a latency > 0: too few to learn from, at least 50 are needed"),
        ([f"{rate}000,0,3,0,1," for rate in range(60)], "0 of 60 samples broke their limit"),
        ([f"{rate}000,0,3,0,4," for rate in range(60)], "0 of 60 samples kept their limit"),
        (["1000,0,3,0,1,"] * 30 + ["1000,0,3,0,4,"] * 30, "no held-out score"),
        ([f"{rate}000,0,3,0,{1 + 3 * (rate % 2)}," for rate in range(60)], "is no better than"),
    ],
)
def test_samples_that_teach_nothing_give_no_model_but_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rows: list[str], complaint: str
) -> None:
    path = tmp_path / "poor.csv"
    path.write_text("\n".join([QOS_HEADER, *rows]) + "\n", encoding="utf-8")
    assert run(monkeypatch, "train", "qos", "--samples", str(path), "--out", str(tmp_path / "m")) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert complaint in last
    assert not (tmp_path / "m").exists()


def test_samples_that_name_their_services_teach_a_model_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A database whose every latency is forty times the cache's, under a limit forty times as long."""
    rows = qos_file(tmp_path).read_text(encoding="utf-8").splitlines()[1:]
    named = [f"{row},shop/cache" for row in rows]
    for row in rows:
        rate, other, _, pressure, latency, jobs = row.split(",")
        named.append(f"{rate},{other},120,{pressure},{40 * float(latency):g},{jobs},shop/db")
    path = tmp_path / "named.csv"
    path.write_text("\n".join([f"{QOS_HEADER},service", *named]) + "\n", encoding="utf-8")
    assert run(monkeypatch, "train", "qos", "--samples", str(path), "--out", str(tmp_path / "m"), "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["services"]) == ["shop/cache", "shop/db"]
    model = read_model(tmp_path / "m")
    assert isinstance(model, ServicesQosModel)
    assert model.scales_.lone_milliseconds[1] / model.scales_.lone_milliseconds[0] == pytest.approx(40.0, rel=0.05)


def test_one_finished_job_teaches_no_run_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.csv"
    path.write_text(f"{COMPLETION_HEADER}\nsort,1e7,0,0.5,3\n", encoding="utf-8")
    assert run(monkeypatch, "train", "completion", "--samples", str(path), "--out", str(tmp_path / "m")) == 1
    assert "at least 10 are needed" in capsys.readouterr().err


def test_sources_that_contradict_are_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "m"))
    assert run(monkeypatch, "train", "qos", *out) == 2
    assert run(monkeypatch, "train", "qos", "--data", "a", "--ledger", "b", *out) == 2
    assert run(monkeypatch, "train", "completion", "--data", "a", "--limit-ms", "1", *out) == 2
    assert run(monkeypatch, "train", "completion", "--data", "a", "--table", "antagonists", *out) == 2
    assert run(monkeypatch, "train", "qos", "--data", "a", "--limit-ms", "1,fast", *out) == 2
    assert "is not a list of milliseconds" in capsys.readouterr().err


def test_missing_inputs_and_unwritable_output_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "train", "qos", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "m")) == 2
    assert "can't be read: No such file" in capsys.readouterr().err
    assert run(monkeypatch, "train", "qos", "--ledger", str(tmp_path / "none"), "--out", str(tmp_path / "m")) == 2
    assert "can't be read: No such file" in capsys.readouterr().err
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    samples = str(completion_file(tmp_path))
    target = str(tmp_path / "taken" / "below")
    assert run(monkeypatch, "train", "completion", "--samples", samples, "--out", target) == 2
    assert "can't be written" in capsys.readouterr().err


def test_file_given_as_data_is_read_as_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = str(completion_file(tmp_path))
    assert run(monkeypatch, "train", "completion", "--data", samples, "--out", str(tmp_path / "m")) == 0
    assert read_model(tmp_path / "m").types_ == ("sort",)


def ledger_directory(directory: Path) -> Path:
    """One node, one service sampled at a growing rate, and from second 20 on 20 jobs, one after the other."""
    node = Node("n", allocatable=(("cpu", 4000), ("memory", 2**33), ("pods", 110)))
    web = Pod(
        "shop/web", "u1", WorkloadClass.ONLINE, (("cpu", 1000),), 0.0,
        phase=PodPhase.RUNNING, node="n", workload="shop/web",
    )  # fmt: skip

    def job(started: int, phase: PodPhase, finished: float | None = None) -> Pod:
        return Pod(
            f"batch/sort-{started}", f"u{started}", WorkloadClass.BATCH, (("cpu", 1000),), started - 1.0, phase=phase,
            node="n", type="sort", input_bytes=10**8, started_seconds=float(started), finished_seconds=finished,
        )  # fmt: skip

    writer = LedgerWriter(SchedulerConfig())
    begin: list[Event] = [NodeUpserted(node), WorkloadUpserted(Workload("shop/web", 5.0)), PodUpserted(web)]
    lines = [writer.header(), writer.entry(0.0, begin, [])]
    for second in range(1, 81):
        events: list[Event] = [ServiceSampled("shop/web", 1000.0 * second, 0.2 * second)]
        if second >= 20 and second % 3 == 0:
            events.insert(0, PodUpserted(job(second, PodPhase.RUNNING)))
        if second >= 22 and second % 3 == 2:
            events.insert(0, PodUpserted(job(second - 2, PodPhase.SUCCEEDED, finished=float(second))))
        lines.append(writer.entry(float(second), events, []))
    (directory / "ledger.jsonl").write_bytes(b"".join(lines))
    return directory


def test_recorded_run_trains_both_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = str(ledger_directory(tmp_path))
    assert run(monkeypatch, "train", "qos", "--ledger", ledger, "--out", str(tmp_path / "q"), "-o", "json") == 0
    qos = json.loads(capsys.readouterr().out)
    assert qos["samples"] == 80
    assert qos["types"] == ["sort"]
    assert qos["services"]["shop/web"]["violations"] == 55  # 0.2 ms x second is above 5 ms from second 26 on
    assert run(monkeypatch, "train", "completion", "--ledger", ledger, "--out", str(tmp_path / "c"), "-o", "json") == 0
    completion = json.loads(capsys.readouterr().out)
    assert completion["samples"] == 20
    assert completion["types"] == ["sort"]


def test_changed_ledger_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = ledger_directory(tmp_path) / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"2000", b"2001", 1)
    ledger.write_bytes(b"".join(lines))
    assert run(monkeypatch, "train", "qos", "--ledger", str(ledger), "--out", str(tmp_path / "m")) == 2
    assert f"cotide: {ledger}: line 4 " in capsys.readouterr().err
