"""Interference fitted to measured tables: memcached with batch jobs and antagonists, PARSEC run times.

Called through `interference.Interference`; `from_directory` reads the tables that a user's data directory holds
under ``colocation/``. Invariant: monotone by construction (see each fit), deterministic, exact in JSON.

The latency of an online pod is a mixture (sizes and constants are argued in docs/research/simulation.md)::

    P(latency > x) = (1 - f) * alone(x | u)  +  f * beside(x | u),     p95 = its 95th percentile

    f = min(1, P)               share of time that a batch job runs on the service's core, P the node's pressure
    u = rate / R * (1 + K)      utilisation of the service's core, R its measured saturation
    K = min(K_max, sum over types of k_type * count_type)    how contention for caches and memory slows a request

``alone`` and ``beside`` are the pooled measured histograms of the grid at its seven rates, linear in u between them.
They are pooled over the eight job types because the type explains 0.3 % of the variance there. ``k_type`` comes from
the antagonist table of a slower machine: both set-ups are compared at equal shares of their own saturation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Floats
from cotide_sim.interference import fit
from cotide_sim.interference.fit import GRID_SATURATION

CONTENTION_MAX: Final = 1.0
"""K_max, chosen: contention for caches and memory bandwidth at most doubles a request's service time."""
OTHER_RATE_SHARE: Final = 0.1
"""Part of the other services' rate that counts as own load (interrupts, shared caches); chosen."""


