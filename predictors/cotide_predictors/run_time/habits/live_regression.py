"""The on-line regression of Naghshnejad 2019, section 4.4.4, for pods that are unknown beforehand.

Called by `live_catalogue`. There is one regression by namespace, on the features of Table 4.1 from each owner's own
history. The completion model's forecast replaces the request, and the cores replace the processors. Steps are those of
`regression` and `history`. Invariant: as of `live_forecaster`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.habits.keyed_states import (
    MOST_NAMESPACES_KEPT,
    MOST_OWNERS,
    KeyedStates,
    OwnersAndNamespaces,
)
from cotide_predictors.run_time.habits.likeness import Likeness
from cotide_predictors.run_time.habits.live_filters import one_job
from cotide_predictors.run_time.habits.live_mixture import whole
from cotide_predictors.run_time.habits.upper_margin import FIRST_MARGIN, MARGINS, moved, upper_seconds
from cotide_predictors.run_time.history import WIDTH, Histories
from cotide_predictors.run_time.jobs import JobTable
from cotide_predictors.run_time.regression import PADDED, OnlineRegression, table_4_1

LARGEST = 1e30
"""Of any number of the regression (chosen: products of two features, squared, stay far below it)."""


@dataclass(frozen=True, slots=True)
class RegressionForecast:
    """One forecast, the job as it came and its features."""

    seconds: int
    upper: int
    alike: int
    owner: bytes
    namespace: bytes
    job: JobTable
    features: Floats


class LiveRegression(OwnersAndNamespaces):
    """Regressions of namespaces, histories of owners."""

    def __init__(self, *, most_owners: int = MOST_OWNERS, most_namespaces: int = MOST_NAMESPACES_KEPT) -> None:
        owners = KeyedStates(np.full(WIDTH, -LARGEST), np.full(WIDTH, LARGEST), most_owners, may_miss=True)
        width = 4 * PADDED + 3
        low, high = np.full(width, -LARGEST), np.full(width, LARGEST)
        low[PADDED:-1] = 0.0  # sizes, their inverses, summed squares and totals
        low[-1], high[-1] = MARGINS
        namespaces = KeyedStates(low, high, most_namespaces)
        super().__init__(owners, namespaces)

    def forecast(
        self, likeness: Likeness, reference_seconds: float, *, cores: float = 1.0, hour: int = 0
    ) -> RegressionForecast:
        """Forecast a run."""
        _, owner, _, namespace = likeness
        job = one_job(reference_seconds, cores, hour)
        own = self._owners.get(owner)
        histories = _histories(own)
        features = table_4_1(histories.rows, job)
        model, margin = self._model(namespace)
        raw = np.zeros(1)
        model.walk(np.zeros(1, np.int64), features, raw, raw)
        known = model.totals_[0] > 0
        seconds = whole(float(raw[0]) if known else reference_seconds)
        upper = whole(upper_seconds(seconds, margin))
        return RegressionForecast(seconds, upper, int(known), owner, namespace, job, features)

    def learn(self, made: RegressionForecast, run_seconds: float) -> None:
        """Move the namespace's regression and the owner's history."""
        seconds, ended = np.array([float(whole(run_seconds))]), np.full(1, ~0, np.int64)
        model, margin = self._model(made.namespace)
        model.walk(ended, made.features, seconds, np.zeros(1))
        row = np.concatenate([model.state_.ravel(), model.totals_, [moved(margin, seconds[0] > made.upper)]])
        self._namespaces.put(made.namespace, row)
        histories = _histories(self._owners.get(made.owner))
        finish = made.job.submit_seconds + seconds
        histories.walk(ended, np.zeros(1, np.int64), made.job, seconds, finish, np.empty((1, WIDTH)))
        self._owners.put(made.owner, histories.rows[0].copy())

    def _model(self, namespace: bytes) -> tuple[OnlineRegression, float]:
        """Return a copy of a namespace's regression, and its margin."""
        model, row = OnlineRegression(), self._namespaces.get(namespace)
        if row is None:
            return model, FIRST_MARGIN
        model.state_, model.totals_ = row[:-3].reshape(4, PADDED).copy(), row[-3:-1].copy()
        return model, float(row[-1])


def _histories(row: Floats | None) -> Histories:
    found = Histories(1)
    if row is not None:
        found.rows[0] = row
    return found
