"""`cotide replay` as a user runs it: exit codes, words, models beside the ledger."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from cotide_cli import main
from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    Event,
    ModelsChanged,
    Node,
    NodeUpserted,
    Pod,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.forecasts import CompletionForecaster, CompletionSamples, MixBatch, QosForecaster, QosSamples
from cotide_core.recording.ledger import LedgerWriter

TYPES = ("sort", "grep")
BATCH = WorkloadClass.BATCH


def lived(catalogue: object, models: ModelsChanged | None) -> bytes:
    """Return the ledger of a cluster with one service, two nodes and some jobs."""
    config = SchedulerConfig(qos_risk_threshold=0.5)
    scheduler, writer = Scheduler(config, catalogue), LedgerWriter(config)  # type: ignore[arg-type]  # a catalogue
    web = Pod("d/web", "w", WorkloadClass.ONLINE, (), 0.0, PodPhase.RUNNING, "n0", workload="d/web")
    cycles: list[list[Event]] = [
        [NodeUpserted(Node(f"n{n}", (("cpu", 4000), ("pods", 9)))) for n in range(2)],
        [WorkloadUpserted(Workload("d/web")), PodUpserted(web), ServiceSampled("d/web", 3000.0)],
        [
            PodUpserted(
                Pod(f"d/j{n}", f"j{n}", WorkloadClass.BATCH, (("cpu", 700),), 1.0, ours=True, type=TYPES[n % 2])
            )
            for n in range(12)
        ],
    ]
    if models is not None:
        cycles.insert(0, [models])
    lines = [writer.header()]
    for now, events in enumerate(cycles):
        lines.append(writer.entry(now, events, scheduler.handle(events, float(now))))
    return b"".join(lines)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    (tmp_path / "ledger.jsonl").write_bytes(lived(HeuristicCatalogue(), None))
    return tmp_path


def cotide(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command as the shell would; returns the exit code."""
    monkeypatch.setattr(sys, "argv", ["cotide", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main.main()
    return int(leaving.value.code or 0)


Captured = pytest.CaptureFixture[str]


def test_a_ledger_that_is_reproduced_exits_with_0(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert cotide(monkeypatch, "replay", str(ledger)) == 0
    out = capsys.readouterr().out
    assert "cycles        3" in out
    assert "every instruction reproduced" in out


def test_a_file_is_taken_as_well_as_a_directory_and_json_is_json(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert cotide(monkeypatch, "replay", str(ledger / "ledger.jsonl"), "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reproduced"] is True
    assert found["difference"] is None
    assert (found["cycles"], found["instructions"] >= 12) == (3, True)


def test_one_changed_byte_exits_with_1_and_names_the_line(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    file = ledger / "ledger.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"d/j7"', b'"d/j6"', 1))
    assert cotide(monkeypatch, "replay", str(ledger)) == 1
    captured = capsys.readouterr()
    assert "the replay differs" in captured.out
    assert "line 4 was changed" in captured.err
    assert len(captured.err.splitlines()) == 1


def test_a_ledger_that_is_not_there_is_the_users_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert cotide(monkeypatch, "replay", str(tmp_path / "nowhere")) == 2
    assert "nowhere: can't be read: No such file" in capsys.readouterr().err


class OfTwo:
    """The catalogue that the ledger was recorded with."""

    def __init__(self, qos: QosForecaster, completion: CompletionForecaster) -> None:
        self._qos, self._completion, self._none = qos, completion, HeuristicCatalogue()

    def qos(self, model_id: str) -> QosForecaster:
        return self._qos if model_id else self._none.qos("")

    def completion(self, model_id: str) -> CompletionForecaster:
        return self._completion if model_id else self._none.completion("")


@pytest.fixture(scope="module")
def trained() -> tuple[OfTwo, dict[str, dict[str, bytes]], ModelsChanged]:
    """Two small, really trained models, their files by id, and the event that names them."""
    from cotide_predictors import serialisation
    from cotide_predictors.completion.completion_model import train_completion
    from cotide_predictors.qos.qos_model import train_qos

    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, (120, 2)).astype(float)
    rates = rng.uniform(100, 20_000, 120)
    sizes = counts * 1e9
    pressure = counts.sum(axis=1) / 8
    mixes = MixBatch(rates, np.zeros(120), np.full(120, 10.0), pressure, TYPES, counts, sizes)
    qos = train_qos(QosSamples(mixes, 2 + rates / 4000 * (1 + counts.sum(axis=1))), limits_milliseconds=(10.0,))
    names = tuple(TYPES[n % 2] for n in range(120))
    run = CompletionSamples(names, rng.uniform(1e8, 1e9, 120), rates, pressure, rng.uniform(10, 100, 120))
    completion = train_completion(run)
    files = {}
    for model in (qos, completion):
        written = serialisation.to_files(model)
        files[serialisation.model_id(written)] = written
    qos_id, completion_id = files
    return OfTwo(qos, completion), files, ModelsChanged(qos_id, completion_id)


@pytest.fixture
def with_models(tmp_path: Path, trained: tuple[OfTwo, dict[str, dict[str, bytes]], ModelsChanged]) -> Path:
    catalogue, files, event = trained
    (tmp_path / "ledger.jsonl").write_bytes(lived(catalogue, event))
    for model_id, written in files.items():
        directory = tmp_path / "models" / model_id
        directory.mkdir(parents=True)
        for name, content in written.items():
            (directory / name).write_bytes(content)
    return tmp_path


def test_a_file_that_is_no_ledger_is_said_to_be_none_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "notes.txt").write_text("no ledger\n")
    assert cotide(monkeypatch, "replay", str(tmp_path / "notes.txt")) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "notes.txt: line 1 is not how a ledger begins: this is none" in shown.err


def test_the_models_beside_a_ledger_are_used(
    with_models: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    code = cotide(monkeypatch, "replay", str(with_models))
    assert code == 0, capsys.readouterr().err


def test_a_model_that_was_changed_is_refused_by_its_checksum(
    with_models: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    payload = next((with_models / "models").glob("*/model.ubj"))
    content = bytearray(payload.read_bytes())
    content[len(content) // 2] ^= 1
    payload.write_bytes(bytes(content))
    assert cotide(monkeypatch, "replay", str(with_models)) == 1
    err = capsys.readouterr().err
    assert payload.parent.name in err
    assert len(err.splitlines()) == 1


def test_a_model_that_is_missing_is_named(with_models: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    lost = next((with_models / "models").glob("*/model.ubj")).parent
    lost.rename(with_models / "elsewhere")
    assert cotide(monkeypatch, "replay", str(with_models)) == 1
    assert f"{lost.name}: the ledger names this model, but it can't be read" in capsys.readouterr().err


def test_models_swapped_by_hand_are_refused(
    with_models: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    first, second = sorted((with_models / "models").iterdir())
    first.rename(with_models / "aside")
    second.rename(first)
    (with_models / "aside").rename(second)
    assert cotide(monkeypatch, "replay", str(with_models)) == 1
    assert "they were changed or belong elsewhere" in capsys.readouterr().err