@dataclass(frozen=True, eq=False)
class MeasuredInterference:
    """The fitted model.

    Attributes
    ----------
    utilisations : (m,) rising knots of u.
    alone, beside : (m, g) P(latency > x) at the knots, never falling from knot to knot, beside never below alone.
    latencies : (g,) the x of the tails, milliseconds, rising.
    contention : k of each type, >= 0.
    slowdowns : factors of each type at the knots, >= 1, never falling.
    neighbour : growth of run time on a node full of other batch pods, >= 0.
    lone : (start-up seconds, seconds a byte) of each type.
    """

    KIND: ClassVar[str] = "cotide-interference-measured-v1"

    utilisations: Floats
    latencies: Floats
    alone: Floats
    beside: Floats
    contention: dict[str, float]
    slowdowns: dict[str, tuple[float, ...]]
    neighbour: float
    lone: dict[str, tuple[float, float]]

    @property
    def types(self) -> tuple[str, ...]:
        """The types that were measured, sorted: the grid's jobs and the antagonists."""
        return tuple(sorted(self.contention))

    @property
    def saturation_requests_per_second(self) -> float:
        """Requests/s that fill one core."""
        return GRID_SATURATION

    def p95_milliseconds(self, mixes: MixBatch) -> Floats:
        """Return (n,) p95 latencies in milliseconds: the 95th percentile of the mixture."""
        worst = max(self.contention.values())
        weights = np.asarray([self.contention.get(name, worst) for name in mixes.types], dtype=np.float64)
        contention = np.minimum(CONTENTION_MAX, mixes.counts @ weights) if mixes.types else np.zeros(len(mixes))
        rate = mixes.requests_per_second + OTHER_RATE_SHARE * mixes.other_requests_per_second
        used = rate / GRID_SATURATION * (1.0 + contention)
        shared = np.clip(mixes.cpu_pressure, 0.0, 1.0)[:, None]
        index = np.clip(np.searchsorted(self.utilisations, used, side="right") - 1, 0, len(self.utilisations) - 2)
        low, high = self.utilisations[index], self.utilisations[index + 1]
        part = np.clip((used - low) / (high - low), 0.0, 1.0)[:, None]
        tails = (1.0 - part) * ((1.0 - shared) * self.alone[index] + shared * self.beside[index])
        tails += part * ((1.0 - shared) * self.alone[index + 1] + shared * self.beside[index + 1])
        return self._quantile(tails)

    def slowdown(self, types: Sequence[str], requests_per_second: Floats, cpu_pressure: Floats) -> Floats:
        """Return (n,) factors >= 1: the measured one with a service times that of batch neighbours.

        A type that was not measured takes the worst measured curve.
        """
        used = np.asarray(requests_per_second, dtype=np.float64) / GRID_SATURATION
        worst = tuple(np.max(np.asarray(list(self.slowdowns.values())), axis=0))
        result = np.empty(len(types), dtype=np.float64)
        names = np.asarray(types, dtype=object)
        for name in sorted(set(types)):
            rows = names == name
            result[rows] = np.interp(used[rows], self.utilisations, self.slowdowns.get(name, worst))
        return np.asarray(result * (1.0 + self.neighbour * np.clip(cpu_pressure, 0.0, 1.0)))

    def isolated_seconds(self, types: Sequence[str], input_bytes: Floats) -> Floats:
        """Return (n,) start-up plus seconds a byte, extrapolated beyond the measured 640 MB; nan if not measured."""
        parts = np.asarray([self.lone.get(name, (np.nan, np.nan)) for name in types], dtype=np.float64).reshape(-1, 2)
        return np.asarray(parts[:, 0] + parts[:, 1] * np.asarray(input_bytes, dtype=np.float64))

    def to_json(self) -> str:
        """Return the whole fit; Python writes each float so that it reads back to the same bits."""
        return json.dumps(
            {
                "kind": self.KIND,
                "utilisations": self.utilisations.tolist(),
                "latencies": self.latencies.tolist(),
                "alone": self.alone.tolist(),
                "beside": self.beside.tolist(),
                "contention": self.contention,
                "slowdowns": self.slowdowns,
                "neighbour": self.neighbour,
                "lone": self.lone,
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str) -> MeasuredInterference:
        """Read it back, exactly."""
        document = json.loads(text)
        if document["kind"] != cls.KIND:
            raise ValueError(f"not {cls.KIND}")
        return cls(
            utilisations=np.asarray(document["utilisations"], dtype=np.float64),
            latencies=np.asarray(document["latencies"], dtype=np.float64),
            alone=np.asarray(document["alone"], dtype=np.float64),
            beside=np.asarray(document["beside"], dtype=np.float64),
            contention={name: float(value) for name, value in document["contention"].items()},
            slowdowns={name: tuple(float(v) for v in values) for name, values in document["slowdowns"].items()},
            neighbour=float(document["neighbour"]),
            lone={name: (float(pair[0]), float(pair[1])) for name, pair in document["lone"].items()},
        )

    @classmethod
    def from_directory(cls, directory: Path) -> MeasuredInterference:
        """Fit to the tables of a ``colocation`` directory.

        Raises
        ------
        InputError
            When a table is absent or a row is broken; names file and line.
        """
        grid = fit.read_grid(directory)
        knots, alone, beside = fit.latency_tails(directory, grid)
        slowdowns = fit.batch_slowdowns(grid, knots)
        return cls(
            utilisations=knots,
            latencies=fit.LATENCIES.copy(),
            alone=alone,
            beside=beside,
            contention=dict.fromkeys(slowdowns, 0.0) | fit.antagonist_contention(directory),
            slowdowns=slowdowns,
            neighbour=fit.neighbour_growth(directory),
            lone=fit.lone_run_times(grid),
        )

    def _quantile(self, tails: Floats) -> Floats:
        """Return the latency at which each tail falls to 0.05, linear in log latency between kept points."""
        first = np.argmax(tails <= 0.05, axis=1)
        never = ~(tails <= 0.05).any(axis=1)
        rows = np.arange(len(tails))
        before = np.maximum(first - 1, 0)
        high, low = tails[rows, before], tails[rows, first]
        part = np.divide(high - 0.05, high - low, out=np.ones_like(high), where=high > low)
        logs = np.log(self.latencies)
        value = np.exp(logs[before] + np.clip(part, 0.0, 1.0) * (logs[first] - logs[before]))
        return np.asarray(np.where(never, self.latencies[-1], value))
