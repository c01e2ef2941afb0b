"""The pooled part of a QoS model as JSON: types, contention, logistic base and range; the trees are a separate payload.

Called by both QoS models, to write and read their manifests. Invariant: a model that is written and read again gives
the same bits.
"""

from __future__ import annotations

import numpy as np

from cotide_core.errors import ModelError
from cotide_predictors.persistence.model_files import Document
from cotide_predictors.qos.mix_features import FEATURES, SMOOTH_FEATURES
from cotide_predictors.qos.monotone_ensemble import MonotoneEnsemble
from cotide_predictors.qos.monotone_logistic import MonotoneLogistic
from cotide_predictors.qos.type_contention import TypeContention


def ensemble_body(contention: TypeContention, ensemble: MonotoneEnsemble) -> dict[str, object]:
    """Return features, types, contention and base."""
    return {
        "features": [{"name": f.name, "unit": f.unit, "monotone": f.direction} for f in FEATURES],
        "types": list(contention.types),
        "worst_type": contention.worst_type,
        "contention": {"excess": contention.excess.tolist(), "byte_weight": contention.byte_weight.tolist()},
        "base": {
            "columns": list(SMOOTH_FEATURES),
            "coefficients": ensemble.base_.coefficients_.tolist(),
            "intercept": ensemble.base_.intercept_,
            "share": ensemble.share,
        },
    }


def range_body(ensemble: MonotoneEnsemble) -> dict[str, list[float]]:
    """Return lowest and highest value of each feature in training."""
    low, high = ensemble.low_, ensemble.high_
    return {feature.name: [float(low[i]), float(high[i])] for i, feature in enumerate(FEATURES)}


def check_features(document: Document) -> float:
    """Return the base's share after checking that this program builds the same features; raise `ModelError` if it does
    not.
    """
    if [feature["name"] for feature in document["features"]] != [feature.name for feature in FEATURES]:
        raise ModelError("the model has features that this program does not build")
    if document["base"]["columns"] != list(SMOOTH_FEATURES):
        raise ModelError("the model's base has columns that this program does not build")
    return float(document["base"]["share"])


def read_ensemble(
    document: Document, ensemble: MonotoneEnsemble, booster: bytes
) -> tuple[TypeContention, MonotoneEnsemble]:
    """Fill an untrained ensemble from a manifest and the bytes of its trees; return it with the contention."""
    contention = TypeContention(
        tuple(document["types"]),
        np.asarray(document["contention"]["excess"], dtype=np.float64),
        np.asarray(document["contention"]["byte_weight"], dtype=np.float64),
    )
    base = document["base"]
    ensemble.base_ = MonotoneLogistic(inverse_ridge=ensemble.inverse_ridge)
    ensemble.base_.coefficients_ = np.asarray(base["coefficients"], dtype=np.float64)
    ensemble.base_.intercept_ = float(base["intercept"])
    ranges = document["training"]["range"]
    corners = np.asarray([ranges[feature.name] for feature in FEATURES], dtype=np.float64)
    ensemble.low_, ensemble.high_ = corners[:, 0], corners[:, 1]
    ensemble.load_booster(booster)
    return contention, ensemble
