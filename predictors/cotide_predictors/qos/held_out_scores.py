"""Held-out scores of a QoS model during training: of all rows, and of each service.

Called by `services_model` and by the training gate. Invariant: scores are of rows that the scored log odds did not see.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers


def scores_of(log_odds: Floats, violated: Floats) -> dict[str, float]:
    """Return log loss, accuracy, Brier score, F1 at even odds, and the Brier score of the constant share of violations.

    Parameters
    ----------
    log_odds, violated : (n,) n > 0.
    """
    probability = 1.0 / (1.0 + np.exp(-np.clip(log_odds, -500.0, 500.0)))
    predicted, share = probability > 0.5, float(violated.mean())
    wrong_or_right = float(predicted.sum() + violated.sum())
    return {
        "held_out_log_loss": float((np.logaddexp(0.0, log_odds) - violated * log_odds).mean()),
        "held_out_accuracy": float((predicted == (violated > 0.5)).mean()),
        "held_out_brier": float(((probability - violated) ** 2).mean()),
        "held_out_f1": 2.0 * float((predicted & (violated > 0.5)).sum()) / wrong_or_right if wrong_or_right else 0.0,
        "constant_brier": share * (1.0 - share),
    }


def scores_by_service(
    log_odds: Floats, violated: Floats, service_index: Integers, services: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Return the same scores for each service, with its samples and violations."""
    found = {}
    for index, name in enumerate(services):
        mine = service_index == index
        counts = {"samples": float(mine.sum()), "violations": float(violated[mine].sum())}
        found[name] = {**counts, **scores_of(log_odds[mine], violated[mine])}
    return found
