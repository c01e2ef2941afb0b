"""Each figure that the README states is among the results, with the command that could have refuted it."""

from __future__ import annotations

import json
import re

import pytest
from repository import ROOT

FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE_OR_LINK = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+")
VERSION_OR_YEAR = re.compile(r"\b(?:Python|Kubernetes|port) \d+(?:\.\d+)*|\b[A-Z][a-z]+ (?:19|20)\d\d\b")
NUMBER = r"\d(?:[\d,.]*\d)?"
UNIT = r" ?%|(?: simulated)? (?:ms|milliseconds|s|seconds|minutes|h|hours|KiB|MiB|GiB|KB|MB|GB|times|nodes|pods)\b"
FIGURE = re.compile(rf"(?<![\w.-])({NUMBER})(?:(?:-| to )({NUMBER}))?({UNIT})?(?![\w])")
RESULT = ROOT / "docs" / "results" / "readme-figures.json"
CELLS = ("figure", "what it says", "command", "machine", "date", "range")


def figures(text: str) -> list[str]:
    """Every number or range with its unit, but for those in code and links, versions, ports and years of papers."""
    for left_out in (FENCED, CODE_OR_LINK, VERSION_OR_YEAR):
        text = left_out.sub(" ", text)
    text = " ".join(text.split())
    return [
        f"{low}{f'-{high}' if high else ''}{f' {unit.strip()}' if unit else ''}"
        for low, high, unit in FIGURE.findall(text)
    ]


def evidence() -> list[dict[str, str]]:
    """The rows of the table of the README's figures."""
    runs = json.loads(RESULT.read_text(encoding="utf-8"))["runs"]
    tables = [table for run in runs for table in run["tables"] if tuple(table["columns"]) == CELLS]
    return [dict(zip(CELLS, row, strict=True)) for table in tables for row in table["rows"]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("falls by 2 to 12 %,", ["2-12 %"]),
        ("0.5-3.0 % of it; 9 % less", ["0.5-3.0 %", "9 %"]),
        ("1,200 times as fast, in 15 simulated minutes", ["1,200 times", "15 simulated minutes"]),
        ("it lasts 40 s on 3 machines.", ["40 s", "3"]),
        ("a line's end comes\nbetween 5\n% and its unit", ["5 %"]),
        ("Python 3.11, Kubernetes 1.29, Apache-2.0, (Ou 2024), p95, port 8080, `--nodes 40`, [x](a-3.md)", []),
        ("```console\n$ make demo  # 40 nodes\n```\n", []),
    ],
)
def test_a_figure_is_a_number_that_names_nothing(text: str, found: list[str]) -> None:
    assert figures(text) == found


def test_every_figure_of_the_readme_is_among_the_results() -> None:
    stated = set(figures((ROOT / "README.md").read_text()))
    shown = {figure for row in evidence() for figure in figures(row["figure"])}
    assert stated - shown == set(), "in README.md, and without a row in docs/results/readme-figures.json"
    assert shown - stated == set(), "in docs/results/readme-figures.json, and no longer in README.md"


def test_every_row_of_evidence_is_whole() -> None:
    assert evidence()
    assert [row for row in evidence() if not all(row.values())] == []
