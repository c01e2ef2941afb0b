"""`cotide evaluate`: held-out scores of a predictor compared with its baselines, for each table and each limit.

Called by `main`. Prints plain scores. The last column is the mean of the paired differences to Cotide's model over the
splits, with their standard deviation, to separate noise from signal. Invariant: splits depend on the seed only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cotide_cli.inputs.checked_types import REPEATS, SEED, OutputFile
from cotide_cli.option_groups import GroupedCommand, grouped, option_group
from cotide_cli.printing import as_text, output_option
from cotide_lab.evaluation import asking, score_rows, score_table
from cotide_lab.inputs.sample_options import SampleOptions, sample_options
from cotide_sim.pages.origin import made


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """The split of samples into training samples and scored samples."""

    splits: int
    split_by: str
    unseen: bool
    seed: int


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """The scored limits, and the parts of the output."""

    model_directory: Path | None
    learning_curve: bool
    reliability: bool
    page: Path | None


@click.command("evaluate", cls=GroupedCommand)
@click.argument("predictor", type=click.Choice(["qos", "completion"]))
@sample_options("Which table of --data; all: each on its own.", "p95 limits to score; default: by table or samples.")
@option_group(
    "Splits",
    "parted",
    SplitOptions,
    grouped("--splits", type=REPEATS, default=10, show_default=True, help="Random 3:1 splits."),
    grouped(
        "--split",
        "split_by",
        type=click.Choice(["cell", "row"]),
        default="cell",
        show_default=True,
        help="cell: repetitions of a cell stay on one side.",
    ),
    grouped("--unseen", is_flag=True, help="Train on the other tables of --data and score each as a whole."),
    grouped("--seed", type=SEED, default=0, show_default=True, help="Seed of the splits."),
)
@option_group(
    "Scores",
    "asked",
    ScoreOptions,
    grouped(
        "--model",
        "model_directory",
        type=click.Path(path_type=Path),
        help="Score a stored model on all rows instead of training (in-sample if it was trained on them).",
    ),
    grouped("--learning-curve", is_flag=True, help="Also learn from an eighth, a quarter and half of the cells."),
    grouped("--reliability", is_flag=True, help="Also show how often likely events came."),
    grouped("--page", type=OutputFile(), help="Write curves and diagrams as HTML."),
)
@output_option
def command(predictor: str, source: SampleOptions, parted: SplitOptions, asked: ScoreOptions, output: str) -> None:
    """Score the QoS or the completion predictor over random 3:1 splits, compared with its baselines."""
    source = source.checked()
    question = asking.Asked(
        predictor, source.table, source.limits, parted.splits, parted.split_by, parted.seed, unseen=parted.unseen,
        learning_curve=asked.learning_curve, reliability=asked.reliability or asked.page is not None,
    )  # fmt: skip
    asking.check(question, source, asked.model_directory)
    model = None if asked.model_directory is None else asking.read_model(asked.model_directory)
    found = score_rows.scored(question, source, model)
    if asked.page is not None:
        from cotide_lab.evaluation.score_page import write_page

        write_page(asked.page, question, found, made())
    if output != "table":
        report: dict[str, Any] = {
            "predictor": predictor, "split_by": parted.split_by, "splits": parted.splits, "seed": parted.seed,
        }  # fmt: skip
        click.echo(as_text({**report, "scores": found.rows, "reliability": found.reliability}, output))
        return
    score_table.print_scores(question, found, by_splits=model is None and not parted.unseen)
