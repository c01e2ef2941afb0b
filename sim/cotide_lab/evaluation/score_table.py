"""The scores of `cotide evaluate` as text: a table, the base of the trees, and diagrams in lines.

Called by `evaluate_command`. Invariant: prints what `score_rows` found, computes nothing.
"""

from __future__ import annotations

from typing import Any, Final

import click

from cotide_cli.printing import print_figures, print_lines
from cotide_lab.evaluation.asking import Asked
from cotide_lab.evaluation.score_rows import Found

QOS_METRICS: Final = ("accuracy", "recall", "f1", "brier")
COMPLETION_METRICS: Final = ("mae_seconds", "r2", "median_relative_error")


def print_scores(asked: Asked, found: Found, *, by_splits: bool) -> None:
    """Print all scores.

    Parameters
    ----------
    by_splits : figures are means over random splits, not of one model on one set.
    """
    _print_table(asked, found.rows)
    compared = "F1" if asked.predictor == "qos" else "MAE"
    if by_splits:
        click.echo(
            f"\n{asked.splits} random 3:1 splits by {asked.split_by}, seed {asked.seed}; mean (standard deviation) "
            f"over the splits. vs cotide: paired difference of {compared}."
        )
        for sentence in _base_sentences(found.rows):
            click.echo(sentence)
    elif asked.unseen:
        click.echo(f"\nEach table was scored by models of the others. vs cotide: difference of {compared}.")
    if asked.reliability:
        _print_diagrams(found.reliability)


def _base_sentences(rows: list[dict[str, Any]]) -> list[str]:
    """Return in words how often the logistic base lies under the trees, for each table learned from in full."""
    shares = {
        row["table"]: row["metrics"]["base_share"]["mean"]
        for row in rows
        if row.get("training_share") == 1.0 and row["metrics"].get("base_share")
    }
    if not shares:
        return []
    listed = ", ".join(f"{table} {share:.0%}" for table, share in shares.items())
    return [f"Splits in which the logistic base lies under the trees inside the measured range: {listed}."]


def _print_table(asked: Asked, rows: list[dict[str, Any]]) -> None:
    metrics = QOS_METRICS if asked.predictor == "qos" else COMPLETION_METRICS
    header = ["table", "learned from", "limit", "violated", "model"]
    lines = [[*header, *(metric.replace("_", " ") for metric in metrics), "vs cotide"]]
    for row in rows:
        limit, share = row["limit_milliseconds"], row["violated_share"]
        learned = ", ".join(row.get("learned_from", ())) or f"{row.get('training_share', 1.0):.3g} of the cells"
        cells = [row["table"], learned, "" if limit is None else f"{limit:g} ms"]
        cells += ["" if share is None else f"{share:.0%}", row["model"]]
        cells += [_cell(row["metrics"].get(metric)) for metric in metrics]
        cells.append(_cell(row["versus_cotide"], signed=True) if row["versus_cotide"] else "")
        lines.append(cells)
    kept = list(range(len(lines[0])))
    if not (asked.unseen or asked.learning_curve):
        kept.remove(1)
    if asked.predictor == "completion":
        kept = [column for column in kept if column not in (2, 3)]
    print_figures([[line[column] for column in kept] for line in lines], names=kept.index(4) + 1, indent="")


def _print_diagrams(diagrams: list[dict[str, Any]]) -> None:
    click.echo("\nhow often likely violations came: mean probability and share violated by tenth (rows)")
    for diagram in diagrams:
        error = f"{diagram['calibration_error']:.3f} off on average"
        click.echo(f"{diagram['table']}, {diagram['limit_milliseconds']:g} ms, {diagram['model']}: {error}")
        print_lines(
            [
                ["said", *(f"{found['said']:.2f}" for found in diagram["bins"])],
                ["seen", *(f"{found['seen']:.2f}" for found in diagram["bins"])],
                ["rows", *(str(found["rows"]) for found in diagram["bins"])],
            ]
        )


def _cell(value: dict[str, float] | None, *, signed: bool = False) -> str:
    if value is None:
        return "n/a"
    return f"{value['mean']:+.3f} ({value['sd']:.3f})" if signed else f"{value['mean']:.3f} ({value['sd']:.3f})"
