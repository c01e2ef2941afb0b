"""One factor on the log odds, learned on held-out rows, which calibrates the probabilities.

Called by `qos.QosModel.fit` on its own training rows. A single factor > 0 keeps the order of all rows and their side of
one half, so that it cannot cost accuracy; more freedom does, on a few hundred rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats

SHARPNESS_RANGE: Final = (0.2, 2.0)
"""Range of the search for the factor (chosen): below, forecasts are all but constant; above, over-confident."""


def learn_sharpness(log_odds: Floats, violated: Floats) -> tuple[float, dict[str, float]]:
    """Return the factor that minimises the log loss, and the held-out scores with it.

    Parameters
    ----------
    log_odds : (n,) from models that did not see these rows.
    violated : (n,) 0 or 1.
    """

    from scipy.optimize import minimize_scalar  # heavy, and only training needs it

    def loss(factor: float) -> float:
        score = factor * log_odds
        return float((np.logaddexp(0.0, score) - violated * score).mean())

    factor = float(minimize_scalar(loss, bounds=SHARPNESS_RANGE, method="bounded").x)
    probability = 1.0 / (1.0 + np.exp(-factor * log_odds))
    share = float(violated.mean())
    before = 1.0 / (1.0 + np.exp(-log_odds))
    scores = {
        "held_out_log_loss": loss(factor),
        "held_out_accuracy": float(((probability > 0.5) == (violated > 0.5)).mean()),
        "held_out_brier": float(((probability - violated) ** 2).mean()),
        "held_out_brier_uncalibrated": float(((before - violated) ** 2).mean()),
        "constant_brier": share * (1.0 - share),
    }
    return factor, scores
