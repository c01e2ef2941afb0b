"""Pages of results, from the JSON files that hold the figures.

Each `docs/results/NAME.json` becomes the page `results/NAME.md`: the question, the answer, and for each run its
command, its commit and its tables, some drawn as bars. `results/index.md` lists all of them. The figures stand in the
JSON files alone, so that a new run replaces a file and no prose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

BAR_WIDTH: Final = 420
"""Pixels of the longest bar (chosen)."""
LABEL_WIDTH: Final = 260
BAR_HEIGHT: Final = 22
Cell = str | float | int | None
Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Chart(_Strict):
    """The columns that a picture shows: the text of each bar and its length."""

    label: Text
    value: Text


class Table(_Strict):
    """One table of a run; each row has a cell for each column."""

    title: Text
    columns: Annotated[list[Text], Field(min_length=1)]
    rows: Annotated[list[list[Cell]], Field(min_length=1)]
    chart: Chart | None = None

    @model_validator(mode="after")
    def _fits(self) -> Table:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"row {number} of {self.title!r} has {len(row)} cells for {len(self.columns)} columns")
        if self.chart is not None:
            for column in (self.chart.label, self.chart.value):
                if column not in self.columns:
                    raise ValueError(f"the chart of {self.title!r} names the column {column!r}, which is missing")
            if not any(isinstance(row[self.columns.index(self.chart.value)], float | int) for row in self.rows):
                raise ValueError(f"the column {self.chart.value!r} of {self.title!r} holds no number to draw")
        return self


class Run(_Strict):
    """One command and the tables that it printed."""

    command: Text
    commit: Annotated[str, Field(pattern="^[0-9a-f]{7,40}$")]
    machine: Text
    notes: list[Text] = []
    tables: Annotated[list[Table], Field(min_length=1)]


class Result(_Strict):
    """A question, its answer, and the runs that answer it."""

    title: Text
    question: Text
    answer: Annotated[list[Text], Field(min_length=1)]
    runs: Annotated[list[Run], Field(min_length=1)]


def read_results(folder: Path) -> dict[str, Result]:
    """Return all results of a folder by the stem of their file, in alphabetical order.

    Raises
    ------
    ValueError
        A file breaks the form; the message names the file and the field.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = Result.model_validate_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return found


def result_pages(results: Mapping[str, Result]) -> dict[str, str]:
    """Return the Markdown of each page, by its path below the docs folder."""
    pages = {f"results/{name}.md": result_page(result) for name, result in results.items()}
    rows = [f"| [{result.title}]({name}.md) | {_cell(result.question)} |" for name, result in results.items()]
    head = ["# Results", "", "Each page shows one question, its answer, the commands and their figures.", ""]
    pages["results/index.md"] = "\n".join([*head, "| result | question |", "|---|---|", *rows, ""])
    return pages


def result_page(result: Result) -> str:
    """Return the Markdown of one result."""
    out = [f"# {result.title}", "", f"**{result.question}**", "", " ".join(result.answer), ""]
    for run in result.runs:
        out += ["```console", f"$ {run.command}", "```", "", f"Commit `{run.commit}`; {run.machine}.", ""]
        if run.notes:
            out += [*(f"- {note}" for note in run.notes), ""]
        for table in run.tables:
            out += [f"## {table.title}", "", *_rows(table), ""]
            if table.chart is not None:
                out += [_bars(table, table.chart), ""]
    return "\n".join(out)


def _rows(table: Table) -> Iterable[str]:
    rows: list[list[Cell]] = [[*table.columns], ["---"] * len(table.columns), *table.rows]
    for row in rows:
        yield "| " + " | ".join(_cell("-" if cell is None else f"{cell}") for cell in row) + " |"


def _bars(table: Table, chart: Chart) -> str:
    label, value = table.columns.index(chart.label), table.columns.index(chart.value)
    bars = [(f"{row[label]}", row[value]) for row in table.rows]
    drawn = [(text, float(length)) for text, length in bars if isinstance(length, float | int)]
    longest = max(abs(length) for _, length in drawn)
    scale = BAR_WIDTH / longest if longest else 0.0
    height = BAR_HEIGHT * len(drawn)
    shapes = []
    for number, (text, length) in enumerate(drawn):
        middle = BAR_HEIGHT * number + BAR_HEIGHT * 0.7
        width = abs(length) * scale
        shapes += [
            f'<text x="{LABEL_WIDTH - 8}" y="{middle:.0f}" text-anchor="end">{escape(text)}</text>',
            f'<rect x="{LABEL_WIDTH}" y="{BAR_HEIGHT * number + 3}" width="{width:.1f}" height="{BAR_HEIGHT - 6}"'
            ' opacity=".6"/>',
            f'<text x="{LABEL_WIDTH + width + 6:.1f}" y="{middle:.0f}">{length:g}</text>',
        ]
    box = f"0 0 {LABEL_WIDTH + BAR_WIDTH + 90} {height}"
    title = f"<title>{escape(f'{table.title}: {chart.value}')}</title>"
    return f'<svg viewBox="{box}" role="img" fill="currentColor" font-size="13">{title}{"".join(shapes)}</svg>'


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
