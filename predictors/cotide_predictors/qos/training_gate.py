"""The conditions for the use of a QoS model: enough samples, some of either kind, and an informative held-out score.

Called before and after a training, and when a model file is loaded. Invariant: a refusal has one sentence that names
the missing condition; the heuristic then stays in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from cotide_core.errors import ModelError
from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats
from cotide_core.units import counted

LEAST_ROWS: Final = 50
"""Fewest samples for a training (chosen: a quarter held out leaves a dozen for the judgement)."""
LEAST_OF_EACH: Final = 5
"""Fewest samples over and under a limit, each (chosen: with fewer, one of them decides the model's answer)."""
BRIER: Final = "held_out_brier"
CONSTANT_BRIER: Final = "constant_brier"


def check_samples(mixes: MixBatch, latency_milliseconds: Floats, limits_milliseconds: Sequence[float]) -> None:
    """Raise `ModelError` unless n samples with a latency > 0 suffice.

    Parameters
    ----------
    limits_milliseconds : limits that label all samples; empty: the limit noted with each.
    """
    rows = len(latency_milliseconds)
    if rows < LEAST_ROWS:
        raise ModelError(
            f"{counted(rows, 'sample')} with a latency > 0: too few to learn from, at least {LEAST_ROWS} are needed"
        )
    limits = limits_milliseconds or None
    if limits is None:
        broken = int((latency_milliseconds > mixes.limit_milliseconds).sum())
        kept = rows - broken
    else:
        over = np.asarray(latency_milliseconds)[:, None] > np.asarray(limits)[None, :]
        broken, kept = int(over.any(axis=1).sum()), int((~over.all(axis=1)).sum())
    for number, words in ((broken, "broke"), (kept, "kept")):
        if number < LEAST_OF_EACH:
            raise ModelError(
                f"{number} of {rows} samples {words} their limit: at least {LEAST_OF_EACH} that broke it and"
                f" {LEAST_OF_EACH} that kept it are needed"
            )


def check_scores(metrics: Mapping[str, float]) -> None:
    """Raise `ModelError` unless held-out rows were forecast better than by the constant share of violations."""
    if BRIER not in metrics:
        raise ModelError("no held-out score: the samples are repetitions of too few different mixes")
    brier, constant = float(metrics[BRIER]), float(metrics.get(CONSTANT_BRIER, float("inf")))
    if not brier < constant:
        raise ModelError(
            f"the held-out Brier score of {brier:.4f} is no better than {constant:.4f}, that of a constant forecast"
        )


def check_document(document: Mapping[str, Any]) -> None:
    """Raise `ModelError` for the manifest of a model that was trained without this gate and would not have passed
    it.
    """
    samples, metrics = int(document["training"]["samples"]), document["metrics"]
    if samples < LEAST_ROWS:
        raise ModelError(f"the model was trained on {samples} samples: at least {LEAST_ROWS} are needed")
    check_scores(metrics)
