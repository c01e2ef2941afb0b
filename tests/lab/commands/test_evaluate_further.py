"""`cotide evaluate` beyond random splits: unseen tables, learning curves, reliability diagrams and their page."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from evaluate_scene import run, write_qos_samples
from repository import DATA

from cotide_lab.predictors.evaluation.baselines import QOS_BASELINES
from cotide_lab.predictors.evaluation.held_out import SHIPPED
from cotide_lab.predictors.evaluation.unseen import UNBOUNDED

CONTENDERS = ("cotide", SHIPPED, *QOS_BASELINES)


@pytest.fixture
def qos_file(tmp_path: Path) -> Path:
    return write_qos_samples(tmp_path)


def test_a_learning_curve_scores_the_same_test_rows_from_an_eighth_to_all_of_the_cells(
    qos_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("evaluate", "qos", "--samples", str(qos_file), "--limits", "3", "--splits", "1", "--learning-curve")
    assert run(monkeypatch, *arguments, "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)["scores"]
    by_share = {row["training_share"]: row["metrics"] for row in rows if row["model"] == "cotide"}
    # 120 cells of one row, 90 of them for training: an eighth is 11.25.
    assert [by_share[share]["rows"]["mean"] for share in (0.125, 0.25, 0.5, 1.0)] == [11, 22, 45, 90]
    assert by_share[1.0]["f1"]["mean"] >= by_share[0.125]["f1"]["mean"]
    assert {row["model"] for row in rows if row["training_share"] == 0.125} == set(CONTENDERS)
    assert run(monkeypatch, *arguments) == 0
    said = capsys.readouterr().out
    assert "0.125 of the cells" in said
    assert "Splits in which the logistic base lies under the trees inside the measured range: qos.csv " in said


def test_a_reliability_diagram_counts_every_test_row_of_every_split_once(
    qos_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("evaluate", "qos", "--samples", str(qos_file), "--limits", "3", "--splits", "2", "--reliability")
    assert run(monkeypatch, *arguments, "-o", "json") == 0
    diagrams = json.loads(capsys.readouterr().out)["reliability"]
    assert [diagram["model"] for diagram in diagrams] == list(CONTENDERS)
    for diagram in diagrams:
        assert sum(found["rows"] for found in diagram["bins"]) == 60
        assert all(found["low"] <= found["said"] <= found["high"] for found in diagram["bins"])
    assert run(monkeypatch, *arguments) == 0
    assert "qos.csv, 3 ms, cotide: 0." in capsys.readouterr().out


def test_the_page_has_a_chart_for_each_limit_and_loads_nothing(
    qos_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = tmp_path / "qos.html"
    arguments = ("evaluate", "qos", "--samples", str(qos_file), "--limits", "3,5", "--splits", "1", "--learning-curve")
    assert run(monkeypatch, *arguments, "--page", str(page)) == 0
    text = page.read_text(encoding="utf-8")
    drawings = [part.split("</svg>")[0] for part in text.split("<svg")[1:]]
    assert len(drawings) == 4  # a curve and a diagram at each of two limits
    for drawing in drawings:
        ElementTree.fromstring(f"<svg{drawing}</svg>")  # noqa: S314  our own page
    assert "<script" not in text
    assert "src=" not in text
    nowhere = str(tmp_path / "no" / "qos.html")
    assert run(monkeypatch, *arguments[:5], "3", "--splits", "1", "--page", nowhere) == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("qos", "--unseen"), "--unseen is for the measured tables"),
        (("completion", "--reliability"), "are about the QoS predictor"),
        (("qos", "--unseen", "--learning-curve"), "--unseen"),
        (("qos", "--learning-curve", "--model", "x"), "--model trains nothing"),
    ],
)
def test_what_contradicts_each_other_is_refused_before_anything_is_trained(
    arguments: tuple[str, ...],
    sentence: str,
    qos_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, "evaluate", *arguments, "--samples", str(qos_file)) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.data
def test_an_unseen_table_is_scored_by_models_of_the_other_campaigns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (DATA / "colocation").is_dir():
        pytest.skip(f"no measured tables in {DATA}: set COTIDE_DATA to a directory that holds colocation/")
    arguments = ("evaluate", "qos", "--data", str(DATA), "--unseen", "--table", "antagonists", "--limits", "2")
    assert run(monkeypatch, *arguments, "-o", "json") == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == "antagonists: learned from grid, parsec"
    rows = json.loads(captured.out)["scores"]
    assert {row["model"] for row in rows} == {"cotide", UNBOUNDED, *QOS_BASELINES}
    assert all(row["learned_from"] == ["grid", "parsec"] for row in rows)
    assert run(monkeypatch, *arguments) == 0
    assert "Each table was scored by models of the others." in capsys.readouterr().out
