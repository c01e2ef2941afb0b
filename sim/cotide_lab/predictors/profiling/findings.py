"""The findings of a campaign: how much batch fits at which rate, the cost of the limit, and the accuracy of a model.

Called by `results` once a campaign has ended, or when its page is made again. Pure. Invariant: Only measured cells fit,
and only when the upper end of the p95's interval is within the limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cotide_core.errors import ModelError
from cotide_core.forecasts import MixBatch, QosSamples
from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.profiling.design import Cell, Interval, Mix, p95_interval
from cotide_lab.predictors.profiling.windows import Circumstances, Window, mixes_of, qos_samples
from cotide_predictors.qos.mixes import take_mixes
from cotide_predictors.qos.qos_model import QosModel, train_qos
from cotide_predictors.qos.services_model import ServicesQosModel

Model = QosModel | ServicesQosModel

FOLDS: Final = 4
"""Folds of cells for the held-out prediction of the page (chosen: the 3:1 of Ou 2024)."""
LIMITS_ASKED: Final = 121
"""Limits in the search for a model's p95: 5 % apart over two and a half decades (chosen)."""
LEARNT_QUANTILES: Final = tuple(np.linspace(0.05, 0.95, 10).tolist())
"""Of the measured p95: limits with a tenth of the windows between them are equally informative (chosen)."""
QUICK_SECONDS: Final = 0.05
"""A shorter job is hardly more than the start of a program (chosen)."""
COST_LIMITS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, math.inf)
"""Multiples of the limit with a reported cost in capacity; infinite: without one (chosen)."""


@dataclass(frozen=True, slots=True)
class CellFinding:
    """One cell: its interval in ms, the share of its windows over the limit, the cpu of the jobs, in cores."""

    cell: Cell
    p95: Interval
    broken_share: float
    batch_cores: float
    cut: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """The most jobs of one name at one rate; None where not even the service alone is within the limit."""

    rate: float
    name: str
    measured: int | None
    predicted: int | None


@dataclass(frozen=True, slots=True)
class Cost:
    """The effect of a limit: batch cores in the mean over the rates, and the highest rate that holds it alone."""

    limit_milliseconds: float
    batch_cores: float
    rate_alone: float | None


def by_cell(windows: Sequence[Window]) -> dict[Cell, list[float]]:
    """Return the p95 of each cell's windows, in ms, in measured order."""
    found: dict[Cell, list[float]] = {}
    for window in windows:
        found.setdefault(window.cell, []).append(window.p95_milliseconds)
    return found


def cell_findings(windows: Sequence[Window], limit_milliseconds: float) -> list[CellFinding]:
    """Return one finding for each measured cell, by mix and rate."""
    found = []
    for cell, values in sorted(by_cell(windows).items(), key=lambda item: (item[0].jobs(), item[0].mix, item[0].rate)):
        own = [window for window in windows if window.cell == cell]
        cores = [window.job_core_seconds / window.seconds for window in own if math.isfinite(window.job_core_seconds)]
        found.append(
            CellFinding(
                cell,
                p95_interval(values),
                float(np.mean(np.asarray(values) > limit_milliseconds)),
                float(np.mean(cores)) if cores else math.nan,
                any(window.cut for window in own),
            )
        )
    return found


def job_warnings(windows: Sequence[Window]) -> list[str]:
    """Return a sentence for each job that visibly did not do its work: it failed, or it ended at once, more often than
    not.
    """
    failed: Counter[str] = Counter()
    seconds: dict[str, list[float]] = {}
    for window in windows:
        failed.update(dict(window.failed_jobs))
        for name, lasted in window.job_seconds:
            seconds.setdefault(name, []).append(lasted)
    found = []
    for name, count in sorted(failed.items()):
        of = count + len(seconds.get(name, ()))
        found.append(f"{count} of {of} runs of {name} ended with another exit code than 0: they may not have worked")
    for name, lasting in sorted(seconds.items()):
        typical = float(np.median(lasting))
        if typical <= QUICK_SECONDS:
            found.append(
                f"{name} ended within {1000 * typical:.0f} ms in the median: that is hardly more than its start; "
                "look whether its command does its work"
            )
    return found


def fits(
    found: Sequence[CellFinding], circumstances: Circumstances, model: Model | None, threshold: float
) -> list[Fit]:
    """Return, for each rate and job name, how many fit by measurement, and by the model at a probability threshold."""
    rates = sorted({cell_finding.cell.rate for cell_finding in found})
    known = {cell_finding.cell: cell_finding for cell_finding in found}
    rows = []
    for kind in circumstances.kinds:
        counts = sorted(
            {dict(cell_finding.cell.mix)[kind.name] for cell_finding in found if _only(cell_finding.cell, kind.name)}
        )
        for rate in rates:
            ladder = [Cell(rate), *(Cell(rate, ((kind.name, count),)) for count in counts)]
            held = [_holds(known.get(cell), circumstances.limit_milliseconds) for cell in ladder]
            most_by_model = None
            if model is not None:
                accepted = model.violation_probability(mixes_of(ladder, circumstances)) <= threshold
                most_by_model = _last_of_run(accepted.tolist(), ladder)
            rows.append(Fit(rate, kind.name, _last_of_run(held, ladder), most_by_model))
    return rows


