"""The scores of `cotide evaluate` as rows: a contender at a limit of a table, with its training samples.

Called by `evaluate_command`. Reads samples, hands them to `cotide_lab.predictors.evaluation` and adds up. Invariant: a
figure that no split defines is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from cotide_core.errors import InputError
from cotide_core.forecasts import CompletionSamples, QosSamples
from cotide_core.units import counted
from cotide_lab.evaluation.asking import Asked
from cotide_lab.inputs import training_data
from cotide_lab.inputs.sample_options import TABLE_LIMITS, SampleOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cotide_core.kernels.array_types import Floats

SAME_CAMPAIGN: Final = {"grid": "grid", "grid-once": "grid"}
"""Tables of the same measurements; any other table is a campaign of its own. Tables of one campaign are not unseen for
each other."""
STORED: Final = "stored model"


@dataclass(slots=True)
class Found:
    """All rows.

    Attributes
    ----------
    rows : scores. reliability : a diagram for each contender at each limit of each table.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    reliability: list[dict[str, Any]] = field(default_factory=list)


class Diagrams:
    """Collects the forecasts of contenders for test rows, over all splits of one table."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._forecasts: dict[tuple[str, float], list[tuple[Floats, NDArray[np.bool_]]]] = {}

    def note(self, contender: str, limit: float, probability: Floats, violated: NDArray[np.bool_]) -> None:
        """Take (n,) probabilities and outcomes."""
        self._forecasts.setdefault((contender, limit), []).append((probability, violated))

    def drawn(self) -> list[dict[str, Any]]:
        """Return a diagram for each contender and limit, over all collected rows."""
        from cotide_lab.predictors.evaluation.reliability_diagram import calibration_error, reliability_diagram

        found: list[dict[str, Any]] = []
        for (contender, limit), forecasts in self._forecasts.items():
            bins = reliability_diagram(*(np.concatenate(parts) for parts in zip(*forecasts, strict=True)))
            found.append(
                {
                    "table": self._table,
                    "limit_milliseconds": limit,
                    "model": contender,
                    "calibration_error": calibration_error(bins),
                    "bins": [asdict(one) for one in bins],
                }
            )
        return found


def scored(asked: Asked, source: SampleOptions, model: Any) -> Found:
    """Return all requested rows; progress goes to stderr.

    Parameters
    ----------
    model : a stored model to score in place of training, or None.
    """
    found = Found()
    if asked.predictor == "completion":
        for name, jobs in _completion_sources(asked, source):
            found.rows += _stored_completion(name, jobs, model) if model is not None else _completion(name, jobs, asked)
        return found
    sources = _qos_sources(asked, source)
    for name, samples in sources:
        noted = set(samples.mixes.limit_milliseconds.tolist())
        limits = asked.limits or TABLE_LIMITS.get(name) or tuple(sorted(noted))
        diagrams = Diagrams(name)
        if model is not None:
            found.rows += _stored_qos(name, samples, limits, model, diagrams)
        elif asked.unseen:
            found.rows += _unseen(name, samples, limits, asked, source, diagrams)
        else:
            found.rows += _qos(name, samples, limits, asked, diagrams)
        if asked.reliability:
            found.reliability += diagrams.drawn()
    return found


def _qos_sources(asked: Asked, source: SampleOptions) -> list[tuple[str, QosSamples]]:
    if source.data is not None:
        data = source.data
        names = [name for name in TABLE_LIMITS if name != "all"] if asked.table == "all" else [asked.table]
        return [(name, training_data.qos_from_tables(data, name)) for name in names]
    if source.samples is not None:
        return [(source.samples.name, training_data.qos_from_csv(source.samples))]
    assert source.ledger is not None  # noqa: S101  the caller counted the sources
    return [(source.ledger.name, training_data.from_ledger(source.ledger)[0])]


def _completion_sources(asked: Asked, source: SampleOptions) -> list[tuple[str, CompletionSamples]]:
    table = asked.table
    if source.data is not None:
        if table not in ("grid", "parsec", "all"):
            raise click.UsageError(f"--table {table} has no run times; grid, parsec and all have")
        names = ["grid", "parsec"] if table == "all" else [table]
        # Without the lone runs: they reveal to each contender the answer at rate 0 of held-out cells.
        return [(name, training_data.completion_from_tables(source.data, name, lone_runs=False)) for name in names]
    if source.samples is not None:
        return [(source.samples.name, training_data.completion_from_csv(source.samples))]
    assert source.ledger is not None  # noqa: S101  the caller counted the sources
    return [(source.ledger.name, training_data.from_ledger(source.ledger)[1])]


def _stored_qos(
    name: str, samples: QosSamples, limits: Sequence[float], model: Any, diagrams: Diagrams
) -> list[dict[str, Any]]:
    from cotide_lab.predictors.evaluation.held_out import score_qos
    from cotide_predictors.qos.mixes import with_limit
    from cotide_predictors.qos.qos_model import QosModel

    if not isinstance(model, QosModel):
        raise InputError("holds a completion model; this is about QoS", field="--model")
    rows = []
    for limit in limits:
        violated, mixes = samples.latency_milliseconds > limit, with_limit(samples.mixes, limit)
        diagrams.note(STORED, limit, model.violation_probability(mixes), violated)
        scores = {metric: [value] for metric, value in score_qos(model, mixes, violated).items()}
        rows.append(_row(name, limit, float(violated.mean()), STORED, scores))
    return rows


def _stored_completion(name: str, found: CompletionSamples, model: Any) -> list[dict[str, Any]]:
    from cotide_lab.predictors.evaluation.held_out import score_completion
    from cotide_predictors.completion.completion_model import CompletionModel, jobs_of

    if not isinstance(model, CompletionModel):
        raise InputError("holds a QoS model; this is about run times", field="--model")
    scores = score_completion(model.predict(jobs_of(found)), found.seconds)
    return [_row(name, None, None, STORED, {key: [value] for key, value in scores.items()})]


def _qos(
    name: str, samples: QosSamples, limits: Sequence[float], asked: Asked, diagrams: Diagrams
) -> list[dict[str, Any]]:
    from cotide_lab.predictors.evaluation.held_out import evaluate_qos

    _require(name, len(samples.latency_milliseconds))
    rows = []
    for share in asked.shares:
        scores = evaluate_qos(
            samples,
            limits_milliseconds=limits,
            splits=asked.splits,
            split_by="cell" if asked.split_by == "cell" else "row",
            random_state=asked.seed,
            training_share=share,
            progress=_telling(name, share),
            watch=diagrams.note if share == 1.0 else None,
        )
        for limit in limits:
            broken = float((samples.latency_milliseconds > limit).mean())
            at_limit = [score for score in scores if score.limit_milliseconds == limit]
            rows += _compared_with_ours(name, limit, broken, at_limit, "f1", share=share)
    return rows


def _unseen(
    name: str, samples: QosSamples, limits: Sequence[float], asked: Asked, source: SampleOptions, diagrams: Diagrams
) -> list[dict[str, Any]]:
    from cotide_lab.predictors.evaluation.unseen import evaluate_unseen
    from cotide_predictors.qos.mixes import take_mixes
    from cotide_sim.traces.colocation.tables import concatenate_qos

    assert source.data is not None  # noqa: S101  `asking.check` saw to that
    mine = SAME_CAMPAIGN.get(name, name)
    # Only the measured ones of the other campaigns: grid-once is computed from grid.
    others = [text for text in ("grid", "antagonists", "parsec") if SAME_CAMPAIGN.get(text, text) != mine]
    click.echo(f"{name}: learned from {', '.join(others)}", err=True)
    joined = concatenate_qos([*(training_data.qos_from_tables(source.data, other) for other in others), samples])
    first = len(joined.latency_milliseconds) - len(samples.latency_milliseconds)
    rows = np.arange(len(joined.latency_milliseconds))
    learned, held = (
        QosSamples(take_mixes(joined.mixes, part), joined.latency_milliseconds[part])
        for part in (rows[:first], rows[first:])
    )
    scores = evaluate_unseen(learned, held, limits_milliseconds=limits, random_state=asked.seed, watch=diagrams.note)
    found = []
    for limit in limits:
        broken = float((samples.latency_milliseconds > limit).mean())
        at_limit = [score for score in scores if score.limit_milliseconds == limit]
        found += _compared_with_ours(name, limit, broken, at_limit, "f1", learned_from=others)
    return found


def _completion(name: str, found: CompletionSamples, asked: Asked) -> list[dict[str, Any]]:
    from cotide_lab.predictors.evaluation.held_out import evaluate_completion

    _require(name, len(found.types))
    rows = []
    for share in asked.shares:
        scores = evaluate_completion(
            found,
            splits=asked.splits,
            split_by="cell" if asked.split_by == "cell" else "row",
            random_state=asked.seed,
            training_share=share,
            progress=_telling(name, share),
        )
        rows += _compared_with_ours(name, None, None, scores, "mae_seconds", share=share)
    return rows


def _telling(name: str, share: float) -> Any:
    part = "" if share == 1.0 else f" from {share:.3g} of the training cells"
    return lambda text: click.echo(f"{name}: {text}{part}", err=True)


def _require(name: str, samples: int) -> None:
    if samples < 8:
        raise InputError(f"{counted(samples, 'sample')}: too few for 3:1 splits; at least 8 are needed", file=name)


def _compared_with_ours(
    table: str,
    limit: float | None,
    broken: float | None,
    scores: Sequence[Any],
    compared: str,
    *,
    share: float = 1.0,
    learned_from: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return rows of contenders' scores, each but ours with its paired difference in one metric."""
    from cotide_lab.predictors.evaluation.held_out import OURS

    ours = next(score for score in scores if score.contender == OURS)
    rows = []
    for score in scores:
        columns = {metric: values.tolist() for metric, values in score.metrics.items()}
        row = _row(table, limit, broken, score.contender, columns)
        if score is not ours:
            row["versus_cotide"] = _mean_and_deviation((score.metrics[compared] - ours.metrics[compared]).tolist())
        rows.append(row | {"training_share": share, "learned_from": list(learned_from)})
    return rows


def _row(
    table: str, limit: float | None, broken: float | None, contender: str, columns: dict[str, list[float]]
) -> dict[str, Any]:
    """Return one line of the report; a metric that no split defines is None."""
    return {
        "table": table,
        "limit_milliseconds": limit,
        "violated_share": broken,
        "model": contender,
        "metrics": {name: _mean_and_deviation(values) for name, values in columns.items()},
        "versus_cotide": None,
    }


def _mean_and_deviation(values: list[float]) -> dict[str, float] | None:
    defined = [value for value in values if math.isfinite(value)]
    if not defined:
        return None
    return {"mean": float(np.mean(defined)), "sd": float(np.std(defined))}
