"""Unlike services, made of measured tables: other base latencies, limits and rates, and four ways to be disturbed.

Called by `guard_by_service`. A service is a table with scaled latencies and rates (memcached with batch jobs run
repeatedly, or once; with antagonists; with PARSEC jobs). Without measured tables, four are generated from
`GeneratedInterference` with different sensitivities to jobs. Invariant: same tables and seeds, same services and
samples; a cell is learned from or judged on in all tables alike: grid and grid-once hold the same cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.forecasts import MixBatch, QosSamples
from cotide_core.kernels.array_types import Floats, Indices
from cotide_predictors.qos.mixes import take_mixes
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.traces.colocation import tables

FAMILIES: Final = ("grid", "grid-once", "antagonists", "parsec")
"""The measured tables, see `tables.qos_samples`."""
BASE_MILLISECONDS: Final = (2.0, 500.0)
LIMIT_RATIOS: Final = (1.2, 20.0)
"""Limit over lone p95."""
RATE_DECADES: Final = 3.0
REPEAT_NOISE: Final = 0.05
"""Standard deviation of the log of a latency measured again; chosen, the tables' own noise comes on top."""
HELD_OUT: Final = 0.25
"""Share of the cells that services are judged on (3:1, as in Ou 2024, sec. 3.1)."""
GENERATED: Final = (("mild", 0.3), ("even", 1.0), ("twice", 2.0), ("steep", 3.5))
"""Names of generated tables, and the exponent of their latency's growth with jobs (chosen)."""
GENERATED_ROWS: Final = 1200
_GENERATED_SEED: Final = 13


@dataclass(frozen=True, slots=True)
class Service:
    """One service of the population; ``rate_scale`` multiplies the table's rates, ``base_milliseconds`` is its lone
    p95."""

    name: str
    family: str
    base_milliseconds: float
    limit_ratio: float
    rate_scale: float

    @property
    def limit_milliseconds(self) -> float:
        """Its p95 limit."""
        return self.base_milliseconds * self.limit_ratio


@dataclass(frozen=True, slots=True)
class Family:
    """A table in units of its own p95 alone, and its rows for learning and for judging."""

    samples: QosSamples
    learned: Indices
    judged: Indices


def read_tables(directory: Path | None) -> dict[str, QosSamples]:
    """Return the measured tables of a directory, or generated ones where there is none.

    Raises
    ------
    InputError
        When a table is missing or broken.
    """
    if directory is None:
        return {name: _generated(power, index) for index, (name, power) in enumerate(GENERATED)}
    return {name: tables.qos_samples(directory, name) for name in FAMILIES}


def draw_services(names: Sequence[str], count: int, seed: int) -> list[Service]:
    """Return services of alternating families, with base, limit and rates drawn evenly in logs."""
    generator = np.random.default_rng((seed, count))
    services = []
    for index in range(count):
        base, ratio = (np.exp(generator.uniform(*np.log(span))) for span in (BASE_MILLISECONDS, LIMIT_RATIOS))
        scale = 10.0 ** -generator.uniform(0.0, RATE_DECADES)
        family = names[index % len(names)]
        services.append(Service(f"shop/{index:02d}-{family}", family, float(base), float(ratio), float(scale)))
    return services


def split(found: Mapping[str, QosSamples], seed: int) -> dict[str, Family]:
    """Return each table in units of its lone p95 with its cells split at random.

    One split holds for all services and for all tables: a cell that several tables have lies on one side in each. A
    table with all its cells drawn already draws none of its own.
    """
    generator = np.random.default_rng((seed, 1))
    judged_of: dict[bytes, bool] = {}
    families = {}
    for name, samples in found.items():
        keys = _cell_keys(samples.mixes)
        fresh = sorted({key for key in keys if key not in judged_of})
        drawn = generator.permutation(len(fresh))
        held = round(HELD_OUT * len(fresh)) if judged_of else max(1, round(HELD_OUT * len(fresh)))
        judged_of |= {fresh[index]: rank < held for rank, index in enumerate(drawn.tolist())}
        judged = np.array([judged_of[key] for key in keys])
        unit = QosSamples(samples.mixes, samples.latency_milliseconds / _lone(samples))
        families[name] = Family(unit, np.flatnonzero(~judged), np.flatnonzero(judged))
    return families


def _cell_keys(mixes: MixBatch) -> list[bytes]:
    """Return (n,) keys that are equal for rows of one cell in all tables: rates, pressure and jobs by type's name."""
    named = [
        b"".join(
            f"{kind}\0".encode() + np.array([count, size]).tobytes()
            for kind, count, size in sorted(zip(mixes.types, counts, sizes, strict=True))
            if count > 0
        )
        for counts, sizes in zip(mixes.counts.tolist(), mixes.input_bytes.tolist(), strict=True)
    ]
    plain = np.column_stack((mixes.requests_per_second, mixes.other_requests_per_second, mixes.cpu_pressure))
    return [row.tobytes() + jobs for row, jobs in zip(plain, named, strict=True)]


def measure(
    service: Service, family: Family, rows: Indices, count: int, generator: np.random.Generator
) -> tuple[MixBatch, Floats]:
    """Return samples of a service: rows of its table drawn with replacement, scaled, measured again."""
    drawn = generator.choice(rows, count)
    mixes = take_mixes(family.samples.mixes, drawn)
    noise = np.exp(REPEAT_NOISE * generator.standard_normal(count))
    latency = family.samples.latency_milliseconds[drawn] * service.base_milliseconds * noise
    scaled = replace(
        mixes,
        requests_per_second=mixes.requests_per_second * service.rate_scale,
        limit_milliseconds=np.full(count, service.limit_milliseconds),
        services=(service.name,),
        service=np.zeros(count, np.int64),
    )
    return scaled, latency


def _lone(samples: QosSamples) -> float:
    """Return the median p95 without jobs at the lower half of the rates."""
    mixes = samples.mixes
    alone = mixes.counts.sum(axis=1) == 0
    quiet = alone & (mixes.requests_per_second <= np.median(mixes.requests_per_second[alone]))
    return float(np.median(samples.latency_milliseconds[quiet]))


def _generated(power: float, index: int) -> QosSamples:
    generator = np.random.default_rng((_GENERATED_SEED, index))
    physics, rows = GeneratedInterference(), GENERATED_ROWS
    types = physics.types
    jobs = generator.poisson(0.3, (rows, len(types))).astype(np.float64)
    jobs[: rows // 10] = 0.0
    nothing = np.zeros_like(jobs)
    rates, none = generator.uniform(1_000.0, 140_000.0, rows), np.zeros(rows)
    sizes = jobs * np.exp(generator.uniform(np.log(2e7), np.log(6e8), jobs.shape))
    pressure = np.minimum(1.0, 0.125 * jobs.sum(axis=1))
    limits = np.ones(rows)
    beside = physics.p95_milliseconds(MixBatch(rates, none, limits, pressure, types, jobs, sizes))
    alone = physics.p95_milliseconds(MixBatch(rates, none, limits, none, types, nothing, nothing))
    noise = np.exp(0.1 * generator.standard_normal(rows))
    mixes = MixBatch(rates, none, limits, pressure, types, jobs, sizes)
    return QosSamples(mixes, alone * (beside / alone) ** power * noise)
