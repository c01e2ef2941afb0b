"""Quality of each rule's estimate of the accuracy of a run-time forecast, and the features behind it. Table 4.2 and
Fig. 4.9 of Naghshnejad 2019, for the forecasts of its on-line regression.

Called by `run_time_parts`. Every rule is rebuilt at the same moments on the same completed jobs. Invariant: as in
`cotide_lab.predictors.run_time.reliability.estimation`, an estimate uses only jobs that finished before its submission;
importances come from one model of all jobs and forecast nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.table import Table

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.run_time.reliability.baselines import BASELINES, importances, printed_columns
from cotide_lab.predictors.run_time.reliability.estimation import Completed, rolling_reliability
from cotide_lab.predictors.run_time.rolling import Progress
from cotide_predictors.run_time.jobs import RunLog
from cotide_predictors.run_time.scores import accuracy

PRINTED: Final = {
    "HPC2N": {"gradient boosting": 0.84, "decision tree": 0.77, "cnk": 0.44},
    "SDSC": {"gradient boosting": 0.81, "decision tree": 0.75, "cnk": 0.53},
    "ANL": {"gradient boosting": 0.79, "decision tree": 0.68, "cnk": 0.47},
    "LLNL": {"gradient boosting": 0.78, "decision tree": 0.66, "cnk": 0.50},
}
"""Table 4.2."""
PRINTED_FIRST: Final = ("last", "reqTime", "beflast")
"""The three most important features of Fig. 4.9, by its text."""


@dataclass(frozen=True, slots=True)
class ReliabilityTable:
    """One log.

    Attributes
    ----------
    correlations : Pearson's, of estimated and actual accuracy, by rule.
    importances : by feature of Table 4.1 and the forecast, the most important as 100.
    """

    correlations: dict[str, float]
    importances: dict[str, float]


def rule_correlation(
    rule: str,
    log: RunLog,
    table: Floats,
    forecast_seconds: Floats,
    counted: slice,
    every_seconds: float,
    progress: Progress,
) -> float:
    """Return Pearson's correlation of the accuracies that a rule of `BASELINES` estimates with the actual ones.

    Parameters
    ----------
    table : (n, 16) of Table 4.1. forecast_seconds : (n,) of the on-line regression.
    counted : the jobs of the correlation.
    """
    columns = printed_columns(table, forecast_seconds)
    actual = accuracy(forecast_seconds, log.run_seconds)[counted]
    estimate = rolling_reliability(
        log, columns, forecast_seconds, every_seconds=every_seconds, learn=BASELINES[rule], progress=progress
    )
    return correlation(estimate[counted], actual)


def rule_importances(log: RunLog, table: Floats, forecast_seconds: Floats, counted: slice) -> dict[str, float]:
    """Return the feature importances in boosted trees of all counted jobs; parameters as of `rule_correlation`."""
    columns = printed_columns(table, forecast_seconds)
    return importances(Completed(columns[counted], forecast_seconds[counted], log.run_seconds[counted]), 0)


def correlation(estimate: Floats, actual: Floats) -> float:
    """Return Pearson's correlation; 0 where one of both never changes."""
    return float(np.corrcoef(estimate, actual)[0, 1]) if estimate.std() > 0 and actual.std() > 0 else 0.0


def tables(found: ReliabilityTable) -> list[Table]:
    """Return the table for a terminal, with the printed figures, and the features in order."""
    rules = Table("log", *BASELINES, title="correlation of estimated and actual accuracy (Table 4.2)")
    rules.add_row("this log", *(f"{found.correlations[name]:.3f}" for name in BASELINES))
    for log, printed in PRINTED.items():
        rules.add_row(f"the thesis, {log}", *(f"{printed[name]:.2f}" for name in BASELINES))
    leading = ", ".join(PRINTED_FIRST)
    features = Table("feature", "importance", title=f"importances in the trees (Fig. 4.9; there {leading} lead)")
    for name, value in found.importances.items():
        features.add_row(name, f"{value:.0f}")
    return [rules, features]
