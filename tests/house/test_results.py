"""Figures of results stand in JSON files, and a page of each is written from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from results import read_results, result_pages

FOLDER = ROOT / "docs" / "results"


def result(**changes: Any) -> dict[str, Any]:
    table = {"title": "Cost", "columns": ["rule", "cost"], "rows": [["none", 2], ["a | b", 1.5]]}
    run = {"command": "cotide lab", "commit": "0123abc", "machine": "2 cores", "tables": [table | changes]}
    return {"title": "Costs", "question": "Which is cheaper?", "answer": ["The second."], "runs": [run]}


def pages_of(folder: Path, content: object) -> dict[str, str]:
    (folder / "costs.json").write_text(json.dumps(content))
    return result_pages(read_results(folder))


def test_each_file_of_results_in_the_tree_has_the_form() -> None:
    assert len(read_results(FOLDER)) >= 10


def test_a_page_shows_question_answer_command_commit_and_table(tmp_path: Path) -> None:
    pages = pages_of(tmp_path, result())
    page = pages["results/costs.md"]
    assert "[Costs](costs.md)" in pages["results/index.md"]
    assert "**Which is cheaper?**\n\nThe second." in page
    assert "$ cotide lab\n```\n\nCommit `0123abc`; 2 cores." in page
    assert "| rule | cost |\n| --- | --- |\n| none | 2 |\n| a \\| b | 1.5 |" in page


def test_a_chart_draws_a_bar_for_each_row_with_a_number(tmp_path: Path) -> None:
    chart = {"label": "rule", "value": "cost"}
    page = pages_of(tmp_path, result(chart=chart, rows=[["<none>", 2], ["b", 1], ["c", None]]))["results/costs.md"]
    assert page.count("<rect") == 2
    assert 'width="420.0"' in page
    assert 'width="210.0"' in page
    assert "&lt;none&gt;" in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [["none"]]}, "row 0 of 'Cost' has 1 cells for 2 columns"),
        ({"rows": []}, "rows"),
        ({"chart": {"label": "rule", "value": "wait"}}, "names the column 'wait', which is missing"),
        ({"chart": {"label": "cost", "value": "rule"}}, "'rule' of 'Cost' holds no number"),
        ({"caption": "x"}, "caption"),
    ],
)
def test_a_file_that_breaks_the_form_is_named_with_its_field(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=r"costs\.json") as raised:
        pages_of(tmp_path, result(**changes))
    assert message in str(raised.value)
