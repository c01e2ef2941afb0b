"""`cotide evaluate`: held-out scores of a predictor beside its rivals, for each table and each limit.

Called by `main`. Prints what is so: the last column is the mean of the paired differences to our model over the splits,
with their standard deviation, so that noise can be told from signal. Invariant: splits depend on the seed only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cotide_cli.evaluation import asking, score_rows, score_table
from cotide_cli.inputs.sample_options import SampleOptions, sample_options
from cotide_cli.option_groups import GroupedCommand
from cotide_cli.printing import as_text, made, output_option


@click.command("evaluate", cls=GroupedCommand)
@click.argument("predictor", type=click.Choice(["qos", "completion"]))
@sample_options("Which table of --data; all: each on its own.", "p95 limits to score; default: by table or samples.")
@click.option("--splits", type=click.IntRange(min=1), default=10, show_default=True, help="Random 3:1 splits.")
@click.option(
    "--split",
    "split_by",
    type=click.Choice(["cell", "row"]),
    default="cell",
    show_default=True,
    help="cell: repetitions of a cell stay on one side.",
)
@click.option(
    "--model",
    "model_directory",
    type=click.Path(path_type=Path),
    help="Score a stored model on all rows instead of training (in-sample if it was trained on them).",
)
@click.option("--unseen", is_flag=True, help="Train on the other tables of --data and score each as a whole.")
@click.option("--learning-curve", is_flag=True, help="Also learn from an eighth, a quarter and half of the cells.")
@click.option("--reliability", is_flag=True, help="Also say how often what was called likely came.")
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="Write curves and diagrams as HTML.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the splits.")
@output_option
def command(
    predictor: str,
    source: SampleOptions,
    splits: int,
    split_by: str,
    model_directory: Path | None,
    unseen: bool,
    learning_curve: bool,
    reliability: bool,
    page: Path | None,
    seed: int,
    output: str,
) -> None:
    """Score the QoS or the completion predictor over random 3:1 splits, beside its rivals."""
    source = source.checked()
    asked = asking.Asked(
        predictor, source.table, source.limits, splits, split_by, seed, unseen=unseen, learning_curve=learning_curve,
        reliability=reliability or page is not None,
    )  # fmt: skip
    asking.check(asked, source, model_directory)
    model = None if model_directory is None else asking.read_model(model_directory)
    found = score_rows.scored(asked, source, model)
    if page is not None:
        from cotide_cli.evaluation.score_page import write_page

        write_page(page, asked, found, made())
    if output != "table":
        report: dict[str, Any] = {"predictor": predictor, "split_by": split_by, "splits": splits, "seed": seed}
        click.echo(as_text({**report, "scores": found.rows, "reliability": found.reliability}, output))
        return
    score_table.print_scores(asked, found, by_splits=model is None and not unseen)