def costs(found: Sequence[CellFinding], circumstances: Circumstances) -> list[Cost]:
    """Return the batch capacity under multiples of the limit: at each rate the mix with the most cpu that holds it.

    Where the jobs' cpu was not measured (pods of a cluster) their requests replace it.
    """
    limit_milliseconds, cores_there = circumstances.limit_milliseconds, circumstances.allocatable_millicores / 1000.0
    rates = sorted({cell_finding.cell.rate for cell_finding in found})
    rows = []
    for limit in (factor * limit_milliseconds for factor in COST_LIMITS):
        cores = []
        for rate in rates:
            here = [cell_finding for cell_finding in found if cell_finding.cell.rate == rate]
            alone = next((cell_finding for cell_finding in here if not cell_finding.cell.mix), None)
            kept = [
                cell_finding.batch_cores
                if math.isfinite(cell_finding.batch_cores)
                else circumstances.pressure(cell_finding.cell) * cores_there
                for cell_finding in here
                if cell_finding.cell.mix and _holds(cell_finding, limit)
            ]
            # A service that breaks its limit alone leaves room for nothing.
            usable = (alone is None or _holds(alone, limit)) and kept
            cores.append(max(kept) if usable else 0.0)
        alone_rates = [
            cell_finding.cell.rate
            for cell_finding in found
            if not cell_finding.cell.mix and _holds(cell_finding, limit)
        ]
        rows.append(Cost(limit, float(np.mean(cores)) if cores else 0.0, max(alone_rates, default=None)))
    return rows


def limits_to_learn(windows: Sequence[Window], limit_milliseconds: float) -> tuple[float, ...]:
    """Return the limit, and quantiles of the measurements: one model then answers for any limit in that range."""
    found = np.quantile([window.p95_milliseconds for window in windows], LEARNT_QUANTILES)
    return tuple(sorted({limit_milliseconds, *(float(f"{limit:.3g}") for limit in found)}))


def train(windows: Sequence[Window], circumstances: Circumstances, seed: int = 0) -> Model:
    """Return a model of the windows.

    Raises
    ------
    ModelError
        When they do not pass the training gate.
    """
    return _trained(
        qos_samples(windows, circumstances), limits_to_learn(windows, circumstances.limit_milliseconds), seed
    )


def held_out_p95(
    windows: Sequence[Window], circumstances: Circumstances, seed: int, progress: Callable[[int, int], object]
) -> dict[Cell, float]:
    """Return the p95 that models predict of unseen cells, in ms; those of a refused fold are left out.

    The predicted p95 is the limit that breaks with even odds, by a model of several limits; one of a named service
    learns its own limit only.
    """
    circumstances = replace(circumstances, service="")
    cells = sorted(by_cell(windows))
    fold_of = np.random.default_rng(seed).permutation(len(cells)) % FOLDS
    latency = [window.p95_milliseconds for window in windows]
    limits = np.geomspace(min(latency) / 2, max(latency) * 2, LIMITS_ASKED)
    found: dict[Cell, float] = {}
    for fold in range(FOLDS):
        progress(fold, FOLDS)
        asked = [cell for cell, own in zip(cells, fold_of.tolist(), strict=True) if own == fold]
        seen = [window for window in windows if window.cell not in set(asked)]
        if not asked or not seen:
            continue
        try:
            model = train(seen, circumstances, seed)
        except ModelError:
            continue
        if not isinstance(model, QosModel):
            raise TypeError("samples without a service give a model for any")
        found.update(zip(asked, _even_odds(model, mixes_of(asked, circumstances), limits).tolist(), strict=True))
    return found


def log_error(found: Sequence[CellFinding], predicted: Mapping[Cell, float]) -> float | None:
    """Return the median of |log(predicted / measured)| over the cells that have both; None without any."""
    errors = [
        abs(math.log(predicted[cell_finding.cell] / cell_finding.p95.middle))
        for cell_finding in found
        if cell_finding.cell in predicted
    ]
    return float(np.median(errors)) if errors else None


def _trained(samples: QosSamples, limits: tuple[float, ...], seed: int) -> Model:
    return train_qos(samples, limits_milliseconds=limits, random_state=seed)


def _even_odds(model: QosModel, mixes: MixBatch, limits: Floats) -> Floats:
    """Return (n,) the limit at which each mix breaks with even odds; the ends of the range where there is none."""
    rows = np.repeat(np.arange(len(mixes)), len(limits))
    asked = replace(take_mixes(mixes, rows), limit_milliseconds=np.tile(limits, len(mixes)))
    broken = model.unbounded_probability(asked).reshape(len(mixes), len(limits)) > 0.5
    return np.asarray(limits[np.minimum(broken.sum(axis=1), len(limits) - 1)])


def _only(cell: Cell, name: str) -> bool:
    return len(cell.mix) == 1 and cell.mix[0][0] == name


def _holds(one: CellFinding | None, limit: float) -> bool:
    return one is not None and not (one.cut and math.isfinite(limit)) and one.p95.high <= limit


def _last_of_run(held: Sequence[bool], ladder: Sequence[Cell]) -> int | None:
    """Return the jobs of the last cell before the first that does not hold; None when the first does not."""
    good = next((index for index, holds in enumerate(held) if not holds), len(held))
    return ladder[good - 1].jobs() if good else None


def mixes_in(found: Sequence[CellFinding]) -> list[Mix]:
    """Return the measured mixes, few jobs first."""
    return sorted(
        {cell_finding.cell.mix for cell_finding in found}, key=lambda mix: (sum(count for _, count in mix), mix)
    )
