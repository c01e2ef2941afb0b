"""The feature matrix of a batch of mixes, and the direction of each feature's effect on the risk.

Called by `qos.QosModel` for training rows and for every candidate node of a decision. It always handles all rows at
once. With one job next to one service the features are functions of the paper's three (type, input size, rate; Ou 2024,
section 3.1) and of the limit and the pressure.

Invariant: every feature but the limit never falls when a rate, a count, a size or the pressure grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats
from cotide_predictors.qos.type_contention import TypeContention


@dataclass(frozen=True, slots=True)
class Feature:
    """Name, unit and direction of a feature: +1 raises the risk or leaves it, -1 lowers it or leaves it."""

    name: str
    unit: str
    direction: int


FEATURES: Final = (
    # Contention comes first. Where a split on it and on a cruder feature gain the same, xgboost takes the first.
    Feature("type_contention", "natural log of a latency factor", 1),
    Feature("weighted_input", "bytes, weighted by type", 1),
    Feature("requests_per_second", "requests/s", 1),
    Feature("other_requests_per_second", "requests/s", 1),
    Feature("limit_milliseconds", "ms", -1),
    Feature("jobs", "pods", 1),
    Feature("input_bytes", "bytes", 1),
    Feature("cpu_pressure", "requested / allocatable cpu", 1),
)
LIMIT_COLUMN: Final = 4
MONOTONE: Final = tuple(feature.direction for feature in FEATURES)

SMOOTH_FEATURES: Final = (
    "log rate", "rate", "log other rate", "-log limit", "pressure", "contention", "log weighted input",
    "contention x log rate", "contention x rate", "log weighted input x log rate",
)  # fmt: skip
"""The columns of the logistic base. Each rises (or stays) with risk, so that all its coefficients are >= 0."""


def feature_matrix(mixes: MixBatch, contention: TypeContention) -> Floats:
    """Return the (n, 8) features of a batch, columns as in `FEATURES`."""
    stretch, weighted = contention.columns(mixes)
    matrix = np.empty((len(mixes), len(FEATURES)))
    matrix[:, 0] = stretch
    matrix[:, 1] = weighted
    matrix[:, 2] = mixes.requests_per_second
    matrix[:, 3] = mixes.other_requests_per_second
    matrix[:, LIMIT_COLUMN] = mixes.limit_milliseconds
    matrix[:, 5] = np.ascontiguousarray(mixes.counts).sum(axis=1)
    matrix[:, 6] = np.ascontiguousarray(mixes.input_bytes).sum(axis=1)
    matrix[:, 7] = mixes.cpu_pressure
    return matrix


def smooth_matrix(features: Floats, pressure_range: tuple[float, float]) -> Floats:
    """Return the (n, 10) columns of the logistic base, as in `SMOOTH_FEATURES`.

    The pressure is held inside its training range. Measured tables have two values of it, and a line through two values
    cannot predict a third.
    """
    log_rate = np.log1p(features[:, 2])
    log_input = np.log1p(features[:, 1])
    smooth = np.empty((len(features), len(SMOOTH_FEATURES)))
    smooth[:, 0] = log_rate
    smooth[:, 1] = features[:, 2]
    smooth[:, 2] = np.log1p(features[:, 3])
    smooth[:, 3] = -np.log(features[:, LIMIT_COLUMN])
    smooth[:, 4] = np.clip(features[:, 7], *pressure_range)
    smooth[:, 5] = features[:, 0]
    smooth[:, 6] = log_input
    smooth[:, 7] = features[:, 0] * log_rate
    smooth[:, 8] = features[:, 0] * features[:, 2]
    smooth[:, 9] = log_input * log_rate
    return smooth
