"""Applicability: whether a latency forecast lies inside what its model learned, as bits, and on how many samples it
rests.

Made by QoS models (`forecasts.QosAnswers`), kept by the latency guard beside each answer as one number (the *basis*),
and said in decisions, notes, conditions and metrics. A model is inside where it has seen the mix's service under at
least as much load: the region is closed downwards (a quieter node, a smaller mix or a looser limit is no worse than
the one that was measured), so that taking the larger of model and heuristic outside keeps a forecast monotone. A rate
that nobody measured is no rate of 0: it is outside.
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
"""What is outside, in words, in the order in which it is said."""
CONDITION_RATE_UNKNOWN: Final = "RateUnknown"
CONDITION_OUTSIDE: Final = "OutsideTraining"
_SHIFT: Final = 16
_MASK: Final = (1 << _SHIFT) - 1
_NO_MODEL: Final = -1


def basis_of(outside: Integers, evidence: Integers) -> Integers:
    """Return (n,) numbers that hold bits and evidence together; evidence -1 stands for no model."""
    return np.asarray(((evidence + 1) << _SHIFT) | outside, np.int64)


def outside_of(basis: int) -> int:
    """Return the bits of a basis."""
    return basis & _MASK


def evidence_of(basis: int) -> int | None:
    """Return the samples of a basis; None where no model answered."""
    evidence = (basis >> _SHIFT) + _NO_MODEL
    return None if evidence < 0 else evidence


def names_of(outside: int) -> tuple[str, ...]:
    """Return what is outside, in words; nothing for an answer from inside."""
    return tuple(name for bit, name in NAMES.items() if outside & bit) if outside else ()


def condition_of(names: tuple[str, ...]) -> str:
    """Return the condition that these words stand for; empty for none. A rate that is unknown comes first."""
    if not names:
        return ""
    unknown = NAMES[RATE_UNKNOWN], NAMES[OTHER_RATE_UNKNOWN]
    return CONDITION_RATE_UNKNOWN if any(name in unknown for name in names) else CONDITION_OUTSIDE
