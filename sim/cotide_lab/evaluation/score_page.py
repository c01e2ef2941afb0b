"""The page of `cotide evaluate --page`: learning curves and reliability diagrams, one file that loads nothing.

Called by `evaluate_command`. Invariant: draws what `score_rows` found, computes nothing.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cotide_core.errors import InputError
from cotide_lab.evaluation.asking import Asked
from cotide_lab.evaluation.score_rows import Found
from cotide_sim.pages.line_chart import Axis, Series, line_chart
from cotide_sim.pages.page import Made, chart, charts, page, table

DIAGONAL = "probability equals observed share"


def write_page(path: Path, asked: Asked, found: Found, made: Made) -> None:
    """Write the page; an existing file is replaced.

    Raises
    ------
    InputError
        When the file can't be written.
    """
    sections = [f"<p class=lead>{escape(_lead(asked))}</p>"]
    curves = _curves(found.rows) if asked.learning_curve else []
    if curves:
        sections += ["<h2>By training samples</h2>", charts(*curves)]
    sections += ["<h2>How often likely violations came</h2>", charts(*_diagrams(found.reliability))]
    sections.append(_errors(found.reliability))
    try:
        path.write_text(page("Latency predictors, held out", sections, made), encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(path), field="--page") from error


def _lead(asked: Asked) -> str:
    if asked.unseen:
        return "Each table was scored by models that learned from the other tables."
    return f"{asked.splits} random 3:1 splits by {asked.split_by}, seed {asked.seed}; all figures are of held-out rows."


def _key(row: dict[str, Any]) -> tuple[str, float]:
    return row["table"], row["limit_milliseconds"]


def _title(key: tuple[str, float]) -> str:
    return f"{key[0]}, {key[1]:g} ms"


def _curves(rows: list[dict[str, Any]]) -> list[str]:
    """Return F1 by rows learned from, a chart for each table and limit."""
    drawn = []
    for key in dict.fromkeys(map(_key, rows)):
        points: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if _key(row) == key and row["metrics"]["f1"] is not None:
                at = (row["metrics"]["rows"]["mean"], row["metrics"]["f1"]["mean"])
                points.setdefault(row["model"], []).append(at)
        if not points:
            continue
        series = [Series(name, *np.array(sorted(found)).T) for name, found in points.items()]
        most = max(float(one.x[-1]) for one in series)
        axes = Axis("rows learned from", 0.0, most), Axis("F1", 0.0, 1.0)
        drawn.append(chart(_title(key), "mean F1 over the splits", line_chart(series, *axes)))
    return drawn


def _diagrams(reliability: list[dict[str, Any]]) -> list[str]:
    """Return share violated by probability, a chart for each table and limit."""
    drawn = []
    ends = np.array([0.0, 1.0])
    for key in dict.fromkeys(map(_key, reliability)):
        here = [item for item in reliability if _key(item) == key]
        series = [
            Series(item["model"], np.array([found["said"] for found in item["bins"]]),
                   np.array([found["seen"] for found in item["bins"]]))
            for item in here
        ]  # fmt: skip
        axes = Axis("mean probability", 0.0, 1.0), Axis("share violated", 0.0, 1.0)
        line = line_chart([*series, Series(DIAGONAL, ends, ends)], *axes)
        drawn.append(chart(_title(key), "by tenth of the probability, over all test rows", line))
    return drawn


def _errors(reliability: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(item["model"] for item in reliability))
    rows = []
    for key in dict.fromkeys(map(_key, reliability)):
        errors = {item["model"]: item["calibration_error"] for item in reliability if _key(item) == key}
        rows.append([escape(_title(key)), *(f"{errors[name]:.3f}" if name in errors else "-" for name in names)])
    return table(["error of the probability, mean over rows", *names], rows)
