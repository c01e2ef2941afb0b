"""Applicability: whether a latency forecast lies inside the training region of its model, as bits, and its number of
samples.

Made by QoS models (`forecasts.QosAnswers`). The latency guard keeps it with each answer as one number (the *basis*),
and decisions, notes, conditions and metrics report it. A model is inside if it has seen the mix's service under at
least as much load. The region is closed downwards: a quieter node, a smaller mix or a looser limit is at most as bad as
the measured one. Outside, the larger of model and heuristic counts, which keeps a forecast monotone. An unmeasured rate
differs from a rate of 0: it is outside.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels import mix_rows
from cotide_core.kernels.array_types import Integers

RATE_UNKNOWN: Final = mix_rows.RATE_UNKNOWN
OTHER_RATE_UNKNOWN: Final = mix_rows.OTHER_RATE_UNKNOWN
SERVICE: Final = 4
"""The model has not seen the service, or too few samples of it."""
RATE: Final = 8
OTHER_RATE: Final = 16
LIMIT: Final = 32
PRESSURE: Final = 64
JOBS: Final = 128
INPUT: Final = 256
TYPE: Final = 512
"""The mix holds a job type that the model has not seen."""
UNMEASURED: Final = RATE_UNKNOWN | OTHER_RATE_UNKNOWN

NAMES: Final[dict[int, str]] = {
    RATE_UNKNOWN: "rate unknown",
    OTHER_RATE_UNKNOWN: "other rates unknown",
    SERVICE: "service",
    RATE: "rate",
    OTHER_RATE: "other rates",
    LIMIT: "limit",
    PRESSURE: "cpu pressure",
    JOBS: "jobs",
    INPUT: "input size",
    TYPE: "job type",
}
"""The reasons for being outside, in words, in the order of messages."""
CONDITION_RATE_UNKNOWN: Final = "RateUnknown"
CONDITION_OUTSIDE: Final = "OutsideTraining"
_SHIFT: Final = 16
_MASK: Final = (1 << _SHIFT) - 1
_NO_MODEL: Final = -1


def basis_of(outside: Integers, evidence: Integers) -> Integers:
    """Return (n,) numbers that hold bits and evidence together; evidence -1 means no model."""
    return np.asarray(((evidence + 1) << _SHIFT) | outside, np.int64)


def outside_of(basis: int) -> int:
    """Return the bits of a basis."""
    return basis & _MASK


def evidence_of(basis: int) -> int | None:
    """Return the samples of a basis; None if no model answered."""
    evidence = (basis >> _SHIFT) + _NO_MODEL
    return None if evidence < 0 else evidence


def names_of(outside: int) -> tuple[str, ...]:
    """Return the reasons for being outside, in words; nothing for an answer from inside."""
    return tuple(name for bit, name in NAMES.items() if outside & bit) if outside else ()


def condition_of(names: tuple[str, ...]) -> str:
    """Return the condition of these words; empty for none. An unknown rate comes first."""
    if not names:
        return ""
    unknown = NAMES[RATE_UNKNOWN], NAMES[OTHER_RATE_UNKNOWN]
    return CONDITION_RATE_UNKNOWN if any(name in unknown for name in names) else CONDITION_OUTSIDE
