"""Load series for the forecast experiment without the user's data.

Called by `experiment_command`. It has five kinds of host, as in traces: a daily course, a smooth wander, jumps between
levels, short bursts over a quiet floor, and an idle host. Invariant: same seed, same series.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_sim.traces.load.load_series import LoadSeries

DAY_SLOTS: Final = 288
MISSING_SHARE: Final = 0.01
"""Slots without a record, as metrics pipelines lose them (chosen)."""


def generated_load(seed: int, *, hosts: int = 40, slots: int = 2016) -> LoadSeries:
    """Return ``hosts`` series of ``slots`` slots, as shares of capacity; nan: a lost record."""
    generator = np.random.default_rng(seed)
    kinds = (_daily, _wandering, _jumping, _bursting, _idle)
    names, rows = [], []
    for host in range(hosts):
        kind = kinds[host % len(kinds)]
        load = np.clip(kind(generator, slots), 0.0, 1.0)
        load[generator.random(slots) < MISSING_SHARE] = np.nan
        names.append(f"{kind.__name__.lstrip('_')}-{host // len(kinds)}")
        rows.append(load)
    return LoadSeries("generated", tuple(names), np.stack(rows))


def _autoregressive(generator: np.random.Generator, slots: int, keep: float, spread: float) -> Floats:
    noise = generator.normal(0, spread, slots)
    for slot in range(1, slots):
        noise[slot] += keep * noise[slot - 1]
    return noise


def _daily(generator: np.random.Generator, slots: int) -> Floats:
    phase = 2 * np.pi * (np.arange(slots) / DAY_SLOTS + generator.random())
    level = generator.uniform(0.2, 0.4)
    return level * (1 + 0.6 * np.sin(phase) + 0.2 * np.sin(2 * phase)) + _autoregressive(generator, slots, 0.7, 0.015)


def _wandering(generator: np.random.Generator, slots: int) -> Floats:
    return generator.uniform(0.2, 0.6) + _autoregressive(generator, slots, 0.97, 0.012)


def _jumping(generator: np.random.Generator, slots: int) -> Floats:
    starts = generator.random(slots) < 1 / 60
    levels = generator.uniform(0.1, 0.7, slots)
    held = np.maximum.accumulate(np.where(starts, np.arange(slots), 0))
    load: Floats = levels[held] + generator.normal(0, 0.02, slots)
    return load


def _bursting(generator: np.random.Generator, slots: int) -> Floats:
    bursts = (generator.random(slots) < 0.04) * generator.gamma(2.0, 0.15, slots)
    return 0.08 + bursts + np.abs(generator.normal(0, 0.01, slots))


def _idle(generator: np.random.Generator, slots: int) -> Floats:
    load: Floats = np.full(slots, 0.02) + 0.005 * (generator.random(slots) < 0.1)
    return load
