"""Interference by a closed formula: the stand-in where no measurements are given.

Called through `interference.Interference`. Every constant is chosen, so that the curves have the shape of the measured
memcached grid: with a job, p95 is 0.4, 1, 2, 3 and 8 ms at 25k, 45k, 70k, 100k and 140k requests/s; slowdown is 1x to
5x. Job types differ more than they do there. Invariant: pure, monotone (see the protocol).

For one online pod, with u its utilisation, P the pressure of batch pods and K the contention of the mix::

    K   = min(2, sum over types of  w_type * count_type * (1 + 0.05 * log2(1 + GB_type / count_type)))
    u   = min(0.97, (rate + 0.1 * other rate) / 183000 * (1 + 0.25 * K))
    p95 = 0.045 / (1 - u)  +  5.5 * min(1, P)^1.5 * (1 + K) * u^1.3 / sqrt(1 - u)       milliseconds
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats

CONTENTION_WEIGHTS: Final[dict[str, float]] = {
    "grep": 0.01, "md5": 0.01, "sample": 0.03, "wordcount": 0.05,
    "select": 0.07, "aggregate": 0.10, "sort": 0.14, "join": 0.18,
}  # fmt: skip
"""Share that one job of the type adds to contention for caches and memory bandwidth; chosen: scans of a small working
set are mild, jobs that build hash tables or sort are not."""
_WORST_WEIGHT: Final = max(CONTENTION_WEIGHTS.values())

LONE_SECONDS: Final[dict[str, tuple[float, float]]] = {
    "grep": (0.02, 3.8), "md5": (0.03, 4.9), "sample": (0.03, 2.6), "wordcount": (0.05, 12.5),
    "select": (0.15, 2.9), "aggregate": (0.15, 3.1), "sort": (0.05, 7.8), "join": (0.2, 5.7),
}  # fmt: skip
"""(start-up seconds, seconds a gigabyte) of a job alone; chosen near the measured grid's."""

SATURATION: Final = 183_000.0
"""Requests/s that fill one core: the measured grid's memcached (its README)."""


@dataclass(frozen=True)
class GeneratedInterference:
    """The closed formula of this module's docstring; has no parameters to fit."""

    KIND: ClassVar[str] = "cotide-interference-generated-v1"

    @property
    def types(self) -> tuple[str, ...]:
        """The eight job types, sorted."""
        return tuple(sorted(CONTENTION_WEIGHTS))

    @property
    def saturation_requests_per_second(self) -> float:
        """Requests/s that fill one core."""
        return SATURATION

    def p95_milliseconds(self, mixes: MixBatch) -> Floats:
        """Return (n,) p95 latencies in milliseconds by the formula above."""
        contention = self._contention(mixes)
        rate = mixes.requests_per_second + 0.1 * mixes.other_requests_per_second
        used = np.minimum(0.97, rate / SATURATION * (1.0 + 0.25 * contention))
        shared = np.minimum(1.0, mixes.cpu_pressure)
        return np.asarray(0.045 / (1.0 - used) + 5.5 * shared**1.5 * (1.0 + contention) * used**1.3 / np.sqrt(1 - used))

    def slowdown(self, types: Sequence[str], requests_per_second: Floats, cpu_pressure: Floats) -> Floats:
        """Return (n,) factors >= 1: (1 + 5.2 u) (1 + (0.1 + w_type) P), 5x at 140k requests/s as measured."""
        known = CONTENTION_WEIGHTS
        weights = np.asarray([known.get(name, _WORST_WEIGHT) for name in types], dtype=np.float64)
        used = np.minimum(1.0, np.asarray(requests_per_second) / SATURATION)
        return np.asarray((1.0 + 5.2 * used) * (1.0 + (0.1 + weights) * np.minimum(1.0, cpu_pressure)))

    def isolated_seconds(self, types: Sequence[str], input_bytes: Floats) -> Floats:
        """Return (n,) start-up plus seconds a gigabyte; nan for an unknown type."""
        unknown = (np.nan, np.nan)
        parts = np.asarray([LONE_SECONDS.get(name, unknown) for name in types], dtype=np.float64).reshape(-1, 2)
        return np.asarray(parts[:, 0] + parts[:, 1] * np.asarray(input_bytes, dtype=np.float64) / 1e9)

    def to_json(self) -> str:
        """Return the model's name; the formula is its version's."""
        return json.dumps({"kind": self.KIND})

    @classmethod
    def from_json(cls, text: str) -> GeneratedInterference:
        """Read it back."""
        if json.loads(text)["kind"] != cls.KIND:
            raise ValueError(f"not {cls.KIND}")
        return cls()

    def _contention(self, mixes: MixBatch) -> Floats:
        if not mixes.types:
            return np.zeros(len(mixes))
        weights = np.asarray([_weight(name) for name in mixes.types], dtype=np.float64)
        # count * log2(1 + GB / count) rises in both arguments, so the mix stays monotone in each.
        counts = np.maximum(mixes.counts, 0.0)
        gigabytes = np.divide(mixes.input_bytes / 1e9, counts, out=np.zeros_like(counts), where=counts > 0)
        return np.minimum(2.0, (counts * (1.0 + 0.05 * np.log2(1.0 + gigabytes))) @ weights)


def _weight(name: str) -> float:
    return CONTENTION_WEIGHTS.get(name, _WORST_WEIGHT)
