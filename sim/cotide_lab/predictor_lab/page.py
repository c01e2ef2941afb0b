"""The lab's page: one HTML file with a sentence, a plot and a table for each task and data set.

Called by `cotide lab report --page`. Invariant: the file is complete in itself, without scripts and without loading
anything.
"""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from cotide_core.errors import InputError
from cotide_core.units import counted
from cotide_lab.predictor_lab.cells import at_horizon, horizon_of
from cotide_lab.predictor_lab.report import FIRST_FIGURE, Ranks, Table
from cotide_sim.pages.page import Made, page
from cotide_sim.pages.page import table as table_of


def write_page(
    path: Path, tables: Sequence[Table], ranks: Sequence[Ranks], made: Made, sentences: Sequence[str] = ()
) -> None:
    """Write the page in place of an earlier one.

    Parameters
    ----------
    made : text at the foot of the page.
    sentences : the comparisons with today's predictors, one paragraph each.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    parts: list[str] = []
    for table in tables:
        parts.append(f"<h2>{html.escape(f'{table.task}: {table.data}')}</h2><p>{html.escape(table.sentence)}</p>")
        parts.append(_plot(table) + _rows(table))
    parts += [_ranks(rank) for rank in ranks]
    parts += [f"<p>{html.escape(sentence)}</p>" for sentence in sentences]
    try:
        path.write_text(page("Predictor lab", parts, made), encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(path), field="--page") from error


def _plot(table: Table) -> str:
    """Return an SVG of the first figure of every predictor with its interval."""
    if not table.rows:
        return ""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 0.6 + 0.3 * len(table.rows)), layout="constrained")
    axes = figure.subplots()
    for height, row in enumerate(reversed(table.rows)):
        if row.first.low is not None and row.first.high is not None:
            axes.plot([row.first.low, row.first.high], [height, height], color="#888888")
        axes.plot([row.first.value], [height], "o", color="#1f5fa8")
    axes.set_yticks(range(len(table.rows)), [row.predictor for row in reversed(table.rows)])
    known = any(row.first.low is not None for row in table.rows)
    words = "95 % interval over blocks of time" if known else "too few blocks of time for an interval"
    axes.set_xlabel(f"{FIRST_FIGURE[table.task]} ({words})")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    return text[text.index("<svg") :]


def _rows(table: Table) -> str:
    names = list(dict.fromkeys(name for row in table.rows for name in row.figures if horizon_of(name) is None))
    costs = list(dict.fromkeys(name for row in table.rows for name in row.costs))
    rows = [
        [html.escape(row.predictor), *_cells(row.figures, names), *_cells(row.costs, costs, "{:.3g}")]
        for row in table.rows
    ]
    missing = "".join(f"<p>{html.escape(f'{name}: {why}')}</p>" for name, why in table.missing)
    return table_of(["predictor", *names, *costs], rows) + _horizons(table) + missing


def _horizons(table: Table) -> str:
    """Return a table of each figure by horizon, folded away; nothing where there is none."""
    found: dict[str, list[int]] = {}
    for figure, slots in sorted({at for row in table.rows for name in row.figures if (at := horizon_of(name))}):
        found.setdefault(figure, []).append(slots)
    parts = []
    for figure, horizons in found.items():
        names = [at_horizon(figure, slots) for slots in horizons]
        rows = [[html.escape(row.predictor), *_cells(row.figures, names)] for row in table.rows]
        parts.append(table_of([f"{figure} by slots ahead", *map(str, horizons)], rows))
    return f"<details><summary>By horizon</summary>{''.join(parts)}</details>" if parts else ""


def _cells(values: Mapping[str, float], names: Sequence[str], form: str = "{:.4g}") -> list[str]:
    return [form.format(values[name]) if name in values else "-" for name in names]


def _ranks(rank: Ranks) -> str:
    apart = "" if rank.critical_difference is None else f"; significant from {rank.critical_difference:.2f} on"
    means = ", ".join(f"{name} {mean:.1f}" for name, mean in rank.ranks.items())
    over = counted(rank.sets, "set")
    return f"<p>{html.escape(f'{rank.task}, mean rank by {rank.figure} over {over}{apart}: {means}')}</p>"
